//! `weir-cluster simulate`: what policies would make of traces, in virtual time.

mod mix;
mod placement;
mod requests;

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;

use crate::fault::{CONFIG, Fault};

/// Seed of the first run; the published runs of openb begin with the same number.
const FIRST_SEED: u64 = 42;

/// What is simulated.
#[derive(Subcommand)]
pub enum Simulate {
    /// Recorded clusters under placement policies: allocation, fragmentation, GPUs used, power
    Placement(placement::Options),
    /// Services and trainings that come and go under ways to share: peak GPUs, fragmentation, predicted violations
    Mix(mix::Options),
    /// Request traces under scaling policies: violations, cold starts, GPU-seconds, latencies
    Requests(requests::Options),
}

/// Simulates and prints.
///
/// # Errors
/// What was given wrongly.
pub fn run(what: &Simulate, json: bool) -> Result<ExitCode, Fault> {
    match what {
        Simulate::Placement(options) => placement::run(options, json),
        Simulate::Mix(options) => mix::run(options, json),
        Simulate::Requests(options) => requests::run(options, json),
    }
}

/// A file or directory that was named takes nothing.
fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> Fault {
    let help = "choose a place that can be written to";
    Fault::new(format!("cannot write `{}`: {error}", path.display()), help).exit(CONFIG)
}
