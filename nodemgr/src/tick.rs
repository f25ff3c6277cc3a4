//! The control loop: once per tick, or less often where nothing can change, observe, decide, publish what changed.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use weir_protocol::units::Nanos;

use crate::control::serve_watchers;
use crate::park;
use crate::registry::ParkJob;
use crate::shared::{Shared, now};

/// What the control loop sleeps on.
pub struct Timer {
    timer: OwnedFd,
    period: Nanos,
}

impl Timer {
    /// One that rings with each tick of this length.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(period: Nanos) -> io::Result<Self> {
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let timer = Self { timer, period };
        timer.set(TimerfdTimerFlags::empty(), period, period)?;
        Ok(timer)
    }

    /// Rings from now on every so many ticks.
    fn ring_every(&self, ticks: u64) {
        let length = Nanos(self.period.0.saturating_mul(ticks));
        self.or_warn(self.set(TimerfdTimerFlags::empty(), length, length));
    }

    /// Rings at this moment, at once if it is over, and from then on with each tick.
    pub fn ring_at(&self, moment: Nanos) {
        self.or_warn(self.set(TimerfdTimerFlags::ABSTIME, moment, self.period));
    }

    fn set(&self, flags: TimerfdTimerFlags, first: Nanos, every: Nanos) -> rustix::io::Result<()> {
        let first = Nanos(first.0.max(1)); // zero would stop it
        let spec = Itimerspec { it_interval: timespec(every), it_value: timespec(first) };
        rustix::time::timerfd_settime(&self.timer, flags, &spec).map(drop)
    }

    fn or_warn(&self, set: rustix::io::Result<()>) {
        if let Err(error) = set {
            tracing::warn!(%error, "the ticks keep their length");
        }
    }

    /// Sleeps until it rings; says whether it did.
    fn wait(&self) -> rustix::io::Result<bool> {
        match rustix::io::read(&self.timer, &mut [0; 8]) {
            Ok(_) => Ok(true),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn timespec(time: Nanos) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.0 / 1_000_000_000).unwrap_or(0),
        tv_nsec: i64::try_from(time.0 % 1_000_000_000).unwrap_or(0),
    }
}

/// Runs until the manager stops. A tick that comes late is not made up for: the next one sees all there is.
///
/// # Errors
/// The thread cannot be made.
pub fn start(shared: Arc<Shared>) -> io::Result<std::thread::JoinHandle<()>> {
    let run = move || {
        while !shared.is_stopping() {
            match shared.timer().wait() {
                Ok(true) => {
                    tick(&shared).into_iter().for_each(|job| park::start(&shared, job));
                    serve_watchers(&shared);
                }
                Ok(false) => {}
                Err(error) => {
                    return tracing::error!(%error, "the tick's timer failed: tenants see a silent manager");
                }
            }
        }
    };
    std::thread::Builder::new().name("weir-tick".into()).spawn(run)
}

/// One tick: what it leaves to other threads.
fn tick(shared: &Shared) -> Vec<ParkJob> {
    let (mut registry, now) = (shared.registry(), now());
    registry.tick(now);
    let jobs = registry.park_jobs(now);
    let before = registry.pace();
    let pace = registry.settle_pace(now);
    if pace != before {
        shared.timer().ring_every(pace); // under the lock: nobody ends the rest in between
    }
    jobs
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    const HOUR: Nanos = Nanos::from_secs(3_600);

    /// Whether it rings within so many seconds.
    fn rings(timer: &Timer, seconds: i64) -> bool {
        let within = Timespec { tv_sec: seconds, tv_nsec: 0 };
        poll(&mut [PollFd::new(&timer.timer, PollFlags::IN)], Some(&within)).unwrap() == 1
    }

    #[test]
    fn a_rest_ends_at_once_if_the_last_tick_is_long_over() {
        let timer = Timer::new(HOUR).unwrap();
        timer.ring_every(4);
        assert!(!rings(&timer, 0));
        timer.ring_at(Nanos(0));
        assert!(rings(&timer, 60) && timer.wait().unwrap());
        assert!(!rings(&timer, 0), "and the next tick comes when it is due");
        timer.ring_at(Nanos(now().0 + HOUR.0));
        assert!(!rings(&timer, 0));
    }
}
