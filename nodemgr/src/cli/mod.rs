//! The `weir` command: parse, wire, print. Results go to stdout, all talk to stderr.

mod check;
mod config;
mod container_spec;
mod doctor;
mod events;
mod explain;
mod measure;
mod node;
mod park;
mod policy;
mod preload;
pub(crate) mod printer;
mod ps;
mod run;
mod set;
mod signals;
mod sim;
mod standalone;
mod stats;
mod summary;
mod switch;
mod unmanaged;
mod visible;
mod web;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    ///
    /// ACHIEVED is the share charged during the last second, WAITED the time that launches and copies spent at the gate,
    /// since the tenant was made. TURNS: `passes`, takes no turns; `waits`, a launch may not go yet; `dense`, at work in its
    /// turn; `rests`, nothing is in flight.
    Ps(ps::Args),
    /// Change a tenant's budget while it runs
    Set(set::Args),
    /// Take an idle tenant's device memory to the host, until its next call
    ///
    /// Its processes stay, and their calls to the driver wait. The first of them brings the memory back, as soon as there is
    /// room for it: until then its limit is free for others. Whose checkpoint the driver does not take stands in docs/park.md.
    Park(park::Args),
    /// Bring a parked tenant's memory back
    Unpark(park::Args),
    /// Show which policy decides on which GPU, or switch it while tenants run
    ///
    /// A switch holds until the node manager starts again; `policy` in weir.toml is for good. What the policy makes of a
    /// tenant stands in `weir ps`, in the column POLICY, as a state by name.
    Policy(policy::Args),
    /// Enforce nothing but memory limits, until `weir on`: for when Weir itself may be the trouble
    ///
    /// Every tenant's time is unlimited at once, nobody takes turns, copies are not limited. It stays so over a restart of
    /// the node manager, by the file `off` in its directory.
    Off,
    /// Enforce budgets again after `weir off`
    On,
    /// Tell what has happened on the node
    ///
    /// Oldest first, times in UTC. With --json one document a line.
    Events(events::Args),
    /// Tell what a tenant waited for, in order of time
    Why(why::Args),
    /// Print every counter there is, as JSON
    ///
    /// One document on stdout, with and without --json. Its field `schema` is the version of the document: it is raised
    /// when a field changes its meaning. Units are in the names: _ns, _us, _bytes, _percent, _permille, _ppm.
    Stats,
    /// Serve metrics and the public API over HTTP, as a process of its own without rights
    Web(web::Args),
    /// Read pages for the node manager, which starts this by itself
    #[command(name = crate::scraper::COMMAND, hide = true)]
    Scrape,
    /// Print what a container needs to be a tenant: a CDI file, or flags for docker and podman
    ContainerSpec(container_spec::Args),
    /// Check what this machine has and what it lacks
    Doctor(measure::Args),
    /// Check a configuration file
    Check(check::Args),
    /// Show the settings of the node manager
    Config(config::Args),
    /// Explain an error code, or list them all
    Explain(explain::Args),
    /// Simulate a scenario: which services fit together, and under which policy
    Sim(sim::Args),
    /// Run the node manager
    ///
    /// It stays in the foreground and logs to stderr, as much as $WEIR_LOG says (error, warn, info, debug) [default: info].
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
        Command::Ps(args) => ps::run(&context, &args),
        Command::Set(args) => set::run(&context, &args),
        Command::Park(args) => park::run(&context, &args, true),
        Command::Unpark(args) => park::run(&context, &args, false),
        Command::Policy(args) => policy::run(&context, &args),
        Command::Off => switch::run(&context, true),
        Command::On => switch::run(&context, false),
        Command::Events(args) => events::run(&context, &args),
        Command::Why(args) => why::run(&context, &args),
        Command::Stats => stats::run(&context),
        Command::Web(args) => web::run(&context, &args),
        Command::Scrape => crate::scraper::run().map(|()| 0),
        Command::ContainerSpec(args) => container_spec::run(&context, &args),
        Command::Doctor(args) if args.measure => measure::run(&context, &args),
        Command::Doctor(_) => doctor::run(&context),
        Command::Check(args) => check::run(&context, &args),
        Command::Config(args) => config::run(&context, &args),
        Command::Explain(args) => explain::run(&context, &args),
        Command::Sim(args) => sim::run(&context, &args),
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
