//! A client shaped like a PyTorch program: its launches, its host's time between them, and what it waits for. All times
//! are longer by one factor (`--slow`), so that a few processors hold several such programs beside a simulated GPU.
//!
//! It reads `WORK SECONDS` from stdin, works that long on the wall clock, and answers each line with one of JSON. Its first
//! line says that it is ready. Figures in answers are a card's: rates times the factor, latencies divided by it.

mod card;
mod host;
mod server;
mod shapes;
mod steps;

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;
use weir_tests::driver::DriverError;
use weir_tests::obeying::say_json as say;

use server::Latencies;
use shapes::Work;
use steps::{Player, Rate};

/// Work like a PyTorch program, as the lines on stdin say: `WORK SECONDS`.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// How many times longer everything takes than on the card
    #[arg(long, default_value_t = 10.0)]
    slow: f64,
    /// Where the moments of requests come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the simulated GPU's configuration for these programs (TOML), and end
    #[arg(long)]
    configuration: bool,
}

/// The first line.
#[derive(Serialize)]
struct Ready {
    ready: bool,
    pid: u32,
}

/// The answer to a line.
#[derive(Serialize)]
struct Answer {
    work: Work,
    #[serde(flatten)]
    did: Did,
}

/// What was done.
#[derive(Serialize)]
#[serde(untagged)]
enum Did {
    Units(Rate),
    Requests(Latencies),
    Nothing { error: String },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.configuration {
        let written = std::io::stdout().write_all(card::configuration(cli.slow).as_bytes());
        return written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    match play(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "weir-player: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Obeys until stdin ends.
fn play(cli: &Cli) -> Result<(), DriverError> {
    let mut player = Player::open(cli.slow)?;
    let mut arrivals = server::Arrivals::from(cli.seed);
    say(&Ready { ready: true, pid: std::process::id() });
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Some((work, time)) = asked(&line) else {
            let error = format!("`{line}` is not `WORK SECONDS`");
            say(&Did::Nothing { error });
            continue;
        };
        let did = match work.service() {
            Some(service) => Did::Requests(server::serve(&mut player, service, &mut arrivals, time)?),
            None => Did::Units(player.count(work, time)?),
        };
        say(&Answer { work, did });
    }
    Ok(())
}

/// What a line asks for.
fn asked(line: &str) -> Option<(Work, Duration)> {
    let (work, seconds) = line.trim().split_once(' ')?;
    let work = <Work as clap::ValueEnum>::from_str(work, false).ok()?;
    Some((work, Duration::try_from_secs_f64(seconds.trim().parse().ok()?).ok()?))
}
