//! `weir-bench manager`: what the node manager itself takes of a processor, with a tick of a millisecond; beside it what a
//! thread takes that does nothing but wake up as often, which is the machine's part of it.
//!
//! Where the policy rests, the loop comes less often than a tick. Where it is asked in each of them, waking up alone may take more
//! than the limit: there the limit is computed, what the thread takes that only wakes up and as much again as the whole may take.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use serde_json::json;
use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::Bytes;

use crate::QuickOptions;
use crate::registrant::{self, Life};
use crate::report::{Bar, Report};
use crate::rig::{Control, Rig};
use crate::sample::Spread;

/// Tenants, each with one process on all GPUs.
const TENANTS: usize = 64;

/// GPUs.
const GPUS: u32 = 8;

/// Tenants that are at work all the time; the others have been asleep for a while.
const AWAKE: usize = 8;

/// What each tenant may hold on each GPU.
const MEMORY: Bytes = Bytes(256 << 20);

/// Length of a tick.
const TICK_NS: i64 = 1_000_000;

/// Until the sleepers are asleep.
const SETTLING: Duration = Duration::from_secs(2);

/// Over which the manager's time is taken, and how many of them.
const WINDOW: Duration = Duration::from_secs(5);
const WINDOWS: usize = 5;
const QUICK_WINDOWS: usize = 1;

/// What it may take, in percent of a processor.
const LIMIT: f64 = 2.0;

/// What each requests where they are primaries, in percent.
const REQUEST: u16 = 1;

/// Measures and prints.
pub fn run(options: &QuickOptions) -> Result<ExitCode, io::Error> {
    let windows = options.of(WINDOWS, QUICK_WINDOWS);
    let fillers = taken(windows, |_| ClassName::Filler)?;
    let primaries = taken(windows, |_| ClassName::Primary)?;
    let mixed =
        taken(windows, |tenant| if tenant % 2 == 0 { ClassName::Primary } else { ClassName::Filler })?;
    let bare = bare_ticks()?;
    let mut report = Report::new("manager", true);
    let rests = fillers.percent.max.max(primaries.percent.max);
    report.bar(Bar::at_most("manager.core_percent", rests, "percent", LIMIT));
    report.bar(Bar::at_most("manager.core_percent_asked", mixed.percent.max, "percent", bare + LIMIT));
    let shape = json!({"tenants": TENANTS, "gpus": GPUS, "awake": AWAKE, "window_s": WINDOW.as_secs()});
    report.figure(
        "core_percent",
        json!({"shape": shape, "windows": windows, "ticks": fillers.ticks, "spread": fillers.percent}),
    );
    report.figure("core_percent_of_primaries", primaries.percent);
    report.figure("core_percent_of_both", json!({"ticks": mixed.ticks, "spread": mixed.percent})); // whose policy is asked in each tick
    report.figure("bare_ticks_percent", json!(bare));
    Ok(report.finish(options.common.json))
}

/// What the manager takes.
struct Taken {
    percent: Spread, // of a processor, over the windows
    ticks: u64,      // until their end
}

/// With tenants of these classes.
fn taken(windows: usize, class: impl Fn(usize) -> ClassName) -> io::Result<Taken> {
    let rig = Rig::of_gpus(GPUS)?;
    let mut control = Control::of(&rig)?;
    let gpus: Vec<String> = (0..GPUS).map(|gpu| gpu.to_string()).collect();
    let gpus: Vec<&str> = gpus.iter().map(String::as_str).collect();
    let (gate, mut open) = io::pipe()?;
    let (mut heard, tell) = io::pipe()?;
    let mut processes = Vec::new();
    for tenant in 0..TENANTS {
        let class = class(tenant);
        let request = (class != ClassName::Filler).then_some(REQUEST);
        let place = control.create_on(&gpus, &format!("tenant-{tenant}"), class, request, MEMORY)?.dir;
        let life = if tenant < AWAKE { Life::Works } else { Life::Sleeps };
        processes.push(registrant::start(&place, life, gate.try_clone()?.into(), tell.try_clone()?.into())?);
    }
    drop((gate, tell));
    open.write_all(&[0; TENANTS])?;
    heard.read_exact(&mut [0; 2 * TENANTS])?; // that they are there, and that they are registered
    std::thread::sleep(SETTLING); // real processes fall asleep in real time
    let mut percent = Vec::new();
    for _ in 0..windows {
        percent.push(window(&rig)?);
    }
    let ticks = control.stats()?.node.epoch;
    drop(open);
    for mut process in processes {
        process.wait()?;
    }
    Ok(Taken { percent: Spread::of(&percent), ticks })
}

/// The manager's part of one processor during a window.
fn window(rig: &Rig) -> io::Result<f64> {
    let (before, start) = (rig.node_cpu()?, Instant::now());
    std::thread::sleep(WINDOW); // the manager's own use in real time is the question
    let (after, elapsed) = (rig.node_cpu()?, start.elapsed());
    Ok(after.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64() * 100.0)
}

/// What a thread takes of a processor that does nothing but wake up with each tick, during a window.
fn bare_ticks() -> io::Result<f64> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let period = Timespec { tv_sec: 0, tv_nsec: TICK_NS };
    let every = Itimerspec { it_interval: period, it_value: period };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    let taken = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let (before, start) = (taken(), Instant::now());
    while start.elapsed() < WINDOW {
        rustix::io::read(&timer, &mut [0; 8])?;
    }
    Ok((taken() - before) / start.elapsed().as_secs_f64() * 100.0)
}
