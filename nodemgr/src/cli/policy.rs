//! `weir policy`: which policy decides on which GPU, and another one from now on.

use super::{Context, printer};
use crate::control::Client;
use crate::control::policy::{AskPolicy, GpuPolicy, Policies};
use crate::fault::Fault;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The policy that is to decide from now on [default: only show what there is]
    name: Option<String>,
    /// GPUs by index or UUID [default: all]
    #[arg(long, value_delimiter = ',')]
    gpu: Vec<String>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let asked = AskPolicy { gpus: args.gpu.clone(), name: args.name.clone() };
    let policies = Client::connect(&context.place()?)?.policy(asked)?;
    if context.json {
        printer::json(&policies);
    } else {
        printer::data(text(&policies, args.name.is_some()));
    }
    Ok(0)
}

fn text(policies: &Policies, switched: bool) -> String {
    if switched {
        return policies.gpus.iter().map(change).collect::<Vec<_>>().join("\n");
    }
    let gpus: Vec<_> =
        policies.gpus.iter().map(|gpu| vec![gpu.index.to_string(), gpu.policy.clone()]).collect();
    let known: Vec<_> =
        policies.known.iter().map(|known| vec![known.name.clone(), known.about.clone()]).collect();
    let (gpus, known) =
        (printer::table(&["GPU", "POLICY"], &gpus), printer::table(&["POLICY", "ABOUT"], &known));
    format!("{gpus}\n\n{known}")
}

fn change(gpu: &GpuPolicy) -> String {
    match gpu.old == gpu.policy {
        true => format!("GPU {}: policy {}, unchanged", gpu.index, gpu.policy),
        false => format!("GPU {}: policy {} -> {}", gpu.index, gpu.old, gpu.policy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_tells_what_was_and_what_is() {
        let gpu = |old: &str| GpuPolicy {
            index: 1,
            uuid: "GPU-1".into(),
            old: old.into(),
            policy: "static".into(),
        };
        let told = |old| text(&Policies { gpus: vec![gpu(old)], known: Vec::new() }, true);
        assert_eq!(told("weir"), "GPU 1: policy weir -> static");
        assert_eq!(told("static"), "GPU 1: policy static, unchanged");
    }
}
