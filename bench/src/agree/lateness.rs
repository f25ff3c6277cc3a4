//! How late this machine wakes those who sleep. Where others keep its processors, the real processes are late by as much, and
//! the simulator is not to blame.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::sample::Spread;

/// How long each sleep is to be.
const SLEEP: Duration = Duration::from_millis(1);

/// A thread that sleeps and looks by how much it comes late.
pub struct Lateness {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<f64>>,
}

impl Lateness {
    /// Begins.
    pub fn watch() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let thread = std::thread::spawn(move || {
            let mut late = Vec::new();
            while !seen.load(Ordering::Relaxed) {
                let began = Instant::now();
                std::thread::sleep(SLEEP);
                late.push(began.elapsed().saturating_sub(SLEEP).as_secs_f64() * 1e3);
            }
            late
        });
        Self { over, thread }
    }

    /// Ends, and says by how much, in milliseconds.
    pub fn stop(self) -> Spread {
        self.over.store(true, Ordering::Relaxed);
        Spread::of(&self.thread.join().unwrap_or_default())
    }
}
