//! `weir-bench gpu-check`: what only a GPU can answer, in stories that each print a figure and a verdict as they end. Each story runs
//! in a process of its own, with a deadline of its own: what kills one, or hangs it, harms no other. Without a GPU the same stories
//! run on the simulated one and say so: then they check the kit.

mod bubbles;
mod calibration;
mod facts;
mod finding;
mod illegal;
mod kill;
mod latency;
mod letters;
mod liveness;
mod lookup;
mod measure;
mod memory;
mod meter;
mod mps;
mod overhead;
mod pairs;
mod parity;
mod park;
mod player;
mod read;
mod resize;
mod setup;
mod share;
mod sheet;
mod side;
mod silence;
mod step;
mod story;
mod weights;

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::finding::{Finding, Told};
use self::setup::{Setup, find_torch};
use self::story::Story;
use crate::demo::has_real_gpu;
use crate::kernels;
use crate::stage::{self, THIS_PROGRAM};
pub use finding::{Document, NOT_YET, PROMISES, Promise};
pub use measure::{Options as MeasureOptions, run as measure};
pub use player::run as play;
pub use read::{bar as story_bar, documents};

/// What the check and its single stories take alike.
#[derive(clap::Args, Clone)]
struct Common {
    /// As little as shows that all of it works
    #[arg(long)]
    quick: bool,
    /// Use the simulated GPU even where there is a real one
    #[arg(long)]
    simulated: bool,
    /// Another interposer's library, to be measured beside ours; may be given more than once
    #[arg(long, value_name = "PATH")]
    interposer: Vec<PathBuf>,
}

/// Options of the check.
#[derive(clap::Args, Clone)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Where the results go: one JSON, one text, two sheets of plots and the calibration file; what lies there of the same GPU stays
    #[arg(long, value_name = "DIR", default_value = "gpu-check-results")]
    out: PathBuf,
    /// The stories of one of three calls, each of which takes less than ten minutes
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    call: Option<u8>,
    /// Seconds after which no more stories begin, and the one under way is ended
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
    /// Stories to run; all if none is named
    #[arg(value_enum)]
    stories: Vec<Story>,
}

/// Options of one story in its own process.
#[derive(clap::Args, Clone)]
pub struct StoryOptions {
    #[command(flatten)]
    common: Common,
    /// Where what is found goes.
    #[arg(long)]
    notes: PathBuf,
    /// The Python that has PyTorch.
    #[arg(long)]
    torch: Option<PathBuf>,
    /// Why there is none.
    #[arg(long, default_value = "not looked for")]
    without_torch: String,
    /// Which story.
    story: Story,
}

/// Less than this is no time to begin a story in.
const LEAST: Duration = Duration::from_secs(5);

/// PyTorch's hints on how to go faster, of which there are hundreds, say nothing about Weir.
const QUIET: [(&str, &str); 2] = [("PYTHONWARNINGS", "ignore"), ("TORCH_CPP_LOG_LEVEL", "ERROR")];

