//! `weir-simgpu`: the process that holds the simulated GPUs, and two commands to look at it.

mod broker;
mod checkpoint;
mod client;
mod ingest;
mod machine;
mod publish;
mod requests;
mod serve;
mod teams;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use weir_simgpu_link::config::Config;
use weir_simgpu_link::{Kind, Session, place, socket};

/// Exit code for a configuration that cannot be used (`EX_CONFIG`).
const CONFIG_EXIT: u8 = 78;
/// Exit code when no broker is there to ask (`EX_UNAVAILABLE`).
const UNAVAILABLE: u8 = 69;

/// The simulated GPU: a broker that several processes share, and its books.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Do,
}

#[derive(Subcommand)]
enum Do {
    /// Hold the simulated GPUs until the last client has gone (clients start this by themselves).
    Broker {
        /// State directory [default: $WEIR_SIMGPU_DIR, else one per user]
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Configuration [default: $WEIR_SIMGPU_CONFIG, else profile h200]
        #[arg(long)]
        config: Option<PathBuf>,
        /// Stay in this process; messages go to stderr.
        #[arg(long)]
        foreground: bool,
    },
    /// Print the books as one JSON document.
    Books {
        /// State directory of the broker.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Check a configuration; prints what it means in full.
    Check {
        /// The TOML file.
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Do::Broker { dir, config, foreground } => {
            let dir = dir.unwrap_or_else(place::directory);
            let config = config.or_else(|| std::env::var_os(place::CONFIG).map(PathBuf::from));
            if foreground {
                serve::serve(&dir, config.as_deref())
            } else {
                serve::detach(&dir, config.as_deref())
            }
        }
        Do::Books { dir } => books(&dir.unwrap_or_else(place::directory)),
        Do::Check { file } => check(&file),
    }
}

/// Prints an error; returns its exit code.
fn fail(code: u8, message: impl std::fmt::Display) -> ExitCode {
    // Nobody may listen on stderr: then the exit code has to do.
    let _ = writeln!(std::io::stderr(), "error: {message}");
    ExitCode::from(code)
}

fn print(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn books(dir: &Path) -> ExitCode {
    let path = dir.join(place::SOCKET);
    let connection = match socket::connect(&path) {
        Ok(connection) => connection,
        Err(why) => {
            let hint = "help: a broker is there while a program uses the simulated GPU; name its directory with --dir";
            return fail(UNAVAILABLE, format_args!("no broker at `{}`: {why}\n{hint}", path.display()));
        }
    };
    match Session::over(connection, Kind::Observer).and_then(|session| session.books()) {
        Ok(books) => print(&serde_json::to_string_pretty(&books).unwrap_or_default()),
        Err(why) => fail(1, why),
    }
}

fn check(file: &Path) -> ExitCode {
    match Config::from_file(file) {
        Ok(config) => print(&serde_json::to_string_pretty(&config).unwrap_or_default()),
        Err(why) => fail(CONFIG_EXIT, why),
    }
}
