//! One signature's price, and how sampled launches correct it.
//!
//! A sample is the time between two events around one launch. It can only err upwards: the neighbour's time
//! slices and gaps of the host fall into it (gpu-truths, rule 5). The estimate is therefore the *least* of the
//! samples of the last two windows; the first launch of a signature is not taken, it may load code lazily.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use weir_protocol::units::Nanos;

/// Samples in a window: beside a busy neighbour only one in many is free of its time slices.
const WINDOW: u32 = 32;

/// Samples after which an estimate counts as learnt.
const LEARNT: u32 = 3;

/// Time between samples of a signature that has been learnt: from the first, doubling to the second while samples agree.
const RESAMPLE: (Nanos, Nanos) = (Nanos::from_millis(10), Nanos::from_secs(1));

/// The price of one signature; lives as long as the process.
#[derive(Debug)]
pub struct Estimate {
    price_ns: AtomicU64,
    fixed: AtomicBool,
    launches: AtomicU32, // that asked to be sampled
    samples: AtomicU32,
    least_ns: AtomicU64,        // of this window
    least_before_ns: AtomicU64, // of the window before
    sample_at_ns: AtomicU64,
    pause_ns: AtomicU64,
}

// Relaxed everywhere below: an estimate publishes nothing but itself, and a lost update costs one sample.
impl Estimate {
    /// The operator's price.
    pub const fn fixed(price_ns: u64) -> Self {
        Self::new(price_ns, true)
    }

    /// A guess that samples will replace.
    pub const fn guess(price_ns: u64) -> Self {
        Self::new(price_ns, false)
    }

    const fn new(price_ns: u64, fixed: bool) -> Self {
        Self {
            price_ns: AtomicU64::new(price_ns),
            fixed: AtomicBool::new(fixed),
            launches: AtomicU32::new(0),
            samples: AtomicU32::new(0),
            least_ns: AtomicU64::new(u64::MAX),
            least_before_ns: AtomicU64::new(u64::MAX),
            sample_at_ns: AtomicU64::new(0),
            pause_ns: AtomicU64::new(RESAMPLE.0.0),
        }
    }

    /// Starts afresh with a new first price: the handle now stands for something else.
    pub fn restart(&self, price_ns: u64, fixed: bool) {
        self.fixed.store(fixed, Ordering::Relaxed);
        self.price_ns.store(price_ns, Ordering::Relaxed);
        self.launches.store(0, Ordering::Relaxed);
        self.samples.store(0, Ordering::Relaxed);
        self.least_ns.store(u64::MAX, Ordering::Relaxed);
        self.least_before_ns.store(u64::MAX, Ordering::Relaxed);
        self.pause_ns.store(RESAMPLE.0.0, Ordering::Relaxed);
    }

    /// Whether the operator set the price.
    pub fn is_fixed(&self) -> bool {
        self.fixed.load(Ordering::Relaxed)
    }

    /// The price of one launch, in tokens; at least 1.
    #[inline]
    pub fn price(&self) -> i64 {
        // A price over 2^63 ns (292 years) is some wild number and reads as negative: cut.
        (self.price_ns.load(Ordering::Relaxed) as i64).max(1)
    }

    /// Whether this launch should be timed. The first never is; the next few are, then one in a while.
    pub fn wants_sample(&self, now: Nanos) -> bool {
        if self.is_fixed() || self.launches.fetch_add(1, Ordering::Relaxed) == 0 {
            return false;
        }
        self.samples.load(Ordering::Relaxed) < LEARNT || now.0 >= self.sample_at_ns.load(Ordering::Relaxed)
    }

    /// Whether the price can be relied upon for more than one launch at a time.
    pub fn is_learnt(&self) -> bool {
        self.is_fixed() || self.samples.load(Ordering::Relaxed) >= LEARNT
    }

    /// Takes a sample of one launch.
    pub fn sample(&self, took: Nanos, now: Nanos) {
        if self.is_fixed() || took == Nanos(0) {
            return;
        }
        let count = self.samples.fetch_add(1, Ordering::Relaxed) + 1;
        let least = self.least_ns.load(Ordering::Relaxed).min(took.0);
        self.least_ns.store(least, Ordering::Relaxed);
        let price = least.min(self.least_before_ns.load(Ordering::Relaxed));
        self.price_ns.store(price, Ordering::Relaxed);
        let agrees = took.0.abs_diff(price) <= price / 20;
        if count.is_multiple_of(WINDOW) {
            self.least_before_ns.store(least, Ordering::Relaxed);
            self.least_ns.store(u64::MAX, Ordering::Relaxed);
        }
        let pause =
            if agrees { self.pause_ns.load(Ordering::Relaxed).saturating_mul(2) } else { RESAMPLE.0.0 };
        let pause = pause.min(RESAMPLE.1.0);
        self.pause_ns.store(pause, Ordering::Relaxed);
        self.sample_at_ns.store(now.0.saturating_add(pause), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operators_price_stands() {
        let estimate = Estimate::fixed(5_000);
        estimate.sample(Nanos(9), Nanos(0));
        assert!(!estimate.wants_sample(Nanos(0)) && !estimate.wants_sample(Nanos(0)));
        assert_eq!(estimate.price(), 5_000);
    }

    #[test]
    fn a_guess_is_replaced_by_the_least_sample() {
        let estimate = Estimate::guess(1);
        assert!(!estimate.wants_sample(Nanos(0)), "the first launch may load code");
        for took in [900, 400, 700] {
            assert!(estimate.wants_sample(Nanos(0)) && !estimate.is_learnt());
            estimate.sample(Nanos(took), Nanos(0));
        }
        assert_eq!(estimate.price(), 400);
        assert!(estimate.is_learnt() && !estimate.wants_sample(Nanos(0)));
        assert!(estimate.wants_sample(RESAMPLE.1), "looked at again after a while");
    }

    #[test]
    fn a_kernel_that_becomes_dearer_is_followed_after_two_windows() {
        let estimate = Estimate::guess(1);
        estimate.sample(Nanos(100), Nanos(0));
        (0..2 * WINDOW).for_each(|_| estimate.sample(Nanos(300), Nanos(0)));
        assert_eq!(estimate.price(), 300);
    }

    #[test]
    fn a_kernel_that_becomes_dearer_is_followed_within_seconds_however_long_it_was_steady() {
        let estimate = Estimate::guess(100);
        let ms = |n: u64| Nanos(n * 1_000_000);
        (0..60_000)
            .filter(|n| estimate.wants_sample(ms(*n)))
            .for_each(|n| estimate.sample(Nanos(100), ms(n)));
        let dearer = 60_000..64_000;
        dearer.filter(|n| estimate.wants_sample(ms(*n))).for_each(|n| estimate.sample(Nanos(1_000), ms(n)));
        assert_eq!(estimate.price(), 1_000);
    }

    #[test]
    fn a_kernel_whose_samples_agree_is_looked_at_ever_more_seldom() {
        let estimate = Estimate::guess(100);
        let mut now = Nanos(1);
        let mut looks = 0;
        estimate.wants_sample(now);
        while now < Nanos::from_secs(10) {
            if estimate.wants_sample(now) {
                estimate.sample(Nanos(100), now);
                looks += 1;
            }
            now = Nanos(now.0 + 1_000_000);
        }
        assert!((10..30).contains(&looks), "{looks} samples in 10 s");
    }

    #[test]
    fn a_wild_price_is_never_negative() {
        assert_eq!(Estimate::guess(u64::MAX).price(), 1);
        assert_eq!(Estimate::guess(0).price(), 1);
    }
}
