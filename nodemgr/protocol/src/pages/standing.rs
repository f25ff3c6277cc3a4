//! Who goes first on a GPU, and how a tenant stands to its share.
//!
//! A process of class latency *goes first* while its tenant is within its share: dense neighbours let nothing go while its work is
//! undrained. The tenant writes these words; its neighbours read them. A tenant that lies here keeps others out for as long as they
//! believe it: they stop after a bounded wait.

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use crate::sync::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::units::Nanos;

use super::Rate;

/// No tenant is believed to count as at work for longer after it has drained.
const LONGEST_GRACE: Nanos = Nanos::from_millis(20);

/// A tenant's standing on one GPU.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Standing {
    lag_ns: AtomicI64,
    looked_at_ns: AtomicU64,
    first: AtomicU32, // a bit for each process slot
    gives_way: AtomicU32,
    request_ppm: AtomicU32,
    grace_us: AtomicU32,
    rests_since_ns: AtomicU64, // on the tenant's own clock; 0: it does not
}

// Relaxed throughout, but for the claim of a look: hints, each whole by itself, that are read again a moment later.
impl Standing {
    /// Whether the process in `slot` goes first.
    pub fn goes_first(&self, slot: usize) -> bool {
        slot < 32 && self.first.load(Ordering::Relaxed) & (1 << slot) != 0
    }

    /// Says whether the process in `slot` goes first; returns whether that is news.
    pub fn set_goes_first(&self, slot: usize, first: bool) -> bool {
        set_bit(&self.first, slot, first)
    }

    /// Whether any process of the tenant goes first, at work or not.
    pub fn may_go_first(&self) -> bool {
        self.first.load(Ordering::Relaxed) != 0
    }

    /// Whether work of the tenant waits until neighbours are drained.
    pub fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Relaxed) != 0
    }

    /// Says whether work of the tenant waits until neighbours are drained.
    pub fn set_gives_way(&self, gives_way: bool) {
        if self.gives_way() != gives_way {
            self.gives_way.store(gives_way.into(), Ordering::Relaxed);
        }
    }

    /// For so long after its work has drained the tenant counts as at work: it is usually back by then. To a microsecond; what a tenant
    /// says beyond [`LONGEST_GRACE`] is not believed.
    pub fn grace(&self) -> Nanos {
        Nanos::from_micros(self.grace_us.load(Ordering::Relaxed).into()).min(LONGEST_GRACE)
    }

    /// Says for how long it does.
    pub fn set_grace(&self, grace: Nanos) {
        let us = u32::try_from(grace.0 / 1_000).unwrap_or(u32::MAX);
        if self.grace_us.load(Ordering::Relaxed) != us {
            self.grace_us.store(us, Ordering::Relaxed);
        }
    }

    /// The tenant's work has drained: it rests.
    pub fn begin_rest(&self, now: Nanos) {
        self.rests_since_ns.store(now.0, Ordering::Relaxed);
    }

    /// A launch of the tenant's has come. Returns since when it rested, if it did: of several threads one hears of it.
    pub fn end_rest(&self) -> Option<Nanos> {
        let rests = self.rests_since_ns.load(Ordering::Relaxed) != 0;
        let since = if rests { self.rests_since_ns.swap(0, Ordering::Relaxed) } else { 0 };
        (since != 0).then_some(Nanos(since))
    }

    /// For how much longer the tenant counts as at work though it has drained; `None`: it does not rest.
    pub fn grace_left(&self, now: Nanos) -> Option<Nanos> {
        let since = self.rests_since_ns.load(Ordering::Relaxed);
        (since != 0).then(|| Nanos(self.grace().0.saturating_sub(now.since(Nanos(since)).0)))
    }

    /// The tenant's request.
    pub fn request(&self) -> Rate {
        Rate::ppm(self.request_ppm.load(Ordering::Relaxed))
    }

    /// Time that the tenant has been due beyond what it had; negative: it had more than its share.
    pub fn lag_ns(&self) -> i64 {
        self.lag_ns.load(Ordering::Relaxed)
    }

    /// Moves the lag on to `now`, by what `next` makes of the lag and of the time since it was last moved. Of several processes
    /// of the tenant one does; the others find that it was done.
    pub fn look(&self, request: Rate, now: Nanos, next: impl FnOnce(i64, Nanos) -> i64) {
        let before = self.looked_at_ns.load(Ordering::Relaxed);
        if now.0 <= before {
            return;
        }
        // Acquire, Release: who moves the lag on finds what the one before has made of it.
        let mine = self.looked_at_ns.compare_exchange(before, now.0, Ordering::AcqRel, Ordering::Relaxed);
        if mine.is_ok() {
            self.request_ppm.store(request.as_ppm(), Ordering::Relaxed);
            let since = if before == 0 { Nanos(0) } else { now.since(Nanos(before)) };
            self.lag_ns.store(next(self.lag_ns(), since), Ordering::Relaxed);
        }
    }
}

/// Sets the bit of a slot, or takes it away; says whether that changed anything.
pub(super) fn set_bit(word: &AtomicU32, slot: usize, set: bool) -> bool {
    if slot >= 32 || (word.load(Ordering::Relaxed) & (1 << slot) != 0) == set {
        return false;
    }
    match set {
        true => word.fetch_or(1 << slot, Ordering::Relaxed),
        false => word.fetch_and(!(1 << slot), Ordering::Relaxed),
    };
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn standing() -> Standing {
        zerocopy::FromZeros::new_zeroed()
    }

    #[test]
    fn a_process_goes_first_by_its_own_bit() {
        let standing = standing();
        assert!(standing.set_goes_first(3, true) && !standing.set_goes_first(3, true));
        assert!(standing.goes_first(3) && !standing.goes_first(2) && !standing.goes_first(99));
        assert!(standing.set_goes_first(3, false) && !standing.goes_first(3));
        assert!(!standing.set_goes_first(32, true), "there is no such slot");
    }

    #[test]
    fn who_rests_counts_as_at_work_until_its_grace_is_over() {
        let standing = standing();
        assert_eq!((standing.end_rest(), standing.grace_left(Nanos(7))), (None, None));
        standing.set_grace(Nanos(30_999));
        standing.begin_rest(Nanos(1_000));
        let left = [1_000, 21_000, 90_000].map(|now| standing.grace_left(Nanos(now)));
        assert_eq!(left, [30_000, 10_000, 0].map(|ns| Some(Nanos(ns))));
        assert_eq!((standing.end_rest(), standing.end_rest()), (Some(Nanos(1_000)), None));
        assert_eq!(standing.grace_left(Nanos(2_000)), None, "it is back");
        standing.set_grace(Nanos(u64::MAX));
        assert_eq!(standing.grace(), LONGEST_GRACE, "a liar keeps others out for no longer");
    }

    #[test]
    fn time_is_counted_once_whoever_looks() {
        let standing = standing();
        let add = |lag: i64, since: Nanos| lag + since.0.cast_signed();
        standing.look(Rate::ppm(500_000), Nanos(1_000), add);
        standing.look(Rate::ppm(500_000), Nanos(1_500), add);
        standing.look(Rate::ppm(500_000), Nanos(1_500), add);
        standing.look(Rate::ppm(500_000), Nanos(1_400), add);
        assert_eq!((standing.lag_ns(), standing.request()), (500, Rate::ppm(500_000)));
    }
}
