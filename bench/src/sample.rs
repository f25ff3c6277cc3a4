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

/// The most of some figures. Of none, or where one is no number, it is no number either, so that no bar holds of nothing.
pub fn most(figures: impl Iterator<Item = f64>) -> f64 {
    figures.reduce(|most, next| if next.is_nan() || next > most { next } else { most }).unwrap_or(f64::NAN)
}

/// The least of them, in the same way.
pub fn least(figures: impl Iterator<Item = f64>) -> f64 {
    -most(figures.map(|figure| -figure))
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

    #[test]
    fn the_most_of_nothing_is_no_number_and_holds_no_bar() {
        assert_eq!((most([1.0, 3.0, 2.0].into_iter()), least([2.0, 1.0, 3.0].into_iter())), (3.0, 1.0));
        for figures in [vec![], vec![f64::NAN, 1.0], vec![1.0, -f64::NAN, 2.0]] {
            assert!(most(figures.iter().copied()).is_nan() && least(figures.into_iter()).is_nan());
        }
    }
}
