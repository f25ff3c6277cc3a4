//! What the manager's threads have in common.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_protocol::message::FailMode;
use weir_protocol::price::PriceRow;
use weir_protocol::units::{Bytes, Nanos};

use crate::authority::Authority;
use crate::control::Watcher;
use crate::control::schema::Response;
use crate::fault::Fault;
use crate::histogram::Histogram;
use crate::park::{self, Checkpoints, Driver};
use crate::place::Place;
use crate::registry::Registry;
use crate::tick;

/// Shared by the poll loop, the tick, and the threads that carry out `weir set`.
pub struct Shared {
    /// Where everything lies.
    pub place: Place,
    /// Who may what.
    pub authority: Authority,
    /// How tenants fail.
    pub mode: FailMode,
    /// After how many seconds without a manager a strict tenant gets no more memory.
    pub stale_after_s: u64,
    /// Length of a tick, in microseconds.
    pub tick_us: u64,
    /// What a context costs where NVML cannot tell; 0: not configured.
    pub context_memory: Bytes,
    /// What kernels cost before they are measured.
    pub prices: Vec<PriceRow>,
    /// Changes of budget under way.
    pub setting: AtomicUsize,
    /// Held by whoever writes a launch file.
    pub launching: Mutex<()>,
    /// How long changes of budget took, to the first launch under them.
    pub resizes: Mutex<Histogram>,
    registry: Mutex<Registry>,
    watchers: Mutex<Vec<Watcher>>,
    mail: Mutex<Vec<(u64, Response)>>,
    letter_box: OwnedFd,
    driver: OnceLock<Driver>, // loaded with the first park
    timer: tick::Timer,
    stopping: AtomicBool,
    ending: OwnedFd,
}

impl Shared {
    /// Over `registry`; the first eventfd wakes the poll loop, the second one whoever pauses, `timer` the control loop.
    pub fn new(
        options: &crate::manager::Options,
        registry: Registry,
        [letter_box, ending]: [OwnedFd; 2],
        timer: tick::Timer,
    ) -> Self {
        Self {
            place: options.place.clone(),
            authority: Authority::here(),
            mode: options.mode,
            stale_after_s: options.stale_after_s,
            tick_us: options.tick.0 / 1_000,
            context_memory: options.context_memory,
            prices: options.prices.clone(),
            setting: AtomicUsize::new(0),
            launching: Mutex::default(),
            resizes: Mutex::default(),
            registry: Mutex::new(registry),
            watchers: Mutex::default(),
            mail: Mutex::default(),
            letter_box,
            timer,
            driver: OnceLock::new(),
            stopping: AtomicBool::new(false),
            ending,
        }
    }

    /// The registry. A panic under the lock leaves counters and budgets that are whole each by themselves, so
    /// the others go on.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver's checkpoints. The first call may take seconds, or for ever: never under a lock, nor on a thread that others
    /// wait for.
    ///
    /// # Errors
    /// [`codes::PARK`](crate::codes): there is no driver, or it takes none.
    pub fn checkpoints(self: &Arc<Self>) -> Result<&dyn Checkpoints, Fault> {
        if let Some(driver) = self.driver.get() {
            return Ok(driver);
        }
        let driver = Driver::open()?;
        let mut is_first = false; // another thread may have been faster
        let driver = self.driver.get_or_init(|| {
            is_first = true;
            driver
        });
        if is_first {
            park::watch(self.clone());
        }
        Ok(driver)
    }

    /// What wakes the control loop; set under the registry's lock.
    pub fn timer(&self) -> &tick::Timer {
        &self.timer
    }

    /// The control loop runs with the next tick, should it rest.
    pub fn hasten(&self, registry: &mut Registry) {
        if let Some(at) = registry.end_rest() {
            self.timer.ring_at(at);
        }
    }

    /// Those who wait for events.
    pub fn watchers(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an answer for the control connection `to` and wakes the poll loop, which sends it.
    pub fn post(&self, to: u64, answer: Response) {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).push((to, answer));
        self.wake();
    }

    /// Takes the answers that were posted.
    pub fn take_mail(&self) -> Vec<(u64, Response)> {
        // The count first: an answer posted in between then wakes the loop again.
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.letter_box, &mut count);
        std::mem::take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks all threads to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
        let _ = rustix::io::write(&self.ending, &1u64.to_ne_bytes()); // nobody reads it: it stays so
    }

    /// Whether the threads are to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Sleeps for so long, or until the threads are to end.
    pub fn pause(&self, time: Duration) {
        let time = Timespec::try_from(time).ok();
        let _ = poll(&mut [PollFd::new(&self.ending, PollFlags::IN)], time.as_ref());
    }

    /// What can be read once the threads are to end.
    pub fn ending(&self) -> &OwnedFd {
        &self.ending
    }

    /// The eventfd that wakes the poll loop.
    pub fn letter_box(&self) -> &OwnedFd {
        &self.letter_box
    }

    fn wake(&self) {
        // Fails only when the count is at its end, and then the loop wakes anyway.
        let _ = rustix::io::write(&self.letter_box, &1u64.to_ne_bytes());
    }
}

/// The monotonic clock of the manager.
pub fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
}
