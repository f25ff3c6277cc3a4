//! Says for each way in which a program can look the driver's functions up, whether our library catches it: preloaded
//! by the environment or by `/etc/ld.so.preload`, or in the driver's place. `weir doctor` runs this and prints the table;
//! stories hold it against the promise.
//!
//! Each route runs in a process of its own: one that crashes or never ends is only that route's answer.

mod ask;
mod exports;
mod report;
mod route;
mod routes;
mod scene;
mod symbols;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// Which ways to the driver's functions does our library catch?
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Print one JSON document on stdout instead of a table.
    #[arg(long)]
    json: bool,
    /// Be the program of one route: look up, print what was found, end.
    #[arg(long, hide = true)]
    ask: Option<String>,
    /// The driver's file, for the routes that name it.
    #[arg(long, hide = true, requires = "ask")]
    driver: Option<std::path::PathBuf>,
}

/// A route broke its promise.
const BROKEN: u8 = 1;
/// There is no driver to look up anything in.
const NO_DRIVER: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = std::io::stdout().lock();
    if let Some(name) = &cli.ask {
        return ask::answer(name, cli.driver.as_deref(), &mut out);
    }
    let report = report::Report::take();
    let written = if cli.json { report.write_json(&mut out) } else { report.write_table(&mut out) };
    match written.and_then(|()| out.flush()) {
        Ok(()) if report.driver.is_none() => ExitCode::from(NO_DRIVER),
        Ok(()) if report.holds() => ExitCode::SUCCESS,
        _ => ExitCode::from(BROKEN),
    }
}
