//! `weir-bench register`: a thousand running processes of 64 tenants register at once, and `weir ps` shows them.

use std::io::{self, Read, Write};
use std::process::{Child, ExitCode};
use std::time::Instant;

use serde_json::json;
use weir_protocol::units::Bytes;

use crate::Options;
use crate::load;
use crate::registrant::{self, Life};
use crate::report::{Bar, Report};
use crate::rig::{Control, Rig};
use crate::sample::Spread;

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
pub fn run(options: &Options) -> Result<ExitCode, io::Error> {
    let (mut walls, mut memories, mut looks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let Round { wall_ms, rss_mib, ps_ms } = round()?;
        walls.push(wall_ms);
        memories.push(rss_mib);
        looks.extend(ps_ms);
    }
    let (wall, memory, ps) = (Spread::of(&walls), Spread::of(&memories), Spread::of(&looks));
    let mut report = Report::new("register", true);
    report.bar(Bar::at_most("register.wall_ms", wall.max, "ms", 100.0));
    report.bar(Bar::at_most("register.rss_mib", memory.max, "MiB", 16.0));
    report.bar(Bar::at_most("register.ps_ms", ps.max, "ms", 20.0));
    let shape = json!({"processes": PROCESSES, "tenants": TENANTS, "rounds": ROUNDS, "looks": LOOKS});
    report.figure("register", json!({"shape": shape, "wall_ms": wall, "rss_mib": memory, "ps_ms": ps}));
    Ok(report.finish(options.json))
}

/// What was measured in one round.
struct Round {
    wall_ms: f64, // from the moment at which all may begin until the last has its pages
    rss_mib: f64, // the manager's most memory until then
    ps_ms: Vec<f64>,
}

fn round() -> io::Result<Round> {
    let rig = Rig::simulated(&load::costs())?;
    let mut control = Control::of(&rig)?;
    let mut places = Vec::new();
    for tenant in 0..TENANTS {
        places.push(control.create_filler(&format!("tenant-{tenant}"), &["0"], MEMORY)?.dir);
    }
    let (gate, mut open) = io::pipe()?;
    let (mut heard, tell) = io::pipe()?;
    let mut processes: Vec<Child> = Vec::new();
    for place in places.iter().cycle().take(PROCESSES) {
        let ends = (gate.try_clone()?.into(), tell.try_clone()?.into());
        processes.push(registrant::start(place, Life::Sleeps, ends.0, ends.1)?);
    }
    drop((gate, tell));
    let start = Instant::now();
    open.write_all(&[0; PROCESSES])?; // one for each
    let mut done = [0; PROCESSES];
    heard.read_exact(&mut done)?;
    let wall_ms = start.elapsed().as_secs_f64() * 1e3;
    let rss_mib = rig.node_peak_bytes()? as f64 / f64::from(1 << 20);
    let ps_ms = (0..LOOKS).map(|_| Ok(rig.ps()?.as_secs_f64() * 1e3)).collect::<io::Result<_>>()?;
    drop(open);
    for mut process in processes {
        process.wait()?;
    }
    Ok(Round { wall_ms, rss_mib, ps_ms })
}
