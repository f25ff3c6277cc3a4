//! Latencies that a tenant's own processes tell (`weir_latency`): one histogram for all of them, which only grows.
//!
//! Buckets are an eighth of an octave wide, from a microsecond to more than the hour that a promise may be long, so that
//! a quantile is off by a few percent at most. To tell one is a single atomic instruction, on whatever thread.

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use crate::sync::{AtomicU64, Ordering};
use crate::units::Nanos;

/// Buckets in an octave, as a power of two.
const STEP_BITS: u32 = 3;

/// Everything below 2^10 ns is in the first bucket.
const FIRST_OCTAVE: u32 = 10;

/// Up to 2^42 ns, 73 minutes; what is longer is in the last bucket.
const OCTAVES: u32 = 32;

/// The short ones, eight for each octave, the long ones.
pub const TOLD_BUCKETS: usize = 2 + ((OCTAVES as usize) << STEP_BITS);

/// The histogram.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[repr(C)]
pub struct Told([AtomicU64; TOLD_BUCKETS]);

#[cfg(loom)]
impl Default for Told {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Told {
    /// Counts a request that took so long.
    pub fn add(&self, latency: Nanos) {
        if let Some(bucket) = self.0.get(bucket_of(latency.0)) {
            // Relaxed: a count, whole by itself.
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many requests took less than each bound, the bounds rising; the last bound is `u64::MAX`. The tenant writes the
    /// counts, so the sums saturate.
    pub fn below(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        let mut sum = 0u64;
        self.0.iter().enumerate().map(move |(at, bucket)| {
            // Relaxed: see `add`. Requests that are told meanwhile show in some of the sums; the next look has them all.
            sum = sum.saturating_add(bucket.load(Ordering::Relaxed));
            (Nanos(bound_of(at)), sum)
        })
    }
}

fn bucket_of(ns: u64) -> usize {
    let Some(octave) = ns.checked_ilog2().and_then(|octave| octave.checked_sub(FIRST_OCTAVE)) else {
        return 0;
    };
    let step = (ns >> (octave + FIRST_OCTAVE - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    let at = 1 + (u64::from(octave) << STEP_BITS) + step;
    usize::try_from(at).map_or(TOLD_BUCKETS - 1, |at| at.min(TOLD_BUCKETS - 1))
}

/// The end of a bucket.
fn bound_of(bucket: usize) -> u64 {
    match bucket {
        0 => 1 << FIRST_OCTAVE,
        at if at >= TOLD_BUCKETS - 1 => u64::MAX,
        at => {
            let (octave, step) = ((at - 1) >> STEP_BITS, (at - 1) & ((1 << STEP_BITS) - 1));
            ((1 << STEP_BITS) + step as u64 + 1) << (octave + (FIRST_OCTAVE - STEP_BITS) as usize)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told() -> Box<Told> {
        Box::new(zerocopy::FromZeros::new_zeroed())
    }

    #[test]
    fn every_length_has_a_bucket_and_the_longest_promise_is_not_in_the_last() {
        assert_eq!((bucket_of(0), bucket_of(1 << 10), bucket_of(u64::MAX)), (0, 1, TOLD_BUCKETS - 1));
        assert!(bucket_of(3_600_000_000_000) < TOLD_BUCKETS - 1, "an hour");
    }

    proptest! {
        #[test]
        fn a_request_lies_within_its_bucket_and_the_bucket_is_an_eighth_wide(ns in 1u64 << 10..1 << 42) {
            let at = bucket_of(ns);
            let (from, to) = (bound_of(at - 1), bound_of(at));
            prop_assert!(from <= ns && ns < to, "{ns} is not in {from}..{to}");
            prop_assert!(to - from <= from / 8, "{from}..{to}");
        }

        #[test]
        fn the_sums_never_fall_and_end_with_all_requests(all in prop::collection::vec(any::<u64>(), 0..50)) {
            let told = told();
            all.iter().for_each(|ns| told.add(Nanos(*ns)));
            let below: Vec<_> = told.below().collect();
            prop_assert!(below.is_sorted());
            prop_assert_eq!(below.last().unwrap().1, all.len() as u64);
            for (bound, count) in below.iter().take(TOLD_BUCKETS - 1) {
                prop_assert_eq!(*count, all.iter().filter(|ns| **ns < bound.0).count() as u64);
            }
        }
    }
}
