//! Figures from samples.

use serde::Serialize;

/// The spread of some samples.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// Half are below.
    pub median: f64,
    /// 99 of 100 are below.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// Of at least one sample; of none, all NaN.
    pub fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| quantile(&sorted, part);
        Self { min: at(0.0), median: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

/// The sample at `part` (0..=1) of a sorted row: the nearest rank.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank within the row")]
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_by_nearest_rank() {
        let spread = Spread::of(&[5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((spread.min, spread.median, spread.p99, spread.max), (1.0, 3.0, 5.0, 5.0));
        assert!(Spread::of(&[]).median.is_nan());
    }
}
