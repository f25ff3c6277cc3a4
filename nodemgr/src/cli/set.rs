//! `weir set`: another budget for a running tenant.

use weir_protocol::units::Bytes;

use super::{Context, printer, share, size};
use crate::control::Client;
use crate::control::schema::{SetBudget, SetDone};
use crate::fault::Fault;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The tenant
    tenant: String,
    /// Share that is guaranteed
    #[arg(long, value_name = "SHARE")]
    request: Option<String>,
    /// Share that is never exceeded
    #[arg(long, value_name = "SHARE")]
    limit: Option<String>,
    /// Memory on each of its GPUs
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Only say what would happen
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let change = SetBudget {
        tenant: args.tenant.clone(),
        request_permille: share("--request", args.request.as_deref())?,
        limit_permille: share("--limit", args.limit.as_deref())?,
        memory_bytes: size("--memory", args.memory.as_deref())?,
        dry_run: args.dry_run,
    };
    let done = Client::connect(&context.place()?)?.set(change)?;
    if context.json {
        printer::json(&done);
    } else {
        printer::data(text(&done));
    }
    Ok(0)
}

fn text(done: &SetDone) -> String {
    let line = |what: &str, old: String, new: String| {
        (old != new).then(|| format!("{}: {what} {old} -> {new}", done.tenant))
    };
    let mut lines: Vec<_> = [
        line("request", done.old.request.to_string(), done.new.request.to_string()),
        line("limit", done.old.limit.to_string(), done.new.limit.to_string()),
        line("memory", done.old.memory.to_string(), done.new.memory.to_string()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if lines.is_empty() {
        lines.push(format!("{}: nothing changes", done.tenant));
    }
    if done.over_limit_bytes > 0 {
        let over = Bytes(done.over_limit_bytes);
        lines.push(format!(
            "holds {over} more than its limit: they stay, and nothing new is allocated until they are freed"
        ));
    }
    lines.push(match (done.dry_run, done.first_launch_us) {
        (true, _) => "dry run: nothing was changed".into(),
        (false, Some(us)) => format!("in effect; the first launch under it came after {us:.0} us"),
        (false, None) => "in effect; no launch yet".into(),
    });
    lines.join("\n")
}
