//! `weir-bench demo`: the main job, on real programs. Two unmodified frameworks share one GPU, each within its budget;
//! the shares are swapped while both run; one asks for more memory than it may have, and the other goes on.
//!
//! `scripts/demo` sets everything up and starts this. On a machine with a GPU it runs there, else on the simulated one,
//! and says which.

mod cluster;
mod document;
mod driver_side;
mod picture;
mod program;
mod watch;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::resize::swap_shares;
use crate::rig::{Control, Cost, Rig};
use crate::stolen::Tries;
use document::{Document, Resize};
use driver_side::DriverSide;
pub use driver_side::has_real_gpu;
use program::{PROGRAMS, Program};
use watch::Watch;

/// Length of a window over which shares are taken.
const WINDOW: Duration = Duration::from_secs(6);

/// Where the picture goes if nobody says.
const PICTURE: &str = "weir-demo.svg";

/// Swaps of the two shares; an even number would end where it began.
const SWAPS: usize = 201;

/// What the kernels of both programs cost on the simulated GPU, in microseconds: enough that Python keeps it busy.
fn costs() -> Vec<Cost> {
    vec![Cost { name: "*saxpy*", time_us: 400.0 }, Cost { name: "*", time_us: 250.0 }]
}

/// Options of the demo.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// Print one JSON document on stdout instead of a table.
    #[arg(long)]
    json: bool,
    /// Where the picture of the run goes [default: weir-demo.svg; with --cluster: weir-demo-cluster.svg]
    #[arg(long, value_name = "PATH")]
    picture: Option<PathBuf>,
    /// Use the simulated GPU even where there is a real one.
    #[arg(long)]
    simulated: bool,
    /// The cluster layer instead: two programs are profiled, placed on two simulated nodes and scaled under replayed requests
    #[arg(long)]
    cluster: bool,
    /// A recorded trace of requests (Azure LLM 2023, Mooncake, Alibaba GenAI 2026), its busiest 80 s [default: a drawn one]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    trace: Option<PathBuf>,
}

/// Runs the main job and tells what happened.
pub fn run(options: &Options) -> io::Result<ExitCode> {
    if options.cluster {
        return cluster::run(options);
    }
    let simulated = options.simulated || !has_real_gpu();
    let progress = progress(options.json);
    progress.println(if simulated {
        "weir demo: SIMULATED GPU (no real one found): shares and times are those of a model".to_owned()
    } else {
        "weir demo: on the real GPU".to_owned()
    });
    let document = Demo::start(simulated, &progress)?.play(options, &progress)?;
    progress.finish_and_clear();
    document.print(options.json);
    let broken = document.broken();
    for what in &broken {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or("unknown").to_owned();
        let _ = writeln!(
            io::stderr(),
            "FAILED: {what}\nhelp: is the machine busy? its load is {load}, and its host took {:.0} % of its processors; try \
             again when it is not",
            document.stolen_percent()
        );
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn progress(json: bool) -> ProgressBar {
    if json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(6); // on stderr; hidden by itself where stderr is no terminal
    let style = ProgressStyle::with_template("[{elapsed}] {pos}/{len} {wide_msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The running demo.
struct Demo {
    rig: Rig,
    control: Control,
    programs: Vec<Program>,
    driver_side: DriverSide,
}

impl Demo {
    fn start(simulated: bool, progress: &ProgressBar) -> io::Result<Self> {
        step(progress, "starting the node manager");
        let rig = if simulated { Rig::simulated(&costs())? } else { Rig::configured(false, "", "")? };
        step(progress, "starting tinygrad and numba under `weir run`");
        let programs: io::Result<Vec<_>> = PROGRAMS.iter().map(|row| Program::start(row, &rig)).collect();
        let mut demo = Self {
            control: Control::of(&rig)?,
            programs: programs?,
            driver_side: DriverSide::new(simulated)?,
            rig,
        };
        for program in &mut demo.programs {
            program.wait_until_ready(&demo.rig)?;
        }
        Ok(demo)
    }

    fn play(mut self, options: &Options, progress: &ProgressBar) -> io::Result<Document> {
        let mut watch = Watch::begin(&mut self.control)?;
        step(progress, "measuring the shares: 60 % and 30 %");
        let before = self.shares(&mut watch, progress)?;
        step(progress, "swapping the shares while both run");
        let latencies = self.swap(&mut watch, progress)?;
        step(progress, "measuring the shares after the last swap: 30 % and 60 %");
        let after = self.shares(&mut watch, progress)?;
        step(progress, "one program asks for more memory than it may have");
        let refusal = self.programs[1].ask_for_too_much(&self.rig)?;
        let stats = self.control.stats()?;
        let went_on = watch.launches_go_on(&mut self.control, 0)?;
        let picture = options.picture.clone().unwrap_or_else(|| PathBuf::from(PICTURE));
        picture::draw(&picture, &watch, self.driver_side.name())?;
        let tries = [before.1, after.1];
        let resize = Resize::new(after.0, &latencies);
        let gpu = self.driver_side.name().to_owned();
        self.programs.iter_mut().try_for_each(Program::stop)?;
        let tenants = document::tenants(&stats, before.0);
        Ok(Document { gpu, tenants, resize, tries, refusal, other_went_on: went_on, picture })
    }

    /// What both have of the GPU while the host of a virtual machine leaves it its processors, as far as it does.
    fn shares(&mut self, watch: &mut Watch, progress: &ProgressBar) -> io::Result<(Vec<f64>, Tries)> {
        Tries::until_peace(|| watch.window(WINDOW, &mut self.driver_side, &self.rig, progress))
    }

    fn swap(&mut self, watch: &mut Watch, progress: &ProgressBar) -> io::Result<Vec<f64>> {
        let names = [PROGRAMS[0].name, PROGRAMS[1].name];
        let mut latencies = Vec::new();
        for swap in 0..SWAPS {
            latencies.extend(swap_shares(&mut self.control, names, swap)?.into_iter().flatten());
            watch.look(&mut self.driver_side, &self.rig, progress)?;
        }
        Ok(latencies)
    }
}

fn step(progress: &ProgressBar, what: &'static str) {
    progress.inc(1);
    progress.set_message(what);
    if progress.is_hidden() {
        let _ = writeln!(io::stderr(), "weir demo: {what}");
    }
}
