//! `weir-bench register`: a thousand running processes of 64 tenants register at once, and `weir ps` shows them. Beside it,
//! in the same run: the same processes at a door behind which nobody keeps any books, the machine's part of it ([`bare`]).

mod bare;

use std::io::{self, PipeWriter, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ExitCode};
use std::time::Instant;

use serde_json::json;
use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::Bytes;

use crate::QuickOptions;
use crate::load;
use crate::registrant::{self, Life};
use crate::report::{Bar, Report};
use crate::rig::{Control, Rig};
use crate::sample::Spread;
use bare::Bare;

/// Processes.
const PROCESSES: usize = 1_000;

/// Tenants.
const TENANTS: usize = 64;

/// What each tenant may hold.
const MEMORY: Bytes = Bytes(256 << 20);

/// Times that all of them register, each time with a manager that has just started.
const ROUNDS: usize = 5;

/// Times that `weir ps` is run in each round.
const LOOKS: usize = 5;

/// Measures and prints.
pub fn run(options: &QuickOptions) -> Result<ExitCode, io::Error> {
    let mut rounds = Vec::new();
    let count = options.of(ROUNDS, 1);
    for _ in 0..count {
        rounds.push(round()?);
    }
    let spread =
        |of: fn(&Round) -> &[f64]| Spread::of(&rounds.iter().flat_map(of).copied().collect::<Vec<_>>());
    let (wall, memory, ps) = (spread(|r| &r.wall_ms), spread(|r| &r.rss_mib), spread(|r| &r.ps_ms));
    let (bare, own, gone) = (spread(|r| &r.bare_wall_ms), spread(|r| &r.node_cpu_ms), spread(|r| &r.gone_ms));
    let mut report = Report::new("register", true);
    report.bar(Bar::at_most("register.wall_ms", wall.max, "ms", 100.0));
    report.bar(Bar::at_most("register.rss_mib", memory.max, "MiB", 16.0));
    report.bar(Bar::at_most("register.ps_ms", ps.max, "ms", 20.0));
    let shape = json!({"processes": PROCESSES, "tenants": TENANTS, "rounds": count, "looks": LOOKS});
    let figures = json!({"shape": shape, "wall_ms": wall, "rss_mib": memory, "ps_ms": ps});
    report.figure("register", figures);
    report.figure("bare_wall_ms", bare);
    report.figure("node_cpu_ms", own);
    report.figure("gone_ms", gone);
    Ok(report.finish(options.common.json))
}

/// What was measured in one round.
struct Round {
    wall_ms: [f64; 1],      // from the moment at which all may begin until the last has its pages
    bare_wall_ms: [f64; 1], // the same where nobody keeps books
    node_cpu_ms: [f64; 1],  // what the manager itself took of the processors meanwhile
    rss_mib: [f64; 1],      // its most memory until then
    ps_ms: Vec<f64>,
    gone_ms: [f64; 1], // from the moment at which all end until the manager holds nothing of any of them
}

fn round() -> io::Result<Round> {
    let rig = Rig::simulated(&load::costs())?;
    let mut control = Control::of(&rig)?;
    let mut places = Vec::new();
    for tenant in 0..TENANTS {
        let name = format!("tenant-{tenant}");
        places.push(control.create_on(&["0"], &name, ClassName::Filler, None, MEMORY)?.dir);
    }
    let crowd = Crowd::wait_at(&places)?;
    let before = rig.node_cpu()?;
    let (wall_ms, crowd) = crowd.register()?;
    let node_cpu_ms = (rig.node_cpu()?.saturating_sub(before)).as_secs_f64() * 1e3;
    let rss_mib = rig.node_peak_bytes()? as f64 / f64::from(1 << 20);
    let ps_ms = (0..LOOKS).map(|_| Ok(rig.ps()?.as_secs_f64() * 1e3)).collect::<io::Result<_>>()?;
    let start = Instant::now();
    crowd.end()?;
    rig.wait_for("the end of all", || {
        let stats = control.stats()?;
        Ok(stats.tenants.iter().all(|tenant| tenant.pids.is_empty()).then_some(()))
    })?;
    let gone_ms = start.elapsed().as_secs_f64() * 1e3;
    drop(rig);
    let bare = Bare::start(TENANTS, PROCESSES)?;
    let (bare_wall_ms, crowd) = Crowd::wait_at(&bare.places())?.register()?;
    crowd.end()?;
    bare.end()?;
    Ok(Round {
        wall_ms: [wall_ms],
        bare_wall_ms: [bare_wall_ms],
        node_cpu_ms: [node_cpu_ms],
        rss_mib: [rss_mib],
        ps_ms,
        gone_ms: [gone_ms],
    })
}

/// The processes.
struct Crowd {
    processes: Vec<Child>,
    gate: PipeWriter, // with its end they end
    heard: io::PipeReader,
}

impl Crowd {
    /// They are there, and wait to be told to register at `places`, so many of them at each.
    fn wait_at(places: &[PathBuf]) -> io::Result<Self> {
        let (gate, open) = io::pipe()?;
        let (mut heard, tell) = io::pipe()?;
        let mut processes = Vec::new();
        for place in places.iter().cycle().take(PROCESSES) {
            let ends = (gate.try_clone()?.into(), tell.try_clone()?.into());
            processes.push(registrant::start(place, Life::Sleeps, ends.0, ends.1)?);
        }
        heard.read_exact(&mut [0; PROCESSES])?; // all are there
        Ok(Self { processes, gate: open, heard })
    }

    /// How long it takes until the last one has its pages, in milliseconds.
    fn register(mut self) -> io::Result<(f64, Self)> {
        let start = Instant::now();
        self.gate.write_all(&[0; PROCESSES])?; // one for each
        self.heard.read_exact(&mut [0; PROCESSES])?;
        Ok((start.elapsed().as_secs_f64() * 1e3, self))
    }

    fn end(self) -> io::Result<()> {
        drop(self.gate);
        for mut process in self.processes {
            process.wait()?;
        }
        Ok(())
    }
}
