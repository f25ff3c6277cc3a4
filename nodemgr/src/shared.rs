//! What the manager's threads have in common.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_protocol::message::FailMode;
use weir_protocol::price::PriceRow;
use weir_protocol::units::{Bytes, Nanos};

use crate::authority::Authority;
use crate::control::Watcher;
use crate::control::schema::Response;
use crate::place::Place;
use crate::registry::Registry;

/// Shared by the poll loop, the tick, and the threads that carry out `weir set`.
pub struct Shared {
    /// Where everything lies.
    pub place: Place,
    /// Who may what.
    pub authority: Authority,
    /// How tenants fail.
    pub mode: FailMode,
    /// Length of a tick, in microseconds.
    pub tick_us: u64,
    /// What a context costs where NVML cannot tell; 0: not configured.
    pub context_memory: Bytes,
    /// What kernels cost before they are measured.
    pub prices: Vec<PriceRow>,
    /// Changes of budget under way.
    pub setting: AtomicUsize,
    registry: Mutex<Registry>,
    watchers: Mutex<Vec<Watcher>>,
    mail: Mutex<Vec<(u64, Response)>>,
    bell: OwnedFd,
    stopping: AtomicBool,
    pausing: (Mutex<()>, Condvar),
}

impl Shared {
    /// Over `registry`; `bell` is the eventfd that wakes the poll loop.
    pub fn new(options: &crate::manager::Options, registry: Registry, bell: OwnedFd) -> Self {
        Self {
            place: options.place.clone(),
            authority: Authority::here(),
            mode: options.mode,
            tick_us: options.tick.0 / 1_000,
            context_memory: options.context_memory,
            prices: options.prices.clone(),
            setting: AtomicUsize::new(0),
            registry: Mutex::new(registry),
            watchers: Mutex::default(),
            mail: Mutex::default(),
            bell,
            stopping: AtomicBool::new(false),
            pausing: (Mutex::default(), Condvar::new()),
        }
    }

    /// The registry. A panic under the lock leaves counters and budgets that are whole each by themselves, so
    /// the others go on.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who wait for events.
    pub fn watchers(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an answer for the control connection `to` and wakes the poll loop, which sends it.
    pub fn post(&self, to: u64, answer: Response) {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).push((to, answer));
        self.ring();
    }

    /// Takes the answers that were posted.
    pub fn take_mail(&self) -> Vec<(u64, Response)> {
        // The bell first: an answer posted in between then rings again.
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        std::mem::take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks all threads to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
        drop(self.pausing.0.lock()); // whoever has looked and not slept yet sleeps before the call that wakes him
        self.pausing.1.notify_all();
    }

    /// Whether the threads are to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Sleeps for so long, or until the threads are to end.
    pub fn pause(&self, time: Duration) {
        let lock = self.pausing.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.pausing.1.wait_timeout_while(lock, time, |()| !self.is_stopping());
    }

    /// The eventfd that wakes the poll loop.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    fn ring(&self) {
        // Fails only when the count is at its end, and then the loop wakes anyway.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// The monotonic clock of the manager.
pub fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
}
