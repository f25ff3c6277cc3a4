//! Standstills: work is queued, and none of it completes. A kernel of it may spin for a launch that the gate holds back.

use weir_protocol::sync::{AtomicU32, AtomicU64, Ordering};
use weir_protocol::units::Nanos;

/// Work that stands still this long, at least, may be waiting for the launch that the gate holds back.
const STANDSTILL: Nanos = Nanos::from_millis(5);

/// A sibling's prediction is waited for so long at most, the first time.
const MOST_TRUSTED: Nanos = Nanos::from_millis(20);

/// Whether predicted work moves: that of this process, or that of the tenant's other processes.
#[derive(Debug, Default)]
pub(super) struct Watch {
    completed: AtomicU64,
    moved_at: AtomicU64,
    stuck: AtomicU64,    // what had been submitted when it last stood still
    in_a_row: AtomicU32, // standstills since it last moved
}

/// How often a standstill counts that does not end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patient {
    /// Each time alike.
    Always,
    /// After twice the time, each time.
    EverMore,
}

/// The most doublings of patience: from 5 ms to 1.3 s.
const DOUBLINGS: u32 = 8;

impl Watch {
    /// Whether it has stood still for so long that a launch should pass, and for so long at `least`.
    pub fn stands(
        &self,
        (submitted, completed): (u64, u64),
        patient: Patient,
        least: Nanos,
        arrived: Nanos,
        now: Nanos,
    ) -> bool {
        // Relaxed throughout: a lost race costs or saves one forced launch, which is charged all the same.
        let moved = self.completed.swap(completed, Ordering::Relaxed) != completed;
        if moved {
            self.in_a_row.store(0, Ordering::Relaxed);
        }
        let since = Nanos(self.moved_at.load(Ordering::Relaxed));
        if moved || submitted <= completed || since == Nanos(0) {
            self.moved_at.store(now.0, Ordering::Relaxed);
            return false;
        }
        // What stood still before is known to wait for something else than the GPU: it is not waited for again, or the
        // launches behind it, each of which may be the one that is missing, would wait ever longer.
        let fresh = submitted.saturating_sub(completed.max(self.stuck.load(Ordering::Relaxed)));
        let row = self.in_a_row.load(Ordering::Relaxed).min(DOUBLINGS);
        let patience = STANDSTILL.max(Nanos(fresh.saturating_mul(3))).0;
        let patience = match patient {
            Patient::Always => patience,
            // What it predicts may be what it spun for us before: trusted within bounds.
            Patient::EverMore => patience.min(MOST_TRUSTED.0).saturating_mul(1 << row),
        }
        .max(least.0);
        let stands = now.since(since.max(arrived)) > Nanos(patience);
        if stands {
            self.moved_at.store(now.0, Ordering::Relaxed);
            self.stuck.store(submitted, Ordering::Relaxed);
            self.in_a_row.store(row + 1, Ordering::Relaxed);
        }
        stands
    }
}
