//! Counts launches and the longest gap between two of them: written by the launching thread, read by the one
//! that answers `report`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use weir_tests::said::Progress;

/// What was done so far. Relaxed throughout: figures, each whole by itself.
pub struct Tally {
    start: Instant,
    launches: AtomicU64,
    longest_gap_ns: AtomicU64,
    longest_gap_since_report_ns: AtomicU64,
    reported: Mutex<Progress>, // as of the last report; held for no longer than a copy
    steps_ns: Mutex<Vec<u64>>, // of the steps since then
}

impl Tally {
    /// Nothing yet.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            launches: AtomicU64::new(0),
            longest_gap_ns: AtomicU64::new(0),
            longest_gap_since_report_ns: AtomicU64::new(0),
            reported: Mutex::default(),
            steps_ns: Mutex::default(),
        }
    }

    /// Since the start, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// One launch, `gap_ns` after the one before it.
    pub fn launched(&self, gap_ns: u64) {
        self.launches.fetch_add(1, Ordering::Relaxed);
        if gap_ns > self.longest_gap_since_report_ns.load(Ordering::Relaxed) {
            self.longest_gap_since_report_ns.fetch_max(gap_ns, Ordering::Relaxed);
            self.longest_gap_ns.fetch_max(gap_ns, Ordering::Relaxed);
        }
    }

    /// One step, `step_ns` after the one before it.
    pub fn stepped(&self, step_ns: u64) {
        self.steps_ns.lock().unwrap_or_else(PoisonError::into_inner).push(step_ns);
    }

    /// Launches so far.
    pub fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// What happened since the start.
    pub fn in_all(&self) -> Progress {
        Progress {
            launches: self.launches(),
            elapsed_ns: self.now_ns(),
            longest_gap_ns: self.longest_gap_ns.load(Ordering::Relaxed),
            p95_step_ns: None,
        }
    }

    /// What happened since the last call.
    pub fn since_last_report(&self) -> Progress {
        let now = self.in_all();
        let mut last = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let since = Progress {
            launches: now.launches - last.launches,
            elapsed_ns: now.elapsed_ns - last.elapsed_ns,
            longest_gap_ns: self.longest_gap_since_report_ns.swap(0, Ordering::Relaxed),
            p95_step_ns: p95(&mut self.steps_ns.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        *last = now;
        since
    }
}

/// Takes all of them; none of nothing.
fn p95(of: &mut Vec<u64>) -> Option<u64> {
    let mut sorted = std::mem::take(of);
    sorted.sort_unstable();
    sorted.get(sorted.len() * 95 / 100).copied()
}
