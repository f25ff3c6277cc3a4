//! A tenant's pulse on a GPU: what moves when it works, or waits at its gate. It is all that a tick looks at of a tenant about
//! whom nothing has to be decided; of one that sleeps not even that, as long as it does not say that it has [stirred](super::stirs).
//!
//! A node may have hundreds of them, and each page that is touched costs misses. So a pulse is one line of each process, and
//! what it is compared with stands together in one place.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_protocol::pages::PROCESS_SLOTS;
use weir_protocol::units::Nanos;

use super::pages::Pages;

/// A tenant that has stood still for so long is asleep: nothing that it may be excused for takes longer.
pub const ASLEEP: Nanos = Nanos::from_secs(1);

/// What moves when a tenant works, or waits at its gate: one cache line of each process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    submitted_ns: u64,
    completed_ns: u64,
    put_off: u64,
    waits: bool,
    ended: u64, // bursts, by its activity page: the end of work behind which no word stands is predicted, and then no sum moves
}

impl Pulse {
    /// That of the processes in these slots.
    pub fn of(pages: &Pages, slots: impl Iterator<Item = usize>) -> Self {
        let mut pulse = Self { ended: pages.activity.ended(None), ..Self::default() };
        for slot in slots.filter_map(|slot| pages.usage.slots.get(slot)) {
            // Relaxed: a hint of activity, nothing is ordered by it.
            pulse.submitted_ns = pulse.submitted_ns.wrapping_add(slot.submitted_ns.load(Ordering::Relaxed));
            pulse.completed_ns = pulse.completed_ns.wrapping_add(slot.completed_ns.load(Ordering::Relaxed));
            pulse.put_off = pulse.put_off.wrapping_add(slot.put_off.load(Ordering::Relaxed));
            pulse.waits |= slot.waits();
        }
        pulse
    }

    /// Whether a launch waits at the gate.
    pub fn waits(self) -> bool {
        self.waits
    }

    /// Predicted work under way.
    pub fn outstanding(self) -> Nanos {
        Nanos(self.submitted_ns.saturating_sub(self.completed_ns))
    }
}

/// Slots, one bit each.
#[derive(Clone, Copy)]
struct Slots(u32);

const _: () = assert!(PROCESS_SLOTS <= u32::BITS as usize);

impl Slots {
    fn of(slots: &[usize]) -> Self {
        Self(slots.iter().filter(|slot| **slot < PROCESS_SLOTS).fold(0, |bits, slot| bits | 1 << slot))
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let slot = bits.trailing_zeros() as usize;
            (bits != 0).then(|| bits &= bits - 1).map(|()| slot)
        })
    }
}

/// A pulse that is followed.
pub struct Beat {
    pages: Arc<Pages>,
    slots: Slots, // of its processes
    /// As it was seen last.
    pub pulse: Pulse,
    /// When it was last seen to move.
    pub since: Nanos,
}

impl Beat {
    /// Of a tenant without processes.
    pub fn new(pages: Arc<Pages>) -> Self {
        Self { pages, slots: Slots::of(&[]), pulse: Pulse::default(), since: Nanos(0) }
    }

    /// It is that of the processes in these slots; last seen to move at `since`.
    pub fn note(&mut self, slots: &[usize], pulse: Pulse, since: Nanos) {
        (self.slots, self.pulse, self.since) = (Slots::of(slots), pulse, since);
    }

    /// Gives the sign of life of the tenant's turn.
    pub fn tick(&self) {
        self.pages.grant.tick();
    }

    /// Whether it has moved since it was seen last.
    pub fn has_moved(&self) -> bool {
        Pulse::of(&self.pages, self.slots.iter()) != self.pulse
    }

    /// Looks; says how long it has stood still.
    pub fn look(&mut self, now: Nanos) -> Nanos {
        let pulse = Pulse::of(&self.pages, self.slots.iter());
        if pulse != self.pulse {
            (self.pulse, self.since) = (pulse, now);
        }
        now.since(self.since)
    }
}
