//! `weir-bench placement`: what placement makes of recorded and generated clusters. *Simulated*, all of it.
//!
//! Nothing here depends on the machine or its load, except decisions a second.

mod matching;
mod mix;
mod openb;
mod pairs;
mod scale;
mod sets;

use std::io;
use std::process::ExitCode;

use weir_cluster::fault::Fault;

use crate::QuickOptions;
use crate::report::Report;

/// Measures and prints.
pub fn run(options: &QuickOptions) -> io::Result<ExitCode> {
    let mut report = Report::new("placement", true);
    openb::measure(&mut report, options)?;
    pairs::measure(&mut report, options)?;
    mix::measure(&mut report, options)?;
    sets::measure(&mut report, options);
    scale::measure(&mut report, options)?;
    Ok(report.finish(options.common.json))
}

fn other(fault: Fault) -> io::Error {
    io::Error::other(fault.to_string())
}
