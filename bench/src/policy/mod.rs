//! `weir-bench policy`: what the policies make of shared GPUs, in virtual time on the simulated GPU's model.
//!
//! The bars are `weir`'s; the other policies, plain time slicing and MPS without a gate stand beside them in the figures,
//! on the same seed. Nothing here depends on the machine or its load: the same build prints the same figures anywhere.

mod at_once;
mod bubbles;
mod frontier;
mod goodput;
mod latency;
mod picture;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use serde::Serialize;
use weir_nodemgr::Fault;
use weir_nodemgr::sim::{self, Comparison, Outcome, Ruler, Scenario, TenantOutcome};

use self::frontier::Frontier;
use crate::PlotOptions;
use crate::report::Report;

/// The policy whose bars these are.
const OURS: &str = "weir";

/// The scenarios as they come with Weir.
const INFERENCE: (&str, &str) =
    ("inference-filler.toml", include_str!("../../scenarios/inference-filler.toml"));
const LLM: (&str, &str) = ("llm-filler.toml", include_str!("../../scenarios/llm-filler.toml"));
const BUBBLES: (&str, &str) =
    ("data-parallel-fillers.toml", include_str!("../../scenarios/data-parallel-fillers.toml"));

/// Simulated seconds of a run in the short form, at most.
const QUICK_SECONDS: f64 = 6.0;

/// Flags of the benchmark.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    plots: PlotOptions,
    /// Some seconds of each run, so that all of it is seen to work; its figures are compared with nothing
    #[arg(long)]
    quick: bool,
}

/// Measures and prints.
pub fn run(Options { plots: options, quick }: &Options) -> io::Result<ExitCode> {
    let began = Instant::now();
    let mut report = Report::new("policy", true);
    let longest = if *quick { QUICK_SECONDS } else { f64::INFINITY };
    let mut runs = Runs { plot: options.plot.clone(), longest, simulated_seconds: 0.0 };
    let mut frontier = Frontier::default();
    latency::measure(&mut report, &mut runs, &mut frontier)?;
    bubbles::measure(&mut report, &mut runs, &mut frontier)?;
    goodput::measure(&mut report, &mut runs, &mut frontier)?;
    at_once::measure(&mut report, &mut runs, &mut frontier)?;
    if let Some(dir) = &options.plot {
        frontier.draw(dir)?;
    }
    frontier.judge(&mut report);
    let speed = runs.simulated_seconds / began.elapsed().as_secs_f64();
    report.figure("simulated_seconds", runs.simulated_seconds);
    report.figure("simulated_seconds_per_second", speed);
    Ok(report.finish(options.common.json))
}

/// Runs scenarios, and counts how much was simulated.
struct Runs {
    plot: Option<PathBuf>,
    longest: f64, // in simulated seconds
    simulated_seconds: f64,
}

impl Runs {
    /// One scenario under each of these rules.
    fn compare(&mut self, scenario: &Scenario, rules: &[&str]) -> io::Result<Comparison> {
        let rulers: Vec<Ruler> =
            rules.iter().map(|name| sim::ruler(name)).collect::<Result<_, _>>().map_err(other)?;
        let scenario = Scenario { seconds: scenario.seconds.min(self.longest), ..scenario.clone() };
        let comparison = sim::compare(&scenario, &rulers).map_err(other)?;
        self.simulated_seconds += comparison.simulated_seconds;
        Ok(comparison)
    }

    /// Each tenant alone, and the scenario under every rule that there is, with pictures if they are wanted.
    fn compare_all(&mut self, name: &str, scenario: &Scenario) -> io::Result<(Outcome, Comparison)> {
        let mut comparison = self.compare(scenario, &all_rules())?;
        if let Some(dir) = &self.plot {
            sim::draw(&dir.join(name), &comparison).map_err(other)?;
        }
        Ok((comparison.outcomes.remove(0), comparison))
    }
}

/// Alone, `weir`, the other policies, and what is none.
fn all_rules() -> Vec<&'static str> {
    let policies = sim::policies().filter(|name| *name != OURS);
    ["alone", OURS].into_iter().chain(policies).chain(["slicing", "mps"]).collect()
}

fn other(fault: Fault) -> io::Error {
    io::Error::other(fault.to_string())
}

fn scenario((name, text): (&str, &str)) -> io::Result<Scenario> {
    Scenario::parse(text, Path::new(name)).map_err(other)
}

/// The tenant that comes first in these scenarios: the one to be protected.
fn better(outcome: &Outcome) -> io::Result<&TenantOutcome> {
    outcome.tenants.first().ok_or_else(|| io::Error::other("a scenario without tenants"))
}

/// Work of the others in a second, in milliseconds.
fn filler_work(outcome: &Outcome) -> f64 {
    outcome.tenants.iter().skip(1).map(|tenant| tenant.work_ms_per_s).sum()
}

/// One rule in one case, for the figures.
#[derive(Debug, Serialize)]
struct Row {
    policy: &'static str,
    filler_work_percent: f64,
    better_of_alone_percent: Option<f64>,
    switch_percent: Option<f64>,
}

impl Row {
    fn of(outcome: &Outcome) -> io::Result<Self> {
        Ok(Self {
            policy: outcome.policy,
            filler_work_percent: filler_work(outcome) / 10.0,
            better_of_alone_percent: better(outcome)?.of_alone_percent,
            switch_percent: outcome.switch_percent,
        })
    }
}
