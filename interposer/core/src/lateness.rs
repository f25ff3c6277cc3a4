//! How late the machine wakes a sleeper: the system's timer slack (50 us unless a program asks for less, prctl(2)) and a
//! processor's way out of its own sleep. A launch that waits for the end of what is queued sleeps so much less, or the GPU idles
//! for as long.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_protocol::units::Nanos;

/// Of so many sleeps one ends sooner than predicted, and is slept on.
const EARLY: u64 = 8;

/// A wake-up moves what is predicted by so much, ns.
const STEP: u64 = 500;

/// More is not foreseen: then the machine is busy, and late by anything.
const MOST: u64 = 200_000;

/// What nearly all wake-ups are late by at least.
#[derive(Debug)]
pub struct Lateness(AtomicU64);

impl Lateness {
    /// Nothing is known yet.
    #[allow(clippy::new_without_default, reason = "it is made once, in a static")]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// How long to sleep in order to wake after `wanted`; a sleep of nothing still comes late.
    pub fn aim(&self, wanted: Nanos) -> Nanos {
        Nanos(wanted.0.saturating_sub(self.0.load(Ordering::Relaxed)).max(1))
    }

    /// A sleep has ended so late. Of two threads that say so at once one may be forgotten.
    pub fn seen(&self, late: Nanos) {
        let before = self.0.load(Ordering::Relaxed);
        let after = match late.0 > before {
            true => (before + STEP).min(MOST),
            false => before.saturating_sub(STEP * (EARLY - 1)),
        };
        self.0.store(after, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How far below `wanted` a sleep ends after so many, of which each was late by what `late` says.
    fn aims(sleeps: u64, late: impl Fn(u64) -> u64) -> u64 {
        let lateness = Lateness::new();
        (0..sleeps).for_each(|n| lateness.seen(Nanos(late(n))));
        1_000_000 - lateness.aim(Nanos(1_000_000)).0
    }

    #[test]
    fn a_sleep_ends_as_much_sooner_as_seven_of_eight_come_late_at_least() {
        assert_eq!(aims(0, |_| 0), 0);
        let steady = aims(1_000, |_| 80_000);
        assert!((76_000..=80_500).contains(&steady), "{steady}");
        let spread = aims(10_000, |n| 60_000 + n * 7_919 % 80_000); // 60 to 140 us
        assert!((60_000..=80_000).contains(&spread), "{spread}");
    }

    #[test]
    fn a_busy_machine_shortens_no_sleep_without_end_and_a_short_one_not_to_nothing() {
        assert_eq!(aims(10_000, |_| 5_000_000), MOST);
        let lateness = Lateness::new();
        (0..1_000).for_each(|_| lateness.seen(Nanos(90_000)));
        assert_eq!(lateness.aim(Nanos(30_000)), Nanos(1));
    }
}
