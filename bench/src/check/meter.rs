//! Meter truth: what programs are charged against what events say, for kernels of 2 us to 10 ms on one to all SMs, and graphs. Alone
//! and with more work queued all the time, so that two events around it all measure nothing else. Then two of them beside each other:
//! each is charged against what its work takes alone, and by how much that took longer stands beside it.

use std::io;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::Bytes;

use super::finding::{Figure, Finding};
use super::player::work::Work;
use super::setup::{Setup, Wanted, stats_of, tenant, wait};
use super::share::rates;
use super::side::{Player, Side, Way, number};
use crate::rig::{Control, Rig};
use crate::sample::most;

/// Shapes: microseconds and blocks, graphs, and mixes.
const SHAPES: [&str; 20] = [
    "2:1",
    "2:132",
    "5:1",
    "5:20",
    "5:132",
    "10:66",
    "20:132",
    "50:16",
    "100:1",
    "100:132",
    "100:528",
    "300:10",
    "300:132",
    "1000:66",
    "1000:132",
    "5000:132",
    "10000:132",
    "graph:5:100",
    "graph:100:20",
    "mix",
];
const QUICK: [&str; 3] = ["100:132", "5:20", "graph:100:20"];

/// Pairs beside each other.
const PAIRS: [(&str, &str); 4] =
    [("mix", "mix"), ("100:132", "1000:132"), ("graph:100:20", "5:132"), ("decode", "train")];
const QUICK_PAIRS: [(&str, &str); 1] = [("100:132", "1000:132")];

/// Work of one window, in microseconds.
const WINDOW_US: (f64, f64) = (400_000.0, 250_000.0);

/// One shape alone.
#[derive(Serialize)]
struct Alone {
    shape: &'static str,
    event_ms: f64,
    charged_ms: f64,
    error_percent: f64,
    unit_us: f64,
    measured_percent: f64,
    context_bytes: u64,
}

/// One of a pair.
#[derive(Serialize)]
struct Beside {
    shape: &'static str,
    beside: &'static str,
    error_percent: f64,
    /// Times as long as alone, its neighbour's turns included.
    slowdown: f64,
}

/// Measures all of it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for (number, shape) in setup.of(&SHAPES[..], &QUICK[..]).iter().enumerate() {
        alone.push(measure(setup, &rig, &mut control, &format!("shape{number}"), shape)?);
        setup.note(&found(&alone, &beside))?;
    }
    for (number, pair) in setup.of(&PAIRS[..], &QUICK_PAIRS[..]).iter().enumerate() {
        beside.extend(together(setup, &mut control, &rig, number, *pair)?);
        setup.note(&found(&alone, &beside))?;
    }
    Ok(found(&alone, &beside))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of units")]
fn units(setup: &Setup, shape: &str) -> u64 {
    let unit_us = shape.parse::<Work>().map_or(1e6, |work| work.unit_us());
    // Short kernels come no faster than they are launched.
    (setup.of(WINDOW_US.0, WINDOW_US.1) / unit_us.max(8.0)).ceil().max(3.0) as u64
}

