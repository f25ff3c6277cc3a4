//! The control loop: once per tick, observe, decide, publish what changed.

use std::io;
use std::sync::Arc;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use weir_protocol::units::Nanos;

use crate::control::serve_watchers;
use crate::shared::{Shared, now};

/// Runs until the manager stops. A tick that comes late is not made up for: the next one sees all there is.
///
/// # Errors
/// The timer cannot be made.
pub fn start(shared: Arc<Shared>, period: Nanos) -> io::Result<std::thread::JoinHandle<()>> {
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let period = Timespec {
        tv_sec: i64::try_from(period.0 / 1_000_000_000).unwrap_or(0),
        tv_nsec: i64::try_from(period.0 % 1_000_000_000).unwrap_or(0),
    };
    let every = Itimerspec { it_interval: period, it_value: period };
    rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    let run = move || {
        let mut expirations = [0; 8];
        while !shared.is_stopping() {
            match rustix::io::read(&timer, &mut expirations) {
                Ok(_) => {
                    shared.registry().tick(now());
                    serve_watchers(&shared);
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
