//! The `weir` command: parse, wire, print. Results go to stdout, all talk to stderr.

mod check;
mod container_spec;
mod doctor;
mod explain;
mod node;
mod preload;
mod printer;
mod ps;
mod run;
mod set;
mod signals;
mod standalone;
mod stats;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use weir_protocol::units::{Bytes, SmShare, UnitError};

use crate::control::schema::ClassName;
use crate::fault::Fault;
use crate::place::Place;

/// Share a GPU among programs, each with its guaranteed part of the time and its memory budget.
#[derive(Parser)]
#[command(name = "weir", version, arg_required_else_help = true, propagate_version = true)]
struct Cli {
    /// Directory of the node manager [default: $WEIR_NODE_DIR, else /run/weir for root, else $XDG_RUNTIME_DIR/weir]
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON document on stdout instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program within a budget
    Run(run::Args),
    /// List the tenants, their budgets and what they use
    Ps,
    /// Change a tenant's budget while it runs
    Set(set::Args),
    /// Print every counter there is
    Stats,
    /// Print what a container needs to be a tenant: a CDI file, or flags for docker and podman
    ContainerSpec(container_spec::Args),
    /// Check what this machine has and what it lacks
    Doctor,
    /// Check a configuration file
    Check(check::Args),
    /// Explain an error code
    Explain(explain::Args),
    /// Run the node manager
    Node(node::Args),
}

/// What every command knows.
struct Context {
    dir: Option<PathBuf>,
    json: bool,
}

impl Context {
    /// The node manager's place: the one that is named, or the standard one.
    fn place(&self) -> Result<Place, Fault> {
        self.dir.as_deref().map_or_else(|| Ok(Place::standard()), Place::at)
    }
}

/// Runs the command line of this process and says how it ends.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let context = Context { dir: cli.dir, json: cli.json };
    let done = match cli.command {
        Command::Run(args) => run::run(&context, &args),
        Command::Ps => ps::run(&context),
        Command::Set(args) => set::run(&context, &args),
        Command::Stats => stats::run(&context),
        Command::ContainerSpec(args) => container_spec::run(&context, &args),
        Command::Doctor => doctor::run(&context),
        Command::Check(args) => check::run(&context, &args),
        Command::Explain(args) => explain::run(&context, &args),
        Command::Node(args) => node::run(&context, &args),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            printer::talk(&fault);
            ExitCode::from(fault.exit_code())
        }
    }
}

/// The value of `--request` or `--limit`, in thousandths.
fn share(flag: &str, text: Option<&str>) -> Result<Option<u16>, Fault> {
    let parse = |text: &str| text.parse::<SmShare>().map(SmShare::as_permille);
    unit(flag, text, parse)
}

/// The value of `--memory`, in bytes.
fn size(flag: &str, text: Option<&str>) -> Result<Option<u64>, Fault> {
    unit(flag, text, |text| text.parse::<Bytes>().map(|bytes| bytes.0))
}

fn unit<T>(
    flag: &str,
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<T, UnitError>,
) -> Result<Option<T>, Fault> {
    text.map(|text| parse(text).map_err(|error| Fault::unit(flag, &error))).transpose()
}

/// A class as clap reads it.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Class {
    /// Online, with a latency to keep
    Latency,
    /// The work that fillers must not slow
    #[default]
    Primary,
    /// Best effort: lives on what is left
    Filler,
}

impl From<Class> for ClassName {
    fn from(class: Class) -> Self {
        match class {
            Class::Latency => Self::Latency,
            Class::Primary => Self::Primary,
            Class::Filler => Self::Filler,
        }
    }
}