fn measure(
    setup: &Setup,
    rig: &Rig,
    control: &mut Control,
    name: &str,
    shape: &'static str,
) -> io::Result<Alone> {
    let wanted = Wanted { memory: Bytes::gib(1), ..Wanted::class(name, ClassName::Filler, None) };
    let place = tenant(control, wanted)?;
    let mut player = Player::start(rig, &Side::Twin, shape, Way::Preload(&place))?;
    let count = units(setup, shape);
    let span = format!("span {count}");
    for _ in 0..setup.of(2, 1) {
        player.ask(&span, Duration::from_secs(2))?; // prices are learnt
    }
    let before = charged(control, name)?;
    let mut event_ms = 0.0;
    for _ in 0..setup.of(3, 2) {
        event_ms += number(&player.ask(&span, Duration::from_secs(2))?, "gpu_ms")?;
    }
    let after = charged(control, name)?;
    let charged_ms = (after.0 - before.0) as f64 / 1e6;
    Ok(Alone {
        shape,
        event_ms,
        charged_ms,
        error_percent: 100.0 * (charged_ms / event_ms - 1.0),
        unit_us: 1e3 * event_ms / (count * setup.of(3, 2)) as f64,
        measured_percent: 100.0 * (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64,
        context_bytes: after.2,
    })
}

/// Charged, measured, and memory held, once what was done has been told.
fn charged(control: &mut Control, name: &str) -> io::Result<(u64, u64, u64)> {
    wait(Duration::from_millis(50));
    let stats = stats_of(control, name)?;
    let gpu = stats.gpus.first().ok_or_else(|| io::Error::other("the tenant has no GPU"))?;
    Ok((gpu.total.charged_ns, gpu.total.measured_ns, gpu.memory_held_bytes))
}

fn together(
    setup: &Setup,
    control: &mut Control,
    rig: &Rig,
    pair: usize,
    (one, other): (&'static str, &'static str),
) -> io::Result<Vec<Beside>> {
    let names = [format!("pair{pair}a"), format!("pair{pair}b")];
    let mut players = Vec::new();
    for (name, shape) in names.iter().zip([one, other]) {
        let place = tenant(control, Wanted { memory: Bytes::gib(1), limit: 100, ..Wanted::share(name, 10) })?;
        players.push(Player::start(rig, &Side::Twin, shape, Way::Preload(&place))?);
    }
    let mut alone_per_s = Vec::new();
    for player in &mut players {
        player.go("")?;
        wait(setup.time(1, 300));
        alone_per_s.push(rates(std::slice::from_mut(player), 1, setup.time(1, 500))?[0][0]);
        player.stop()?;
    }
    players.iter_mut().try_for_each(|player| player.go(""))?;
    wait(setup.time(1, 500));
    let total = |control: &mut Control| -> io::Result<Vec<u64>> {
        names
            .iter()
            .map(|name| Ok(stats_of(control, name)?.gpus.first().map_or(0, |gpu| gpu.total.charged_ns)))
            .collect()
    };
    let before = (total(control)?, players.iter_mut().map(Player::look).collect::<io::Result<Vec<_>>>()?);
    wait(setup.time(3, 800));
    let after = (total(control)?, players.iter_mut().map(Player::look).collect::<io::Result<Vec<_>>>()?);
    let rows = [(one, other), (other, one)].into_iter().enumerate().map(|(n, (shape, beside))| {
        let done = after.1[n].done - before.1[n].done;
        let truth_ns = 1e9 * done / alone_per_s[n];
        let charged_ns = (after.0[n] - before.0[n]) as f64;
        let slowdown = alone_per_s[n] / after.1[n].rate_since(before.1[n]);
        Beside { shape, beside, error_percent: 100.0 * (charged_ns / truth_ns - 1.0), slowdown }
    });
    Ok(rows.collect())
}

fn found(alone: &[Alone], beside: &[Beside]) -> Finding {
    let worst_alone = alone.iter().max_by(|a, b| a.error_percent.abs().total_cmp(&b.error_percent.abs()));
    let worst_beside = beside.iter().max_by(|a, b| a.error_percent.abs().total_cmp(&b.error_percent.abs()));
    let mut line = worst_alone.map_or_else(String::new, |worst| {
        format!("{} shapes alone, worst {} by {:+.2} %", alone.len(), worst.shape, worst.error_percent)
    });
    line += &worst_beside.map_or_else(String::new, |worst| {
        let Beside { shape, beside: other, error_percent, .. } = worst;
        format!("; {} beside others, worst {shape} beside {other} by {error_percent:+.1} %", beside.len())
    });
    let error = most(alone.iter().map(|row| row.error_percent.abs()));
    let near = alone.iter().all(|row| row.charged_ms > 0.0 && row.error_percent.abs() < 25.0);
    let got_on = beside.iter().all(|row| row.slowdown.is_finite() && row.error_percent.is_finite());
    Finding {
        holds: Some(near && got_on && !alone.is_empty()),
        line,
        bars: vec![Figure::of("gpu.meter_error_percent", error)],
        figures: json!({"alone": alone, "beside": beside}),
        ..Finding::default()
    }
}
