//! `weir-cluster simulate`: what policies would make of traces, in virtual time.

mod mix;
mod placement;
mod requests;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;

use crate::fault::{CONFIG, Fault};
use crate::place::{Hearer, Why};

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

/// Runs each of `ways` in the hearing of a file, if one is named: one JSON document a line, for each who came.
fn explain<Way>(
    path: Option<&Path>,
    ways: &[Way],
    run: impl Fn(&Way, Hearer<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let Some(path) = path else { return Ok(()) };
    let wrong = |error: &dyn std::fmt::Display| cannot_write(path, error);
    let mut file = BufWriter::new(File::create(path).map_err(|error| wrong(&error))?);
    let mut written: Result<(), serde_json::Error> = Ok(());
    for way in ways {
        let mut hear = |why: Why| {
            if written.is_ok() {
                written = serde_json::to_writer(&mut file, &why)
                    .and_then(|()| writeln!(file).map_err(serde_json::Error::io));
            }
        };
        run(way, Some(&mut hear))?;
    }
    written.map_err(|error| wrong(&error))?;
    file.flush().map_err(|error| wrong(&error))
}

/// A file or directory that was named takes nothing.
fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> Fault {
    let help = "choose a place that can be written to";
    Fault::new(format!("cannot write `{}`: {error}", path.display()), help).exit(CONFIG)
}
