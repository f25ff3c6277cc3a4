//! `weir sim`: a scenario in virtual time, under one policy or several.

use std::path::PathBuf;

use super::{Context, printer};
use crate::calibration::Calibration;
use crate::codes;
use crate::fault::Fault;
use crate::sim::{self, Ruler, Scenario};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The scenario, a TOML file; bench/scenarios has examples
    scenario: PathBuf,
    /// Policies to compare on the same seed, by comma [default: all, and all rules that are none]
    ///
    /// The rules that are none: `alone` (each tenant by itself), `slicing` (the driver's time slices), `mps` (all kernels at
    /// once), `mps-request` and `mps-limit` (the same, in partitions that large).
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    policy: Vec<String>,
    /// Another seed than the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Another length than the scenario's, in simulated seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// A GPU like the one that `weir doctor --measure` has written this file of: its time slice and its switches, where the
    /// scenario has none
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Draw pictures into this directory
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    #[cfg(not(feature = "plot"))]
    if args.plot.is_some() {
        let help = "build it with `cargo build --features plot`, or draw from --json";
        return Err(Fault::new(&codes::USAGE, "this `weir` was built without pictures", help));
    }
    let mut scenario = Scenario::read(&args.scenario)?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    if let Some(path) = &args.calibration {
        let wrong = |(message, help)| Fault::new(&codes::SCENARIO, message, help);
        let measured = Calibration::read(path).map_err(wrong)?;
        scenario.device.slice_us = scenario.device.slice_us.or(measured.slice_us);
        scenario.device.switch_us = scenario.device.switch_us.or(measured.switch_us);
    }
    if let Some(seconds) = args.seconds {
        let wrong = |(what, help)| Fault::new(&codes::USAGE, format!("the command line has {what}"), help);
        sim::scenario::check_seconds(seconds).map_err(wrong)?;
        scenario.seconds = seconds;
    }
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
            "{simulated:.0} simulated seconds in {took:.2} s: {:.0} times real speed; {:.0} events in each, {:.0} ns for an event",
            simulated / took,
            comparison.events as f64 / simulated,
            took * 1e9 / comparison.events as f64
        ));
    }
    #[cfg(feature = "plot")]
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
fn draw(dir: &std::path::Path, comparison: &sim::Comparison) -> Result<(), Fault> {
    for path in sim::draw(dir, comparison)? {
        printer::talk(format_args!("drawn: {}", path.display()));
    }
    Ok(())
}
