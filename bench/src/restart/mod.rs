//! `weir-bench restart`: the node manager is killed under 16 busy clients and starts again, at each step of making, registering,
//! resizing, burying and ending, and at a moment of no step: how long until it has all of their pages back and ticks, and
//! whether any of their calls failed.

mod newcomer;

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};

use serde_json::json;
use weir_nodemgr::control::{Stats, TenantStats};
use weir_nodemgr::failpoint::PLACES;
use weir_protocol::units::Bytes;

use crate::QuickOptions;
use crate::load::{self, Load};
use crate::report::{Bar, Report};
use crate::rig::{Control, DEADLINE, Rig, true_use};
use crate::sample::Spread;
use newcomer::Newcomer;

/// Clients, each a tenant.
const CLIENTS: usize = 16;

/// What they are called, before a number.
const CLIENT: &str = "client-";

/// What each requests, in percent.
const REQUEST: u16 = 6;

/// Deaths at each step; each is followed by one at a moment of no step.
const ROUNDS: usize = 12;

/// A moment of no step.
const NO_STEP: &str = "none";

/// Between two looks whether the new manager answers.
const LOOK: Duration = Duration::from_micros(200);

/// Measures and prints.
pub fn run(options: &QuickOptions) -> Result<ExitCode, io::Error> {
    let mut rig = Rig::simulated(&load::costs())?;
    let loads = clients(&rig)?;
    let mut took_ms: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut failed = 0;
    let rounds = options.of(ROUNDS, 1);
    for _ in 0..rounds {
        for place in PLACES {
            let deaths = die_at(&mut rig, place)?;
            took_ms.entry(NO_STEP).or_default().push(deaths.before.as_secs_f64() * 1e3);
            took_ms.entry(place).or_default().push(deaths.at.as_secs_f64() * 1e3);
            failed += u32::from(!deaths.went_well);
        }
    }
    for mut load in loads {
        drop(load.stdin.take()); // it ends then, with failure if a call had failed
        failed += u32::from(!load.wait()?.success());
    }
    let all: Vec<f64> = took_ms.values().flatten().copied().collect();
    let steps: BTreeMap<_, _> = took_ms.iter().map(|(place, took)| (place, Spread::of(took))).collect();
    let spread = Spread::of(&all);
    let mut report = Report::new("restart", true);
    report.bar(Bar::at_most("restart.recover_ms", spread.max, "ms", 50.0));
    report.bar(Bar::at_most("restart.failed_calls", f64::from(failed), "clients", 0.0));
    report.figure("recover_ms", json!({"clients": CLIENTS, "deaths": all.len(), "spread": spread}));
    report.figure("recover_ms_by_step", json!({"deaths_at_each": rounds, "spread": steps}));
    Ok(report.finish(options.common.json))
}

/// Clients that always have work.
fn clients(rig: &Rig) -> io::Result<Vec<Child>> {
    let mut control = Control::of(rig)?;
    let mut loads = Vec::new();
    for client in 0..CLIENTS {
        let created = control.create(&format!("{CLIENT}{client}"), REQUEST, Bytes::gib(1))?;
        loads.push(load::start(rig, &created.dir, Load::Medium)?);
    }
    rig.wait_for("the tenants", || {
        let books = rig.books()?;
        let busy = loads.iter().all(|load| true_use(&books, load.id().cast_signed()) > 1_000_000);
        Ok(busy.then_some(()))
    })?;
    Ok(loads)
}

/// Two deaths: from the start of the next manager's process until all clients are there as they were, each with its process and
/// what it holds, and the epoch on each page has moved.
struct Deaths {
    before: Duration, // at a moment of no step
    at: Duration,     // at a step
    went_well: bool,  // nothing failed that a newcomer did, but what the dead manager had been asked itself
}

/// Kills the manager; the next one dies at `place`.
fn die_at(rig: &mut Rig, place: &'static str) -> io::Result<Deaths> {
    let newcomer = Newcomer::before(rig, place)?;
    let whole = Control::of(rig)?.stats()?;
    rig.kill_node()?;
    let before = recover(rig, &whole, |rig| rig.start_node_to_die_at(place))?;
    let whole = Control::of(rig)?.stats()?;
    let newcomer = newcomer.bring_to(rig, place)?;
    rig.wait_for_death()?;
    let at = recover(rig, &whole, Rig::start_node)?;
    let went_well = newcomer.end(rig, place)?;
    Ok(Deaths { before, at, went_well })
}

fn recover(
    rig: &mut Rig,
    whole: &Stats,
    start_node: impl FnOnce(&mut Rig) -> io::Result<()>,
) -> io::Result<Duration> {
    let start = Instant::now();
    start_node(rig)?;
    while start.elapsed() < DEADLINE {
        let stats = Control::of(rig).and_then(|mut control| control.stats());
        if stats.is_ok_and(|stats| is_whole(whole, &stats)) {
            return Ok(start.elapsed());
        }
        std::thread::sleep(LOOK); // between two looks at another process
    }
    Err(io::Error::other("the tenants were not taken over"))
}

fn is_whole(before: &Stats, after: &Stats) -> bool {
    let clients = |stats: &Stats| {
        let is_client = |tenant: &&TenantStats| tenant.name.starts_with(CLIENT);
        stats.tenants.iter().filter(is_client).cloned().collect::<Vec<_>>()
    };
    let same = |(before, after): (&TenantStats, &TenantStats)| {
        let ticks = before.gpus.iter().zip(&after.gpus).all(|(before, after)| {
            after.epoch > before.epoch && after.memory_held_bytes == before.memory_held_bytes
        });
        (&before.name, &before.pids, before.budget) == (&after.name, &after.pids, after.budget) && ticks
    };
    let (before, after) = (clients(before), clients(after));
    before.len() == CLIENTS && after.len() == CLIENTS && before.iter().zip(&after).all(same)
}
