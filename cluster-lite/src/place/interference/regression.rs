//! Gaussian-process regression of one figure over measurements whose covariances are given.

use super::factor::Factor;

/// How many earlier measurements of the same thing a new one weighs against at most: older ones fade.
const MEMORY: f64 = 8.0;
/// Variance of ln slowdown around the prior as long as too few are measured to tell: about a factor of 1.6.
const PRIOR_VARIANCE: f64 = 0.25;
/// As many measurements as that the prior variance counts for.
const PRIOR_WEIGHT: f64 = 4.0;

/// The measurements and what follows from them.
#[derive(Clone, Debug, Default)]
pub(super) struct Regression {
    factor: Factor,
    values: Vec<f64>,
    seen: Vec<f64>,
    /// Weight of each measurement in a prediction.
    weights: Vec<f64>,
    mean: f64,
    /// Variance for a covariance of one.
    scale: f64,
}

impl Regression {
    /// Takes one more, with its covariances. False if it adds nothing.
    pub(super) fn push(&mut self, column: &[f64], own: f64, value: f64) -> bool {
        let taken = self.factor.push(column, own);
        if taken {
            self.values.push(value);
            self.seen.push(1.0);
        }
        taken
    }

    /// Moves measurement `at` towards a repeated one.
    pub(super) fn again(&mut self, at: usize, value: f64) {
        self.seen[at] = (self.seen[at] + 1.0).min(MEMORY);
        self.values[at] += (value - self.values[at]) / self.seen[at];
    }

    /// Works the weights out anew: once after all of a batch.
    pub(super) fn settle(&mut self) {
        let count = self.values.len();
        #[allow(clippy::cast_precision_loss, reason = "some thousands")]
        let size = count as f64;
        // As many that say nothing stand beside them: one measurement tells of its like, and little of all others.
        self.mean = self.values.iter().sum::<f64>() / (size + PRIOR_WEIGHT);
        let around: Vec<_> = self.values.iter().map(|value| value - self.mean).collect();
        self.weights = self.factor.solve(&around);
        let spread: f64 = self.weights.iter().zip(&around).map(|(weight, value)| weight * value).sum();
        self.scale = (spread + PRIOR_WEIGHT * PRIOR_VARIANCE) / (size + PRIOR_WEIGHT);
    }

    /// Weight of each measurement.
    pub(super) fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// What is expected far from every measurement.
    pub(super) const fn mean(&self) -> f64 {
        self.mean
    }

    /// The figure for something with these covariances.
    pub(super) fn value(&self, column: &[f64]) -> f64 {
        self.mean
            + self.weights.iter().zip(column).map(|(weight, covariance)| weight * covariance).sum::<f64>()
    }

    /// Its standard deviation; `own` is its covariance with itself.
    pub(super) fn deviation(&self, column: &[f64], own: f64) -> f64 {
        let known: f64 = self.factor.forward(column).iter().map(|part| part * part).sum();
        let scale = if self.values.is_empty() { PRIOR_VARIANCE / own } else { self.scale };
        (scale * (own - known).max(0.0)).sqrt()
    }

    /// Logarithm of the likelihood, the scale chosen as likely as it can be.
    pub(super) fn likelihood(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "some thousands")]
        let size = self.values.len() as f64;
        let around = self.values.iter().map(|value| value - self.mean);
        let spread: f64 = self.weights.iter().zip(around).map(|(weight, value)| weight * value).sum();
        -0.5 * size * (spread / size.max(1.0)).max(f64::MIN_POSITIVE).ln()
            - self.factor.half_log_determinant()
    }
}
