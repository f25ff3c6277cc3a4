//! The commands of `weir-cluster`: each parses, calls the library, prints, and returns an exit code.

mod fit;
mod printer;
mod profile;
mod serve;
mod simulate;
mod sites;

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
    /// Say which services fit together on which device, and what it would cost each
    Fit(fit::Options),
    /// Measure what a program needs: shares, batch, memory, and what a neighbour costs it
    Profile(Box<profile::Args>),
    /// Simulate traces under policies, in virtual time
    #[command(subcommand)]
    Simulate(simulate::Simulate),
    /// Split a training over sites, and shift best-effort work by carbon and power
    Sites(sites::Options),
    /// Run services on GPUs of this machine and of others, behind an HTTP gateway
    Serve(serve::OfFile),
    /// Check a cluster.toml
    Check(serve::OfFile),
    /// Show nodes, services and instances of a running controller
    Ps(serve::Ps),
    /// Take instances away from a node
    Drain(serve::Drain),
    #[command(hide = true)]
    Gateway(serve::Gateway),
    #[command(hide = true, subcommand)]
    Instance(serve::Instance),
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
        Command::Fit(options) => return fit::run(&options, cli.json),
        Command::Profile(args) => return profile::run(&args, cli.json),
        Command::Simulate(what) => return simulate::run(&what, cli.json),
        Command::Sites(options) => return sites::run(&options, cli.json),
        Command::Serve(args) => serve::serve(&args),
        Command::Check(args) => serve::check(&args, cli.json),
        Command::Ps(args) => serve::ps(&args, cli.json),
        Command::Drain(args) => serve::drain(&args, cli.json),
        Command::Gateway(args) => serve::gateway(&args),
        Command::Instance(what) => serve::instance(&what),
    }
    .map(|()| ExitCode::SUCCESS)
}
