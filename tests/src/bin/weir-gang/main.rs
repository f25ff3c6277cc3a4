//! Ranks that work together, as tensor parallel programs do: each rank has a GPU of its own, launches steps of a few
//! kernels, and behind each step a collective, which runs until every other rank has come to its own.
//!
//! A rank is a thread here; `--rank` says which ones this process has, and rank N uses the N-th visible GPU. Ranks meet in
//! words of memory that all their GPUs see: a rank's stream sets its own word, then a kernel spins for the other's. What is
//! spun away is the time for which the simulated GPU was busy, less the kernels' own.
//!
//! At the end one JSON line: `{"pid": 7, "elapsed_ns": 123}`.

mod rank;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use weir_tests::driver::DriverError;

use rank::Rank;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// No place to meet.
    #[error("cannot use the place where ranks meet: {0}")]
    Io(std::io::Error),
    /// A rank's thread panicked.
    #[error("a rank panicked")]
    Panic,
}

/// Launch steps with a collective behind each.
#[derive(Clone, Parser)]
#[command(version)]
pub struct Cli {
    /// A rank of this process, 0 or 1.
    #[arg(long = "rank", default_values_t = [0, 1])]
    ranks: Vec<usize>,
    /// Steps.
    #[arg(long)]
    steps: usize,
    /// Kernels of a step.
    #[arg(long, default_value_t = 4)]
    kernels: u32,
    /// Name of these.
    #[arg(long, default_value = "work")]
    kernel: String,
    /// Name of the kernel that spins for the other rank.
    #[arg(long, default_value = "ncclDevKernel_AllReduce_Sum_f32_RING_LL")]
    collective: String,
    /// Wait for the stream after so many steps.
    #[arg(long, default_value_t = 8)]
    wait: usize,
    /// Launch each step's kernels as a graph, which has a collective in it, too (its word is set already).
    #[arg(long)]
    graph: bool,
    /// File of zeroes in which the processes of a gang meet: 8 bytes a step, and 8 more.
    #[arg(long)]
    meet: PathBuf,
}

impl Cli {
    fn meeting_bytes(&self) -> usize {
        8 * (self.steps + 1)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "weir-gang: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let words = meeting(&cli.meet, cli.meeting_bytes())?;
    let start = Instant::now();
    let ranks = cli.ranks.iter().map(|number| {
        let (cli, number) = (cli.clone(), *number);
        std::thread::spawn(move || Rank::open(number, &cli, words)?.run())
    });
    for rank in ranks.collect::<Vec<_>>() {
        rank.join().map_err(|_| Failure::Panic)??;
    }
    let elapsed_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let said = serde_json::json!({ "pid": std::process::id(), "elapsed_ns": elapsed_ns });
    writeln!(std::io::stdout(), "{said}").map_err(Failure::Io)
}

/// The address of memory that all processes of the gang see.
fn meeting(file: &Path, bytes: usize) -> Result<usize, Failure> {
    let file = OpenOptions::new().read(true).write(true).open(file).map_err(Failure::Io)?;
    // SAFETY: a new mapping, which stays for as long as the process lives.
    let place = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    let failed = place == libc::MAP_FAILED;
    if failed { Err(Failure::Io(std::io::Error::last_os_error())) } else { Ok(place.expose_provenance()) }
}
