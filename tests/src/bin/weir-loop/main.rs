//! A client that launches kernels in a loop through the driver API, as a training program does: steps of a few
//! launches, some steps always queued. Stories and benchmarks drive it.
//!
//! It ends after `--launches` or `--seconds`; without either, when its stdin ends. Lines on stdin are commands, for whoever
//! wants to see a program ask for more: `allocate SIZE`, `free`, `report`. Each is answered by a JSON line
//! ([`weir_tests::said`]); the first lines on stdout say that the process is there and that the loop
//! runs, the last one what it did.

mod commands;
mod progress;
mod steps;
mod telling;

use std::ffi::CString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use weir_protocol::units::Bytes;
use weir_tests::client::Driver;
use weir_tests::driver::DriverError;
use weir_tests::obeying::say_json as say;
use weir_tests::said::Said;

use progress::Tally;
use steps::Steps;

/// Launch kernels in a loop.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Kernel to launch; several take turns. What a name costs is the simulated GPU's configuration.
    #[arg(long = "kernel", default_value = "loop")]
    kernels: Vec<String>,
    /// Blocks of each launch.
    #[arg(long, default_value_t = 108)]
    blocks: u32,
    /// End after this many launches (whole steps).
    #[arg(long)]
    launches: Option<u64>,
    /// End after this many seconds.
    #[arg(long)]
    seconds: Option<f64>,
    /// Launches of one step.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    step: u32,
    /// Steps queued beyond the one that runs; 0 waits for each step.
    #[arg(long, default_value_t = 4)]
    ahead: usize,
    /// Milliseconds to do nothing before each step.
    #[arg(long, default_value_t = 0)]
    rest_ms: u64,
    /// Launch each step as one CUDA graph, captured at the start.
    #[arg(long, conflicts_with = "streams")]
    graph: bool,
    /// Streams that take turns.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    streams: u32,
    /// Device memory to hold from the start.
    #[arg(long)]
    allocate: Option<Bytes>,
    /// Device memory to allocate and free once in each step.
    #[arg(long)]
    churn: Option<Bytes>,
    /// Tell Weir by this name how long each step took, from the end of the one before it, and report p95 of it.
    #[arg(long, value_name = "METRIC")]
    tell: Option<CString>,
    /// Index of the GPU among the visible ones.
    #[arg(long, default_value_t = 0)]
    gpu: i32,
}

/// When to stop without being told.
struct Until {
    launches: u64,
    time: Duration,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "weir-loop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), DriverError> {
    say(&Said::Started { pid: std::process::id() });
    let driver = Arc::new(Driver::open(cli.gpu, &cli.kernels)?);
    let mut steps = Steps::prepare(&driver, cli)?;
    let held = cli.allocate.map(|bytes| driver.allocate(bytes.0)).transpose()?;
    say(&Said::Ready);
    let tally = Arc::new(Tally::start());
    let stop = Arc::new(AtomicBool::new(false));
    {
        let (driver, tally, stop) = (driver.clone(), tally.clone(), stop.clone());
        let endless = cli.launches.is_none() && cli.seconds.is_none();
        // Not joined: a loop that ends by itself leaves a thread behind that still reads.
        std::thread::spawn(move || {
            commands::obey(&driver, &tally);
            // Relaxed: publishes nothing else.
            stop.store(endless, Ordering::Relaxed);
        });
    }
    let until = Until {
        launches: cli.launches.unwrap_or(u64::MAX),
        time: cli.seconds.map_or(Duration::MAX, Duration::from_secs_f64),
    };
    steps.run(&tally, &until, &stop)?;
    held.map_or(Ok(()), |pointer| driver.free(pointer))?;
    say(&Said::Done(tally.in_all()));
    Ok(())
}
