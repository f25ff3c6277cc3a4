//! The commands of `weir-cluster`: each parses, calls the library, prints, and returns an exit code.

mod printer;
mod simulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::fault::Fault;

/// Profile tenants, place together what complements, and scale in two dimensions.
#[derive(Parser)]
#[command(name = "weir-cluster", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document on stdout instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Simulate traces under policies, in virtual time
    #[command(subcommand)]
    Simulate(simulate::Simulate),
}

/// A word on stderr, from those who find something absent.
pub(crate) fn talk(text: impl std::fmt::Display) {
    printer::talk(text);
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    run(cli).unwrap_or_else(|fault| {
        printer::talk(&fault);
        ExitCode::from(fault.exit)
    })
}

fn run(cli: Cli) -> Result<ExitCode, Fault> {
    match cli.command {
        Command::Simulate(what) => simulate::run(&what, cli.json),
    }
}
