//! What is known of a launch that never ran without a neighbour: it took no longer than the time between the marks around
//! it.
//!
//! A neighbour's time slices lie in some of these times and not in others. As long as the kernel is short beside a slice
//! most of them are clean: those far above the median are left out, and the rest have the kernel's mean. Of a long kernel
//! few may be clean: then the least is the best there is, and is forgotten slowly.

use super::Bound;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bounds remembered. With one in 3 ms they are the last tenth of a second.
pub(super) const WINDOW: usize = 32;

/// Half of a time slice (2 ms, the driver's default): a kernel beyond this meets a switch more often than not.
const SHORT_NS: u64 = 1_000_000;

/// So many times the median a clean time may be: data-dependent kernels have a range.
const RANGE: u64 = 3;

/// By so much the least may rise with each bound, as a part of it.
const RISE: u64 = 400;

/// The last bounds of one signature.
#[derive(Debug, Default)]
pub struct Bounds {
    count: AtomicU32,
    timed: AtomicU32,
    at_once: AtomicU32,
    least_ns: AtomicU64,
    times_ns: [AtomicU64; WINDOW],
}

// Relaxed throughout: times of their own, and a lost one is one the less.
impl Bounds {
    /// How many there were.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// How many of them were launches that were timed beside others.
    pub fn timed(&self) -> u32 {
        self.timed.load(Ordering::Relaxed)
    }

    /// Whether there were any of launches that ran at the same time as others, and not too many of them yet.
    pub fn are_few(&self) -> bool {
        let any = self.timed() > 0 || self.at_once.load(Ordering::Relaxed) > 0;
        any && (self.count() as usize) < WINDOW
    }

    /// Takes one in, and returns what a launch costs by the last of them, in nanoseconds, and by how much they differ, as a part
    /// of that.
    pub fn add(&self, ns: u64, how: Bound) -> (u64, f64) {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        self.timed.fetch_add((how == Bound::Timed).into(), Ordering::Relaxed);
        self.at_once.fetch_add((how == Bound::AtOnce).into(), Ordering::Relaxed);
        let slices = matches!(how, Bound::Most | Bound::Waited); // of a neighbour, perhaps
        self.times_ns[count as usize % WINDOW].store(ns, Ordering::Relaxed);
        let mut times = [0; WINDOW];
        let known = WINDOW.min(count as usize + 1);
        for (time, stored) in times.iter_mut().zip(&self.times_ns).take(known) {
            *time = stored.load(Ordering::Relaxed);
        }
        let times = &mut times[..known];
        times.sort_unstable();
        let median = times[known / 2];
        let least = match self.least_ns.load(Ordering::Relaxed) {
            0 => times[0],
            least => times[0].min(least.saturating_add(least / RISE)),
        };
        self.least_ns.store(least, Ordering::Relaxed);
        if median > SHORT_NS && slices {
            return (least, 1.0);
        }
        let clean = times.iter().take_while(|time| **time <= RANGE * median);
        let (sum, of) =
            clean.clone().fold((0u64, 0u64), |(sum, of), time| (sum.saturating_add(*time), of + 1));
        let (mean, of) = (sum / of.max(1), of.max(1) as f64);
        let squares: f64 = clean.map(|time| (*time as f64 / mean.max(1) as f64 - 1.0).powi(2)).sum();
        (mean, (squares / of).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(times: impl IntoIterator<Item = u64>) -> u64 {
        let bounds = Bounds::default();
        times.into_iter().map(|ns| bounds.add(ns, Bound::Most).0).last().unwrap()
    }

    #[test]
    fn a_short_kernel_pays_its_mean_without_the_neighbours_slices() {
        let data = (0..64u64).map(|n| 40_000 + n % 8 * 20_000);
        let met = |(n, ns): (usize, u64)| if n % 7 == 0 { ns + 2_100_000 } else { ns };
        let price = last(data.enumerate().map(met));
        assert!((100_000..120_000).contains(&price), "{price}");
    }

    #[test]
    fn a_long_kernel_pays_the_least_that_was_seen() {
        assert_eq!(last([9_300_000, 7_100_000, 11_000_000]), 7_100_000);
    }

    #[test]
    fn a_long_kernel_that_seldom_meets_nobody_is_not_priced_with_slices_in_it() {
        let met = |n: u64| if n.is_multiple_of(50) { 50_000_000 } else { 66_000_000 + n % 7 * 1_000_000 };
        let price = last((0..100).map(met));
        assert!((50_000_000..60_000_000).contains(&price), "{price}");
    }

    #[test]
    fn a_long_kernel_that_becomes_dearer_is_followed_too() {
        let price = last(std::iter::repeat_n(5_000_000, 10).chain(std::iter::repeat_n(9_000_000, 300)));
        assert_eq!(price, 9_000_000);
    }

    #[test]
    fn a_kernel_that_becomes_dearer_is_followed_after_a_window() {
        assert_eq!(last(std::iter::repeat_n(400, 100).chain(std::iter::repeat_n(1_200, WINDOW))), 1_200);
    }
}
