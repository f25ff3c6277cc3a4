//! `weir-bench restart`: the node manager is killed under 16 busy clients and starts again: how long until it has all of
//! their pages back and ticks, and whether any of their calls failed.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_nodemgr::control::{Stats, TenantStats};
use weir_protocol::units::Bytes;

use crate::Options;
use crate::load::{self, Load};
use crate::report::{Bar, Report};
use crate::rig::{Control, DEADLINE, Rig, true_use};
use crate::sample::Spread;

/// Clients, each a tenant.
const CLIENTS: usize = 16;

/// What each requests, in percent.
const REQUEST: u16 = 6;

/// Deaths of the manager.
const DEATHS: usize = 100;

/// Between two looks whether the new manager answers.
const LOOK: Duration = Duration::from_micros(200);

/// Measures and prints.
pub fn run(options: &Options) -> Result<ExitCode, io::Error> {
    let mut rig = Rig::simulated(&load::costs())?;
    let mut control = Control::of(&rig)?;
    let mut loads = Vec::new();
    for client in 0..CLIENTS {
        let created = control.create(&format!("client-{client}"), REQUEST, Bytes::gib(1))?;
        loads.push(load::start(&rig, &created.dir, Load::Medium)?);
    }
    rig.wait_for("the tenants", || {
        let books = rig.books()?;
        let busy = loads.iter().all(|load| true_use(&books, load.id().cast_signed()) > 1_000_000);
        Ok(busy.then_some(()))
    })?;
    let mut took_ms = Vec::new();
    for _ in 0..DEATHS {
        took_ms.push(death(&mut rig)?.as_secs_f64() * 1e3);
    }
    let mut failed = 0;
    for mut load in loads {
        drop(load.stdin.take()); // it ends then, with failure if a call had failed
        failed += u32::from(!load.wait()?.success());
    }
    let mut report = Report::new("restart", true);
    let spread = Spread::of(&took_ms);
    report.bar(Bar::at_most("restart.recover_ms", spread.max, "ms", 50.0));
    report.bar(Bar::at_most("restart.failed_calls", f64::from(failed), "clients", 0.0));
    report.figure("recover_ms", json!({"clients": CLIENTS, "deaths": DEATHS, "spread": spread}));
    Ok(report.finish(options.json))
}

/// One death: from the start of the next manager's process until all tenants are there, each with its process, and the
/// epoch on each page has moved.
fn death(rig: &mut Rig) -> io::Result<Duration> {
    let before = Control::of(rig)?.stats()?;
    rig.kill_node()?;
    let start = Instant::now();
    rig.start_node()?;
    while start.elapsed() < DEADLINE {
        let stats = Control::of(rig).and_then(|mut control| control.stats());
        if stats.is_ok_and(|stats| is_whole(&before, &stats)) {
            return Ok(start.elapsed());
        }
        std::thread::sleep(LOOK); // between two looks at another process
    }
    Err(io::Error::other("the tenants were not taken over"))
}

fn is_whole(before: &Stats, after: &Stats) -> bool {
    let same = |(before, after): (&TenantStats, &TenantStats)| {
        let ticks = before.gpus.iter().zip(&after.gpus).all(|(before, after)| after.epoch > before.epoch);
        (&before.name, &before.pids, before.budget) == (&after.name, &after.pids, after.budget) && ticks
    };
    before.tenants.len() == CLIENTS
        && after.tenants.len() == CLIENTS
        && before.tenants.iter().zip(&after.tenants).all(same)
}
