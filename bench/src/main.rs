//! `weir-bench`: one benchmark for each bar, ratios taken in one run, one document on stdout.
//!
//! ```text
//! weir-bench launch [--json] [--preload PATH] [--driver PATH]
//! ```
//!
//! `--preload` takes any interposer, which is then measured beside ours in the same run, and `--driver` any `libcuda.so.1`
//! (`launch`, `alloc` and, without a driver, `spawn`).
//! Instructions are counted where `valgrind` is installed.

mod agree;
mod alloc;
mod check;
mod client;
mod clock;
mod count;
mod demo;
mod duel;
mod events;
mod gate;
mod gpu;
mod graphs;
mod host;
mod instructions;
mod kernels;
mod launch;
mod live;
mod load;
mod manager;
mod meter;
mod pair;
mod picture;
mod placement;
mod policy;
mod profile;
mod register;
mod registrant;
mod report;
mod resize;
mod restart;
mod rig;
mod sample;
mod scaling;
mod shapes;
mod share;
mod spawn;
mod stage;
mod startup;
mod stolen;
mod worker;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};

/// Measure Weir: one benchmark for each promise.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

/// What all benchmarks take.
#[derive(Args, Clone)]
pub struct Options {
    /// Print one JSON document on stdout instead of lines.
    #[arg(long)]
    json: bool,
}

/// What those take that have a short form.
#[derive(Args, Clone)]
pub struct QuickOptions {
    #[command(flatten)]
    common: Options,
    /// As little as shows that all of it works; its figures are compared with nothing
    #[arg(long)]
    quick: bool,
}

impl QuickOptions {
    /// How much is to be done: all, or in the short form this.
    const fn of(&self, all: usize, quick: usize) -> usize {
        if self.quick { quick } else { all }
    }
}

/// What those take that can draw.
#[derive(Args, Clone)]
pub struct PlotOptions {
    #[command(flatten)]
    common: Options,
    /// Draw pictures into this directory
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// What those take that measure a program with libweir.so and without.
#[derive(Args, Clone)]
pub struct PreloadOptions {
    #[command(flatten)]
    common: Options,
    /// Another interposer, to be measured beside libweir.so in the same run
    #[arg(long, value_name = "PATH")]
    preload: Option<PathBuf>,
}

/// What those take of them whose program calls the driver.
#[derive(Args, Clone)]
pub struct DriverOptions {
    #[command(flatten)]
    preloads: PreloadOptions,
    /// The driver to measure on [default: the floor driver, whose every call returns at once]
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Bench {
    /// Added cost of a granted launch; locks, allocations and system calls counted
    Launch(DriverOptions),
    /// Added cost of an allocation and its free
    Alloc(DriverOptions),
    /// Added cost of starting a program without CUDA
    Spawn(PreloadOptions),
    /// Added cost of the start of a program with many libraries and look-ups
    Startup(QuickOptions),
    /// Achieved share against request, by the simulated GPU's books
    Share(share::Options),
    /// Charged against true use, by the simulated GPU's books
    Meter(meter::Options),
    /// From a changed budget to the first launch under it
    Resize(QuickOptions),
    /// How soon a filler gives way to a latency tenant that wakes
    Gate(Options),
    /// Whether the simulator and real processes come to the same
    Agree(agree::Options),
    /// What policies make of shared GPUs, in virtual time
    Policy(policy::Options),
    /// What placement makes of recorded and generated clusters
    Placement(QuickOptions),
    /// Programs like PyTorch's in pairs, under plain slicing and under Weir
    Duel(duel::Options),
    /// Searches of the profiler, on surfaces with a known best
    Profile(Options),
    /// What scaling policies make of request traces, in virtual time
    Scaling(QuickOptions),
    /// Published comparisons, beside the same rivals simulated
    Shapes(PlotOptions),
    /// A thousand processes register at once
    Register(QuickOptions),
    /// The node manager is killed under busy clients and starts again
    Restart(QuickOptions),
    /// What the node manager itself takes of a processor
    Manager(QuickOptions),
    /// Random programs under throttling: none may hang
    Live(live::Options),
    /// What only a GPU can answer, in stories
    GpuCheck(check::Options),
    /// What real cards answered, as it lies in bench/results
    Gpu(gpu::Options),
    /// What the GPU is like; the node's calibration file (`weir doctor --measure`)
    Measure(check::MeasureOptions),
    /// The main job: two real programs share one GPU
    Demo(demo::Options),
    #[command(hide = true)]
    AgreePlayer(agree::PlayerOptions),
    #[command(hide = true)]
    Pace {
        /// Which case of the sweep.
        case: usize,
    },
    #[command(hide = true)]
    GpuCheckStory(check::StoryOptions),
    #[command(hide = true)]
    CheckPlayer {
        /// What it launches, to begin with.
        work: String,
    },
    #[command(hide = true)]
    GatePlayer {
        /// Which of the programs.
        part: gate::Part,
        /// The processor to run on.
        #[arg(long)]
        core: Option<usize>,
    },
    #[command(hide = true)]
    LivePlayer(live::PlayerOptions),
    #[command(hide = true)]
    Load {
        /// What to launch.
        load: load::Load,
    },
    #[command(hide = true)]
    Registrant {
        /// What it does then.
        life: registrant::Life,
    },
    #[command(hide = true)]
    StartupPlayer {
        /// Where the libraries are that it opens.
        libraries: PathBuf,
    },
    #[command(hide = true)]
    Worker {
        /// What to do.
        task: worker::Task,
    },
}

fn main() -> ExitCode {
    LazyLock::force(&stolen::BEGAN);
    let outcome = match Cli::parse().bench {
        Bench::Launch(options) => launch::run(&options),
        Bench::Alloc(options) => alloc::run(&options),
        Bench::Spawn(options) => spawn::run(&options),
        Bench::Startup(options) => startup::run(&options),
        Bench::StartupPlayer { libraries } => Ok(startup::play(&libraries)),
        Bench::Share(options) => share::run(&options),
        Bench::Meter(options) => meter::run(&options),
        Bench::Pace { case } => Ok(meter::pace(case)),
        Bench::Gate(options) => gate::run(&options),
        Bench::GatePlayer { part, core } => Ok(gate::play(part, core)),
        Bench::Agree(options) => agree::run(&options),
        Bench::AgreePlayer(options) => agree::play(&options),
        Bench::Policy(options) => policy::run(&options),
        Bench::Placement(options) => placement::run(&options),
        Bench::Duel(options) => duel::run(&options),
        Bench::Profile(options) => profile::run(&options),
        Bench::Scaling(options) => scaling::run(&options),
        Bench::Shapes(options) => shapes::run(&options),
        Bench::Live(options) => live::run(&options),
        Bench::LivePlayer(options) => Ok(live::play(&options)),
        Bench::Resize(options) => resize::run(&options),
        Bench::Register(options) => register::run(&options),
        Bench::Restart(options) => restart::run(&options),
        Bench::Manager(options) => manager::run(&options),
        Bench::Registrant { life } => Ok(registrant::run(life)),
        Bench::GpuCheck(options) => check::run(&options),
        Bench::GpuCheckStory(options) => check::run_story(&options),
        Bench::CheckPlayer { work } => Ok(check::play(&work)),
        Bench::Gpu(options) => gpu::run(&options),
        Bench::Measure(options) => check::measure(&options),
        Bench::Demo(options) => demo::run(&options),
        Bench::Load { load } => Ok(load::run(load)),
        Bench::Worker { task } => Ok(worker::run(task)),
    };
    outcome.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "error: {error}");
        ExitCode::from(3)
    })
}