/// Tells the stories, writes the results, says 0 if nothing failed.
#[allow(clippy::print_stdout, reason = "each story's verdict, as it ends")]
pub fn run(options: &Options) -> io::Result<ExitCode> {
    let began = Instant::now();
    let simulated = options.common.simulated || !has_real_gpu();
    if simulated {
        println!("gpu-check: SIMULATED GPU: this checks the kit; what only a GPU can tell says so");
    }
    let pace = if simulated { None } else { Some(pace()?) };
    let gpu = Gpu { simulated, pace, torch: find_torch(simulated) };
    let mut document = Document::begin(&options.out, simulated, machine(simulated));
    document.commands.push(std::env::args().skip(1).collect::<Vec<_>>().join(" "));
    let wanted =
        if options.stories.is_empty() { Story::of_call(options.call) } else { options.stories.clone() };
    let mut failed = false;
    for (n, story) in wanted.iter().copied().enumerate() {
        let left = options
            .within
            .map_or(Duration::MAX, |within| Duration::from_secs(within).saturating_sub(began.elapsed()));
        let most = story.deadline(options.common.interposer.len()).min(left).as_secs();
        writeln!(
            io::stderr(),
            "gpu-check: {}, {} of {}: {most} s at most",
            story.name(),
            n + 1,
            wanted.len()
        )?;
        let told = if left < LEAST { skipped(story) } else { tell(story, options, &gpu, left)? };
        print!("{}", told.lines(simulated));
        io::stdout().flush()?;
        failed |= told.failed(simulated);
        document.note(told);
        document.write(&options.out)?; // after each: a run that is cut off leaves what it has
        let beside = measure::keep(&document, &options.out).map_err(|error| error.to_string());
        let drawn = sheet::draw(&document, &options.out).map_err(|error| error.to_string());
        if let Err(why) = beside.and(drawn) {
            writeln!(io::stderr(), "gpu-check: {why}")?; // the figures themselves are written
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn skipped(story: Story) -> Told {
    let why = "no time was left";
    let finding = Finding { line: format!("left out: {why}"), cut: Some(why.into()), ..Finding::default() };
    Told { story, took_s: 0.0, finding }
}

/// What is known of the GPU before the first story.
struct Gpu {
    simulated: bool,
    pace: Option<f64>,
    torch: Result<PathBuf, String>,
}

/// A story in a process of its own.
fn tell(story: Story, options: &Options, gpu: &Gpu, left: Duration) -> io::Result<Told> {
    let began = Instant::now();
    let directory = tempfile::tempdir()?;
    let notes = directory.path().join("finding.json");
    let mut command = Command::new(THIS_PROGRAM);
    command.args(["gpu-check-story", &story.name(), "--notes"]).arg(&notes);
    match &gpu.torch {
        Ok(python) => command.arg("--torch").arg(python),
        Err(why) => command.arg("--without-torch").arg(why),
    };
    command.args(gpu.simulated.then_some("--simulated")).args(options.common.quick.then_some("--quick"));
    for other in &options.common.interposer {
        command.arg("--interposer").arg(other);
    }
    command.envs(gpu.pace.map(|pace| (kernels::PACE, pace.to_string()))).envs(QUIET);
    command.stdin(Stdio::null()).stdout(io::stderr()).process_group(0);
    let deadline = story.deadline(options.common.interposer.len());
    let outcome = wait(command.spawn()?, deadline.min(left))?;
    let found = std::fs::read(&notes).ok().and_then(|text| serde_json::from_slice::<Finding>(&text).ok());
    let finding = match (outcome, found) {
        (Ok(()), Some(finding)) => finding,
        (Ok(()), None) => broken("it said nothing", Finding::default()),
        (Err(why), found) => broken(&why, found.unwrap_or_default()),
    };
    Ok(Told { story, took_s: began.elapsed().as_secs_f64(), finding })
}

/// What a story that did not come to its end had found until then.
fn broken(why: &str, until_then: Finding) -> Finding {
    let before =
        if until_then.line.is_empty() { String::new() } else { format!("; until then: {}", until_then.line) };
    let line = format!("could not be told: {why}{before}");
    Finding { holds: Some(false), line, cut: Some(why.into()), ..until_then }
}

/// Waits for a story, and ends it with all that it has started once its time is over.
fn wait(mut child: Child, patience: Duration) -> io::Result<Result<(), String>> {
    let (start, group) = (Instant::now(), child.id().cast_signed());
    let outcome = loop {
        if let Some(status) = child.try_wait()? {
            break if status.success() { Ok(()) } else { Err(format!("it ended with {status}")) };
        }
        if start.elapsed() > patience {
            break Err(format!("it was not done within {} s", patience.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20)); // between two looks at another process
    };
    // SAFETY: takes numbers only: the group that was made for this story.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    child.wait()?;
    Ok(outcome)
}

/// Tells one story, in this process.
pub fn run_story(options: &StoryOptions) -> io::Result<ExitCode> {
    // SAFETY: takes numbers only: this process ends with the one that watches it.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let common = &options.common;
    let setup = Setup {
        simulated: common.simulated,
        quick: common.quick,
        torch: options.torch.clone().ok_or_else(|| options.without_torch.clone()),
        others: common.interposer.clone(),
        notes: options.notes.clone(),
    };
    let finding = options.story.tell(&setup).map_err(|error| io::Error::other(error.to_string()));
    match finding {
        Ok(finding) => setup.note(&finding)?,
        Err(error) => {
            let until_then =
                std::fs::read(&setup.notes).ok().and_then(|text| serde_json::from_slice(&text).ok());
            setup.note(&broken(&error.to_string(), until_then.unwrap_or_default()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How fast this GPU works, when nothing else does.
fn pace() -> io::Result<f64> {
    let output =
        Command::new(THIS_PROGRAM).args(["check-player", "pace"]).env(kernels::PACE, "1").output()?;
    let said: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        io::Error::other(format!("the GPU cannot be used: {error}: {said}"))
    })?;
    side::number(&said, "rounds_per_us")
        .map_err(|_| io::Error::other(format!("the GPU cannot be used: {said}")))
}

/// What the figures are taken on.
fn machine(simulated: bool) -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let cpu = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    json!({
        "gpu": calibration::card(simulated).unwrap_or_else(|error| json!({"error": error.to_string()})),
        "cpu": cpu.unwrap_or("unknown"),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "build": env!("CARGO_PKG_VERSION"),
        "commit": stage::commit(),
    })
}
