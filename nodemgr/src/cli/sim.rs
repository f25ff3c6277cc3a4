//! `weir sim`: a scenario in virtual time, under one policy or several.

use std::path::PathBuf;

use super::{Context, printer};
use crate::fault::Fault;
use crate::sim::{self, Comparison, Ruler, Scenario};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The scenario, a TOML file; bench/scenarios has examples
    scenario: PathBuf,
    /// Policies to compare on the same seed, by comma; also `alone`, `slicing`, `mps`, `mps-request` and `mps-limit`, which are none [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    policy: Vec<String>,
    /// Another seed than the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Another length than the scenario's, in simulated seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Draw pictures into this directory
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let mut scenario = Scenario::read(&args.scenario)?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    scenario.seconds = args.seconds.unwrap_or(scenario.seconds);
    let rulers = rulers(&args.policy)?;
    let began = std::time::Instant::now();
    let comparison = sim::compare(&scenario, &rulers)?;
    let took = began.elapsed().as_secs_f64();
    if context.json {
        printer::json(&comparison);
    } else {
        printer::data(sim::table(&comparison));
        let simulated = comparison.simulated_seconds;
        printer::talk(format_args!(
            "{simulated:.0} simulated seconds in {took:.1} s: {:.0} times real speed",
            simulated / took
        ));
    }
    args.plot.as_deref().map_or(Ok(()), |dir| draw(dir, &comparison))?;
    Ok(0)
}

/// Those that are named, or all that there are.
fn rulers(names: &[String]) -> Result<Vec<Ruler>, Fault> {
    if !names.is_empty() {
        return names.iter().map(|name| sim::ruler(name)).collect();
    }
    let policies = weir_policy::POLICIES.iter().map(|row| row.name);
    sim::RULES.iter().map(|(name, _)| *name).chain(policies).map(sim::ruler).collect()
}

#[cfg(feature = "plot")]
fn draw(dir: &std::path::Path, comparison: &Comparison) -> Result<(), Fault> {
    for path in sim::draw(dir, comparison)? {
        printer::talk(format_args!("drawn: {}", path.display()));
    }
    Ok(())
}

#[cfg(not(feature = "plot"))]
fn draw(_: &std::path::Path, _: &Comparison) -> Result<(), Fault> {
    let help = "build it with `cargo build --features plot`, or draw from --json";
    Err(Fault::new(&crate::codes::USAGE, "this `weir` was built without pictures", help))
}
