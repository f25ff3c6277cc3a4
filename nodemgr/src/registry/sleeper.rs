//! A tenant that has stood still on a GPU for so long that its pages are looked at no more than they must be.
//!
//! A node may have hundreds, and each page that is touched costs misses. So all that a tick reads of a sleeper is the one
//! line of each of its processes that moves when it works; these reads stand in a row and do not wait for each other.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_protocol::units::Nanos;

use super::cell::Pages;

/// A tenant that has stood still for so long is asleep: nothing that it may be excused for takes longer.
pub const ASLEEP: Nanos = Nanos::from_secs(1);

/// What moves when a tenant works, or waits at its gate: one cache line of each process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    submitted_ns: u64,
    completed_ns: u64,
    put_off: u64,
}

impl Pulse {
    /// That of the processes in these slots.
    pub fn of(pages: &Pages, slots: &[usize]) -> Self {
        let mut pulse = Self::default();
        for slot in slots.iter().filter_map(|slot| pages.usage.slots.get(*slot)) {
            // Relaxed: a hint of activity, nothing is ordered by it.
            pulse.submitted_ns = pulse.submitted_ns.wrapping_add(slot.submitted_ns.load(Ordering::Relaxed));
            pulse.completed_ns = pulse.completed_ns.wrapping_add(slot.completed_ns.load(Ordering::Relaxed));
            pulse.put_off = pulse.put_off.wrapping_add(slot.put_off.load(Ordering::Relaxed));
        }
        pulse
    }

    /// Predicted work under way.
    pub fn outstanding(self) -> Nanos {
        Nanos(self.submitted_ns.saturating_sub(self.completed_ns))
    }
}

/// One of them.
pub struct Sleeper {
    pages: Arc<Pages>,
    slots: Vec<usize>, // of its processes
    pulse: Pulse,
    since: Nanos,
}

impl Sleeper {
    /// Whose pulse was last seen to move at `since`.
    pub fn new(pages: Arc<Pages>, slots: &[usize], pulse: Pulse, since: Nanos) -> Self {
        Self { pages, slots: slots.to_vec(), pulse, since }
    }

    /// How long it has slept, or nothing: it has stirred.
    pub fn sleeps(&self, now: Nanos) -> Option<Nanos> {
        (Pulse::of(&self.pages, &self.slots) == self.pulse).then(|| now.since(self.since))
    }
}
