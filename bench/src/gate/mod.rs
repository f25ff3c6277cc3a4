//! `weir-bench gate`: how soon a filler gives way. A latency tenant wakes again and again beside a filler that never stops.
//!
//! All times begin right before the latency tenant's first launch call.
//!
//! * *Closed by the board*: until the call of the last launch of the filler's that still passed; nothing if that was under
//!   way already. When it had returned stands beside it: that is the driver's time. The filler is a real process under
//!   `libweir.so`, launches every few microseconds, and looks at the board itself. How long a bare word takes on this machine,
//!   stored after the same sleeps, is measured in the same run.
//! * *Closed by the bell*: until the filler's grant page says so. Here the filler is a process that maps its pages and looks
//!   at nothing else, as one that cannot see the board: the tenant rings, the manager closes. How long a byte takes from
//!   process to process on this machine is measured in the same run, between the wakes.
//! * *Silent*: until the GPU has done the last of the filler's work, by an event behind each of its launches. What is queued
//!   when a better begins is one cap and one unit at most. It runs to its end if the filler's slice does; then the better
//!   follows with a switch. If the slice ends first, the driver gives the better a slice of its own and comes back to the
//!   rest. Only a better that waited until the filler is drained would prevent that, and begin later (`docs/time.md`, silence): so
//!   this case has a limit of its own. Which of the two it was shows in the burst: in the second some of it ran before the filler
//!   fell silent.
//!
//! For the bars one core is free: the filler has one of its own, and all others, the simulated GPU's own process among
//! them, have the rest. The saturated case, with a busy loop on each core and everybody anywhere, stands in the figures.

mod bare;
mod bell;
mod cores;
mod outcome;
mod player;

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use serde::{Deserialize, Serialize};
use weir_nodemgr::control::Client;
use weir_nodemgr::control::schema::{ClassName, CreateTenant};
use weir_protocol::units::Bytes;
use weir_simgpu_link::config;

pub use self::cores::Cores;
pub use self::player::{Part, run as play};
use crate::Options;
use crate::clock::now;
use crate::report::{Bar, Report};
use crate::rig::{Cost, Rig};
use crate::sample::Spread;
use crate::stage::THIS_PROGRAM;
use crate::stolen::Tries;

/// The filler's kernels: so short that nothing queues up, and the unit of one that queues as much as it may.
const SHORT: Cost = Cost { name: "gate_short", time_us: 1.0 };
const UNIT: Cost = Cost { name: "gate_unit", time_us: 100.0 };

/// The latency tenant's kernel: longer than a slice.
const BURST: Cost = Cost { name: "gate_burst", time_us: 3_000.0 };

/// What a filler may queue while a better may wake, in microseconds.
const CAP_US: f64 = weir_policy::SHORT_CAP.0 as f64 / 1e3;
/// The driver's slice, and a switch: after a drain, and in the middle of kernels that fill the card, in microseconds.
const SLICE_US: f64 = config::SLICE_US as f64;
const SWITCH_US: f64 = config::SWITCH_US as f64;
const CUT_US: f64 = (config::SWITCH_US + config::CUT_US[1]) as f64;

/// What the way by the board may take, in microseconds (design 10), where a word that is stored is seen at once.
const BOARD_US: f64 = 10.0;

/// What the way of the bell may take beyond the wake of a process by a byte, in microseconds: design 10 allows 100 where such
/// a wake took 20 (design 5).
const BELL_US: f64 = 80.0;

/// A launch call that took so long was held back by the gate, and not by the system.
const HELD_NS: u64 = 1_000_000;

/// Times that the latency tenant wakes.
const WAKES: usize = 500;

/// A launch that was held back, on the monotonic clock, ns.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Hold {
    called: u64, // the launch before it
    passed: u64, // its return
    ended: u64,
    silent: u64, // the GPU was done with the launch before it
}

/// What the filler saw: launches that were held back, and when it did not launch at all.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Filled {
    holds: Vec<Hold>,
    away: Vec<(u64, u64)>, // from the return of a launch to the next call: it waited for its work, or for a processor
}

/// A burst of the latency tenant.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Wake {
    launched: u64, // before the call
    ended: u64,
}

/// A gate that was open for a while, ns.
#[derive(Clone, Copy, Debug)]
struct Closing {
    open: u64, // first seen
    closed: u64,
}

