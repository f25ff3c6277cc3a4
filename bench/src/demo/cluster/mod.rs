//! `weir-bench demo --cluster`: two real programs are profiled, placed on two nodes and scaled under requests that are replayed.
//! Nodes and GPUs are simulated, programs, node managers, controller, gateway and requests are not.

mod cast;
mod document;
mod fleet;
mod picture;
mod replay;
mod watch;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use weir_cluster::trace::requests::Trace;

use self::cast::ROLES;
use self::document::{Document, Requests, Seen};
use self::fleet::Fleet;
use self::replay::Sent;
use self::watch::Watch;
use super::Options;
use super::{progress, step};

/// Where the picture goes if nobody says.
const PICTURE: &str = "weir-demo-cluster.svg";

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// How long it is watched beyond the last answer: instances end.
const AFTER: Duration = Duration::from_secs(8);

/// Windows of the profiler, shorter than its own.
const WINDOWS: [&str; 4] = ["--settle=300ms", "--window=600ms", "--confidence=80%", "--patience=120s"];

/// Runs it and tells what happened.
pub fn run(options: &Options) -> io::Result<ExitCode> {
    let trace = replay::trace(options.trace.as_deref())?;
    let progress = progress(options.json);
    progress.println("weir demo: TWO SIMULATED GPUs: shares and times are those of a model");
    step(&progress, "starting two nodes");
    let mut fleet = Fleet::start()?;
    step(&progress, "profiling numba and tinygrad, each on a node of its own (about a minute)");
    let profiles = fleet.profile(&WINDOWS)?;
    step(&progress, "starting the controller, which places the training");
    fleet.serve(&profiles)?;
    step(&progress, "replaying requests");
    let name = trace.name.clone();
    let played = play(&fleet, trace, &progress)?;
    step(&progress, "ending the instances");
    fleet.end()?;
    let picture = options.picture.clone().unwrap_or_else(|| PathBuf::from(PICTURE));
    picture::draw(&picture, &played.sent, &played.seen.course)?;
    progress.finish_and_clear();
    let alone = profiles[1].throughput.alone;
    let document = Document {
        simulated: true,
        requests: Requests::new(name, options.trace.is_none(), &played.sent, ROLES[0].bound_ms()),
        seen: played.seen,
        steps_per_s: played.steps_per_s,
        steps_kept_percent: 100.0 * played.steps_per_s / alone,
        profiles,
        picture,
    };
    document.print(options.json);
    let broken = document.broken();
    for what in &broken {
        let _ = writeln!(io::stderr(), "FAILED: {what}");
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What came of the replay.
struct Played {
    sent: Vec<Sent>,
    seen: Seen,
    steps_per_s: f64,
}

fn play(fleet: &Fleet, trace: Trace, progress: &ProgressBar) -> io::Result<Played> {
    let mut watch = Watch::begin(fleet)?;
    let (begin, before) = (Instant::now(), fleet.steps());
    let ended = replay::replay(trace, fleet.url(ROLES[0].name), begin);
    let (mut sent, mut done_at) = (Vec::new(), None);
    while done_at.is_none_or(|done: Instant| done.elapsed() < AFTER) {
        std::thread::sleep(LOOK);
        loop {
            match ended.try_recv() {
                Ok(one) => sent.push(one),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    done_at.get_or_insert_with(Instant::now);
                    break;
                }
            }
        }
        let look = watch.look(fleet, begin.elapsed().as_secs_f64())?;
        progress.set_message(format!(
            "{:.0} s: {} requests answered, {} instances with {:.0} % of a GPU",
            look.at_s,
            sent.len(),
            look.ready,
            look.request_percent
        ));
    }
    #[allow(clippy::cast_precision_loss, reason = "some thousand steps")]
    let steps_per_s = (fleet.steps() - before) as f64 / begin.elapsed().as_secs_f64();
    watch.end();
    Ok(Played { sent, seen: Seen::new(watch), steps_per_s })
}
