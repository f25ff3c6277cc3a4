//! How long something took, counted by size: what Prometheus calls a histogram.

use serde::{Deserialize, Serialize};

/// Upper ends of the buckets, in seconds. A resize is at its first launch within a millisecond, or waits for a tenant.
const BOUNDS: [f64; 13] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

/// A histogram of seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper end of each bucket in seconds, and how many lie in it and above the one before.
    pub buckets: Vec<(f64, u64)>,
    /// How many there were, those above the last bucket too.
    pub count: u64,
    /// Sum of all, in seconds.
    pub sum_s: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: BOUNDS.map(|bound| (bound, 0)).to_vec(), count: 0, sum_s: 0.0 }
    }
}

impl Histogram {
    /// Adds one.
    pub fn add(&mut self, seconds: f64) {
        if let Some((_, count)) = self.buckets.iter_mut().find(|(bound, _)| seconds <= *bound) {
            *count += 1;
        }
        self.count += 1;
        self.sum_s += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lies_in_the_first_bucket_that_holds_it_and_the_longest_in_none() {
        let mut histogram = Histogram::default();
        [0.000_1, 0.000_2, 0.5, 7.0].into_iter().for_each(|seconds| histogram.add(seconds));
        let filled: Vec<_> = histogram.buckets.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [&(0.000_1, 1), &(0.000_25, 1), &(0.5, 1)]);
        assert!(histogram.count == 4 && (histogram.sum_s - 7.500_3).abs() < 1e-9);
    }
}