/// Measures and prints.
pub fn run(options: &Options) -> io::Result<ExitCode> {
    let mut report = Report::new("gate", true);
    let (free, tries) = Tries::until_peace(|| Case::all(Cores::Free))?;
    report.bar(Bar::at_most("gate.close_p99_us", Spread::of(&free.board.closed_us).p99, "us", BOARD_US));
    let bell = Spread::of(&free.bell.closed_us).p99;
    report.bar(Bar::at_most("gate.close_by_bell_p99_us", bell, "us", 100.0));
    let queued = CAP_US + UNIT.time_us;
    let silent = |silent_us: &[f64]| Spread::of(silent_us).p99;
    let whole = silent(&free.silence.whole_us);
    report.bar(Bar::at_most("gate.silence_p99_us", whole, "us", queued + SWITCH_US));
    let cut = silent(&free.silence.cut_us);
    let limit = queued + SLICE_US + CUT_US + SWITCH_US;
    report.bar(Bar::at_most("gate.silence_cut_p99_us", cut, "us", limit));
    report.figure("one_core_free", free.figures());
    report.figure("one_core_free_tries", tries);
    report.figure("saturated", Case::all(Cores::Saturated)?.figures());
    Ok(report.finish(options.json))
}

/// Everything, on processors that are shared out in one way.
struct Case {
    board: outcome::Closed,
    bare_board: bare::Words,
    bell: outcome::Closed,
    bare_us: Vec<f64>,
    silence: outcome::Silence,
}

impl Case {
    fn all(cores: Cores) -> io::Result<Self> {
        let _busy = cores.share_out()?;
        let (wakes, filled) = beside(Part::Short, cores)?;
        let board = outcome::by_board(&wakes, &filled);
        let bare_board = bare::words(cores)?;
        let (wakes, filled) = beside(Part::Unit, cores)?;
        let silence = outcome::silence(&wakes, &filled.holds);
        let rung = bell::beside(cores)?;
        let bell = outcome::by_bell(&rung.wakes, &rung.closings, &rung.away);
        let bare_us = rung.bare.iter().map(|ns| *ns as f64 / 1e3).collect();
        Ok(Self { board, bare_board, bell, bare_us, silence })
    }

    fn figures(&self) -> serde_json::Value {
        serde_json::json!({
            "short": self.board.figures(),
            "short_returned_us": Spread::of(&self.board.returned_us),
            "bare_board": self.bare_board.figures(BOARD_US),
            "bell": self.bell.figures(),
            "bare_bell": {
                "counted": self.bare_us.len(),
                "heard_us": Spread::of(&self.bare_us),
                "limit_by_this_us": BELL_US + Spread::of(&self.bare_us).p99,
            },
            "unit_100_us": self.silence.figures(),
        })
    }
}

/// The latency tenant's wakes and what the filler saw.
fn beside(filler: Part, cores: Cores) -> io::Result<(Vec<Wake>, Filled)> {
    let scene = Scene::new()?;
    let mut filler = scene.start(filler, &scene.offline, cores)?;
    let wakes = told(scene.start(Part::Waker, &scene.online, cores)?)?;
    drop(filler.stdin.take());
    Ok((wakes, told(filler)?))
}

/// A node with the latency tenant and the filler.
struct Scene {
    rig: Rig,
    _control: Client, // keeps the tenants
    online: PathBuf,
    offline: PathBuf,
}

impl Scene {
    fn new() -> io::Result<Self> {
        let rig = Rig::gated_on_the_host(&[SHORT, UNIT, BURST])?;
        let mut control = rig.control()?;
        let mut tenant = |name: &str, class: ClassName, request: Option<u16>| {
            let wanted = CreateTenant {
                name: name.into(),
                class,
                request_permille: request,
                memory_bytes: Some(Bytes::gib(1).0),
                ..CreateTenant::default()
            };
            let created = control.create(wanted).map_err(|fault| io::Error::other(fault.to_string()));
            created.map(|created| created.dir)
        };
        let online = tenant("online", ClassName::Latency, Some(500))?;
        let offline = tenant("offline", ClassName::Filler, None)?;
        Ok(Self { rig, _control: control, online, offline })
    }

    fn start(&self, part: Part, place: &Path, cores: Cores) -> io::Result<Child> {
        self.start_with(part, place, cores, Stdio::piped())
    }

    fn start_with(&self, part: Part, place: &Path, cores: Cores, stdin: Stdio) -> io::Result<Child> {
        let mut command = Command::new(THIS_PROGRAM);
        command.args(["gate-player", part.name()]);
        if let (true, Some(core)) = (part.fills(), cores.of_filler()) {
            command.args(["--core", &core.to_string()]);
        }
        self.rig.environment(&mut command);
        command.env("LD_PRELOAD", self.rig.preload()).env("WEIR_DIR", place);
        command.stdin(stdin).stdout(Stdio::piped()).spawn()
    }
}

/// What a player says in its last line.
fn told<T: for<'a> Deserialize<'a>>(mut player: Child) -> io::Result<T> {
    let stdout = player.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let line = BufReader::new(stdout).lines().last().ok_or(io::ErrorKind::UnexpectedEof)??;
    player.wait()?;
    serde_json::from_str(&line).map_err(io::Error::other)
}
