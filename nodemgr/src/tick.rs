//! The control loop: once per tick, observe, decide, publish what changed.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use weir_protocol::units::Nanos;

use crate::control::serve_watchers;
use crate::park;
use crate::prompt::be_prompt;
use crate::registry::ParkJob;
use crate::shared::{Shared, now};

/// While everybody sleeps a tick is so many times as long: all that it can see then is that somebody wakes, and nobody else
/// has the time that is his.
const IDLE: u64 = 4;

/// Runs until the manager stops. A tick that comes late is not made up for: the next one sees all there is.
///
/// # Errors
/// The timer cannot be made.
pub fn start(shared: Arc<Shared>, period: Nanos) -> io::Result<std::thread::JoinHandle<()>> {
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    every(&timer, period)?;
    let run = move || {
        be_prompt();
        let mut awake = true;
        let mut expirations = [0; 8];
        while !shared.is_stopping() {
            match rustix::io::read(&timer, &mut expirations) {
                Ok(_) => {
                    let (now_awake, jobs) = tick(&shared);
                    let before = std::mem::replace(&mut awake, now_awake);
                    jobs.into_iter().for_each(|job| park::start(&shared, job));
                    serve_watchers(&shared);
                    let length = if awake { period } else { Nanos(period.0 * IDLE) };
                    if awake != before
                        && let Err(error) = every(&timer, length)
                    {
                        tracing::warn!(%error, "the tick keeps its length");
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return tracing::error!(%error, "the tick's timer failed: tenants see a silent manager");
                }
            }
        }
    };
    std::thread::Builder::new().name("weir-tick".into()).spawn(run)
}

/// One tick: whether anybody is awake, and what it leaves to other threads.
fn tick(shared: &Shared) -> (bool, Vec<ParkJob>) {
    let (mut registry, now) = (shared.registry(), now());
    let awake = registry.tick(now);
    let jobs = registry.park_jobs(now);
    (awake || registry.is_anyone_away(), jobs)
}

/// Makes the timer ring every so often.
fn every(timer: &OwnedFd, period: Nanos) -> io::Result<()> {
    let period = Timespec {
        tv_sec: i64::try_from(period.0 / 1_000_000_000).unwrap_or(0),
        tv_nsec: i64::try_from(period.0 % 1_000_000_000).unwrap_or(0),
    };
    let every = Itimerspec { it_interval: period, it_value: period };
    Ok(rustix::time::timerfd_settime(timer, TimerfdTimerFlags::empty(), &every).map(drop)?)
}
