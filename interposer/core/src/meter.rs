//! The meter of one process on one GPU: how long the GPU was at its work, by measured stretches.
//!
//! A launch is charged its estimate before it runs. Once a stretch of launches has been measured, what the stretch truly
//! took replaces what was charged for it. Where streams overlap, the GPU's time counts once: under time-slicing a tenant
//! uses the union of the times in which one of its kernels is resident (design 5).
//!
//! A stretch beside a neighbour cannot be measured, the neighbour's time slices fall into it (gpu-truths, rule 2). Its
//! estimate is corrected by what measured and charged time came to lately.

use std::collections::VecDeque;

/// Intervals kept apart. Older ones than these are taken as closed: nothing is charged there any more.
const INTERVALS: usize = 64;

/// How much of the past the correction for unmeasured stretches remembers, in nanoseconds of work.
const MEMORY_NS: f64 = 500e6;

/// Work that must have been measured before a correction is drawn from it, in nanoseconds.
const ENOUGH_NS: f64 = 2e6;

/// Measured and charged work of one process on one GPU.
#[derive(Debug, Default)]
pub struct Meter {
    busy: VecDeque<(f64, f64)>, // disjoint, ascending
    measured_ns: f64,           // both fade
    estimated_ns: f64,
}

impl Meter {
    /// A stretch kept its stream busy from `from` to `to`, on the GPU's clock, and no neighbour was there. Returns how
    /// much of that no other stretch has covered.
    pub fn cover(&mut self, from: f64, to: f64) -> f64 {
        let (mut from, mut to) = (from, to.max(from));
        let mut new = to - from;
        // Those that end before it stay; those that touch it become one with it.
        let first = self.busy.partition_point(|(_, end)| *end < from);
        while let Some(&(start, end)) = self.busy.get(first)
            && start <= to
        {
            new -= end.min(to) - start.max(from);
            (from, to) = (from.min(start), to.max(end));
            self.busy.remove(first);
        }
        self.busy.insert(first, (from, to));
        if self.busy.len() > INTERVALS {
            self.busy.pop_front();
        }
        new.max(0.0)
    }

    /// A stretch took so long, where its launches by their present prices would come to `estimated`.
    pub fn compare(&mut self, took: f64, estimated: f64) {
        let fade = MEMORY_NS / (MEMORY_NS + estimated.max(took));
        self.measured_ns = self.measured_ns * fade + took;
        self.estimated_ns = self.estimated_ns * fade + estimated;
    }

    /// What a stretch that could not be measured took, as far as is known: no longer than `at_most`, the time that went
    /// by on its stream.
    pub fn unmeasured(&self, charged: f64, at_most: f64) -> f64 {
        (charged * self.ratio()).min(at_most)
    }

    /// Measured by estimated time, lately: below one where streams overlap.
    fn ratio(&self) -> f64 {
        if self.estimated_ns < ENOUGH_NS { 1.0 } else { self.measured_ns / self.estimated_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_streams_share_counts_once() {
        let mut meter = Meter::default();
        assert_eq!(meter.cover(0.0, 100.0), 100.0);
        assert_eq!(meter.cover(50.0, 150.0), 50.0);
        assert_eq!(meter.cover(300.0, 400.0), 100.0);
        assert_eq!(meter.cover(0.0, 400.0), 150.0, "what lay between");
        assert_eq!(meter.cover(10.0, 20.0), 0.0);
        assert_eq!(meter.busy.len(), 1);
    }

    #[test]
    fn any_order_of_intervals_comes_to_the_same_union() {
        let intervals = [(5.0, 9.0), (0.0, 2.0), (8.0, 12.0), (1.0, 6.0), (20.0, 21.0), (12.0, 13.0)];
        for turn in 0..intervals.len() {
            let mut meter = Meter::default();
            let turned = intervals.iter().cycle().skip(turn).take(intervals.len());
            let sum: f64 = turned.map(|(from, to)| meter.cover(*from, *to)).sum();
            assert_eq!(sum, 14.0, "turned by {turn}");
        }
    }

    #[test]
    fn a_stretch_beside_a_neighbour_is_corrected_by_what_was_measured_before() {
        let mut meter = Meter::default();
        assert_eq!(meter.unmeasured(100.0, f64::INFINITY), 100.0, "nothing is known yet");
        for n in 0..100 {
            let at = f64::from(n) * 1e6;
            for _ in 0..2 {
                let took = meter.cover(at, at + 1e6); // two streams that overlap wholly
                meter.compare(took, 1e6);
            }
        }
        let took = meter.unmeasured(1e6, f64::INFINITY);
        assert!((took / 0.5e6 - 1.0).abs() < 0.02, "{took}");
        assert_eq!(meter.unmeasured(1e6, 0.3e6), 0.3e6, "never more than went by");
    }
}
