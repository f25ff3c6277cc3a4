//! `weir-bench gate`: how soon a filler gives way. A latency tenant wakes again and again beside a filler that never stops.
//!
//! *Closed*: from the moment before the latency tenant's launch call to the first launch of the filler's that is held back,
//! by the board, without the manager. *Silent*: to the moment at which the filler's stream is drained.

mod player;

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::json;
use weir_nodemgr::control::schema::{ClassName, CreateTenant};
use weir_protocol::units::Bytes;

pub use self::player::{Part, run as play};
use crate::Options;
use crate::report::{Bar, Report};
use crate::rig::{Cost, Rig};
use crate::sample::Spread;
use crate::stage::THIS_PROGRAM;

/// The filler's kernels: so short that nothing queues up, and the unit of one that queues as much as it may.
const SHORT: Cost = Cost { name: "gate_short", time_us: 1.0 };
const UNIT: Cost = Cost { name: "gate_unit", time_us: 100.0 };

/// The latency tenant's kernel.
const BURST: Cost = Cost { name: "gate_burst", time_us: 3_000.0 };

/// What a filler may queue while a better may wake, and what a switch takes, in microseconds (design 5 and 9).
const CAP_US: f64 = 300.0;
const SWITCH_US: f64 = 100.0;

/// Times that the latency tenant wakes.
const WAKES: usize = 500;

/// A launch that was held back, on the monotonic clock, ns.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Hold {
    began: u64,
    ended: u64,
    silent: u64, // the stream was seen to be drained
}

/// A burst of the latency tenant.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Wake {
    launched: u64, // before the call
    ended: u64,
}

/// One filler beside the latency tenant.
struct Outcome {
    closed_us: Vec<f64>,
    silent_us: Vec<f64>,
    held_already: usize,
    never_held: usize,
}

/// Measures and prints.
pub fn run(options: &Options) -> io::Result<ExitCode> {
    let close = beside(Part::Short)?;
    let silence = beside(Part::Unit)?;
    let mut report = Report::new("gate", true);
    report.bar(Bar::at_most("gate.close_p99_us", Spread::of(&close.closed_us).p99, "us", 10.0));
    let limit = CAP_US + UNIT.time_us + SWITCH_US;
    report.bar(Bar::at_most("gate.silence_p99_us", Spread::of(&silence.silent_us).p99, "us", limit));
    for (name, outcome) in [("short", &close), ("unit_100_us", &silence)] {
        report.figure(
            name,
            json!({
                "counted": outcome.closed_us.len() + outcome.never_held,
                "closed_us": Spread::of(&outcome.closed_us),
                "silent_us": Spread::of(&outcome.silent_us),
                "held_already": outcome.held_already,
                "never_held": outcome.never_held,
            }),
        );
    }
    Ok(report.finish(options.json))
}

fn beside(filler: Part) -> io::Result<Outcome> {
    let costs = [SHORT, UNIT, BURST];
    let rig = Rig::simulated(&costs)?;
    let mut control = rig.control()?;
    let mut tenant = |name: &str, class: ClassName, request: Option<u16>| {
        let wanted = CreateTenant {
            name: name.into(),
            class,
            request_permille: request,
            memory_bytes: Some(Bytes::gib(1).0),
            ..CreateTenant::default()
        };
        control.create(wanted).map_err(|fault| io::Error::other(fault.to_string()))
    };
    let (online, offline) =
        (tenant("online", ClassName::Latency, Some(500))?, tenant("offline", ClassName::Filler, None)?);
    let start = |part: Part, place: &std::path::Path| {
        let mut command = Command::new(THIS_PROGRAM);
        command.args(["gate-player", part.name()]);
        rig.environment(&mut command);
        command.env("LD_PRELOAD", rig.preload()).env("WEIR_DIR", place);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let mut filler = start(filler, &offline.dir)?;
    let waker = start(Part::Waker, &online.dir)?;
    let wakes: Vec<Wake> = told(waker)?;
    drop(filler.stdin.take());
    let holds: Vec<Hold> = told(filler)?;
    Ok(outcome(&wakes, &holds))
}

/// What a player says in its last line.
fn told<T: for<'a> Deserialize<'a>>(mut player: Child) -> io::Result<T> {
    let stdout = player.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let line = BufReader::new(stdout).lines().last().ok_or(io::ErrorKind::UnexpectedEof)??;
    player.wait()?;
    serde_json::from_str(&line).map_err(io::Error::other)
}

/// The first tenth is not counted: prices are learnt then.
fn outcome(wakes: &[Wake], holds: &[Hold]) -> Outcome {
    let mut outcome =
        Outcome { closed_us: Vec::new(), silent_us: Vec::new(), held_already: 0, never_held: 0 };
    let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
    for wake in &wakes[wakes.len() / 10..] {
        let Some(hold) = holds.iter().find(|hold| hold.ended > wake.launched && hold.began < wake.ended)
        else {
            outcome.never_held += 1;
            continue;
        };
        if hold.began < wake.launched {
            outcome.held_already += 1; // by its in-flight cap
        }
        outcome.closed_us.push(us(wake.launched, hold.began));
        outcome.silent_us.push(us(wake.launched, hold.silent));
    }
    outcome
}
