//! `weir-cluster simulate`: what policies would make of traces, in virtual time.

mod requests;

use std::process::ExitCode;

use clap::Subcommand;

use crate::fault::Fault;

/// What is simulated.
#[derive(Subcommand)]
pub enum Simulate {
    /// Request traces under scaling policies: violations, cold starts, GPU-seconds, latencies
    Requests(requests::Options),
}

/// Simulates and prints.
///
/// # Errors
/// What was given wrongly.
pub fn run(what: &Simulate, json: bool) -> Result<ExitCode, Fault> {
    match what {
        Simulate::Requests(options) => requests::run(options, json),
    }
}
