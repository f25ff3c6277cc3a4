//! One signature's price: the mean of what its launches take, and how far that is known.
//!
//! Mean and variance belong together as in a Kalman filter whose state is the list of all prices, with the
//! covariances left out (`learn`): a new signature takes the first measurement as it is, one that has been
//! measured often moves by a seventh of what a measurement says, and so follows a kernel that becomes dearer within
//! some twenty measurements while data-dependent kernels stay right on average.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Measurements after which an estimate counts as learnt.
const LEARNT: u32 = 3;

/// Standard deviation of a guess, in nanoseconds: nothing is known.
const UNKNOWN_NS: f64 = 1e9;

/// Standard deviation of a price from the operator's table, as a part of it.
const TOLD: f64 = 0.05;

/// By how much a price may drift from one measurement to the next, as a part of it.
const DRIFT: f64 = 0.005;

/// The price of one signature; lives as long as the process.
#[derive(Debug)]
pub struct Estimate {
    price_ns: AtomicU64,
    mean_ns: AtomicU64,  // bits of an `f64`
    variance: AtomicU64, // bits of an `f64`, ns squared
    launches: AtomicU32, // that asked to be measured
    measured: AtomicU32,
}

// Relaxed everywhere below: an estimate publishes nothing but itself, and a lost update costs one measurement.
impl Estimate {
    /// A price from the operator's table, good enough to go by until it is measured.
    pub const fn told(price_ns: u64) -> Self {
        Self::new(price_ns, TOLD * price_ns as f64, LEARNT)
    }

    /// A guess that the first measurement replaces.
    pub const fn guess(price_ns: u64) -> Self {
        Self::new(price_ns, UNKNOWN_NS, 0)
    }

    const fn new(price_ns: u64, deviation_ns: f64, measured: u32) -> Self {
        Self {
            price_ns: AtomicU64::new(price_ns),
            mean_ns: AtomicU64::new((price_ns as f64).to_bits()),
            variance: AtomicU64::new((deviation_ns * deviation_ns).to_bits()),
            launches: AtomicU32::new(0),
            measured: AtomicU32::new(measured),
        }
    }

    /// Starts afresh with a new first price: the handle now stands for something else.
    pub fn restart(&self, price_ns: u64, told: bool) {
        let new = if told { Self::told(price_ns) } else { Self::guess(price_ns) };
        self.measured.store(new.measured.into_inner(), Ordering::Relaxed);
        self.launches.store(0, Ordering::Relaxed);
        self.set(price_ns as f64, f64::from_bits(new.variance.into_inner()));
    }

    /// The price of one launch, in tokens; at least 1.
    #[inline]
    pub fn price(&self) -> i64 {
        // A price over 2^63 ns (292 years) is some wild number and reads as negative: cut.
        (self.price_ns.load(Ordering::Relaxed) as i64).max(1)
    }

    /// Whether this launch should be measured by itself: the first few of a signature of which nothing is known, but
    /// never the very first, which may load code lazily.
    pub fn wants_bracket(&self) -> bool {
        !self.is_learnt() && self.launches.fetch_add(1, Ordering::Relaxed) > 0
    }

    /// Whether the price can be relied upon for more than one launch at a time.
    pub fn is_learnt(&self) -> bool {
        self.measured.load(Ordering::Relaxed) >= LEARNT
    }

    /// Mean, in nanoseconds.
    pub fn mean(&self) -> f64 {
        f64::from_bits(self.mean_ns.load(Ordering::Relaxed))
    }

    /// Variance of the mean, in nanoseconds squared.
    pub fn variance(&self) -> f64 {
        f64::from_bits(self.variance.load(Ordering::Relaxed))
    }

    /// Takes in what a measurement said about it.
    pub(super) fn correct(&self, mean: f64, variance: f64) {
        let mean = if mean.is_finite() { mean.max(1.0) } else { return };
        let drift = DRIFT * mean;
        self.set(mean, variance.max(0.0) + drift * drift);
        // Saturating in effect: after 2^32 measurements it is measured anew for three launches.
        self.measured.fetch_add(1, Ordering::Relaxed);
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a price is never negative; beyond the range of u64 it saturates"
    )]
    fn set(&self, mean: f64, variance: f64) {
        self.mean_ns.store(mean.to_bits(), Ordering::Relaxed);
        self.variance.store(variance.to_bits(), Ordering::Relaxed);
        self.price_ns.store(mean.round() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operators_price_is_good_enough_to_go_by() {
        let estimate = Estimate::told(5_000);
        assert!(estimate.is_learnt() && !estimate.wants_bracket() && !estimate.wants_bracket());
        assert_eq!(estimate.price(), 5_000);
    }

    #[test]
    fn a_guess_wants_its_second_to_fourth_launch_measured() {
        let estimate = Estimate::guess(1);
        assert!(!estimate.wants_bracket(), "the first launch may load code");
        for _ in 0..LEARNT {
            assert!(estimate.wants_bracket());
            estimate.correct(400.0, 1.0);
        }
        assert!(estimate.is_learnt() && !estimate.wants_bracket());
    }

    #[test]
    fn a_wild_price_is_never_negative() {
        assert!(Estimate::guess(u64::MAX).price() >= 1);
        assert_eq!(Estimate::guess(0).price(), 1);
        let estimate = Estimate::guess(7);
        estimate.correct(f64::NAN, 1.0);
        assert_eq!(estimate.price(), 7);
        estimate.correct(-5.0, 1.0);
        assert_eq!(estimate.price(), 1);
    }
}
