//! How well measured pairs are predicted that were held out, in k folds.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha12Rng;

use super::{Likeness, Predictor, Service, ServiceId};

/// One direction of a measured pair, by the places of its services.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Who was slowed.
    pub victim: usize,
    /// Who was beside it.
    pub beside: usize,
    /// How many times.
    pub slowdown: f64,
}

/// A held-out direction, as it was predicted by who had not seen it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// What was measured.
    pub measured: Measured,
    /// What was predicted.
    pub predicted: f64,
    /// In which fold.
    pub fold: usize,
}

impl Held {
    /// Error in parts of the measured slowdown.
    pub fn error(&self) -> f64 {
        (self.predicted / self.measured.slowdown - 1.0).abs()
    }
}

/// Divides the pairs into folds in an order drawn from `seed`; both directions of a pair fall into the same.
pub fn divide(measured: &[Measured], folds: usize, seed: u64) -> Vec<Vec<Measured>> {
    let key = |row: &Measured| (row.victim.min(row.beside), row.victim.max(row.beside));
    let mut pairs: Vec<_> = measured.iter().map(key).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs.shuffle(&mut ChaCha12Rng::seed_from_u64(seed));
    let of = |fold| {
        pairs.iter().skip(fold).step_by(folds.max(1)).copied().collect::<std::collections::HashSet<_>>()
    };
    (0..folds.max(1))
        .map(of)
        .map(|held| measured.iter().filter(|row| held.contains(&key(row))).copied().collect())
        .collect()
}

/// A way to predict held-out pairs from the others.
pub trait Learner {
    /// Learns from `training` and predicts each of `held`.
    fn predict(&self, services: &[Service], training: &[Measured], held: &[Measured]) -> Vec<f64>;
}

/// Each fold's pairs, predicted from the other folds.
pub fn validate(learner: &dyn Learner, services: &[Service], folds: &[Vec<Measured>]) -> Vec<Held> {
    let one = |(fold, held): (usize, &Vec<Measured>)| {
        let others = folds.iter().enumerate().filter(move |(other, _)| *other != fold);
        let training: Vec<_> = others.flat_map(|(_, rows)| rows).copied().collect();
        let predicted = learner.predict(services, &training, held);
        held.iter()
            .zip(predicted)
            .map(|(&measured, predicted)| Held { measured, predicted, fold })
            .collect::<Vec<_>>()
    };
    folds.iter().enumerate().flat_map(one).collect()
}

/// The median of the errors; nothing of none.
pub fn median_error(held: &[Held]) -> Option<f64> {
    let mut errors: Vec<_> = held.iter().map(Held::error).collect();
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied()
}

/// The two-way model, its likeness chosen by the training folds alone where there are several.
pub struct Weir {
    /// From which the likeliest is taken.
    pub likenesses: Vec<Likeness>,
}

impl Learner for Weir {
    fn predict(&self, services: &[Service], training: &[Measured], held: &[Measured]) -> Vec<f64> {
        let fitted = self.likenesses.iter().map(|likeness| fit(*likeness, services, training));
        let best = fitted.max_by(|one, other| one.likelihood().total_cmp(&other.likelihood()));
        let table = best.unwrap_or_else(|| fit(Likeness::default(), services, training)).table();
        held.iter().map(|row| table.slowdown(ServiceId(row.victim), &[ServiceId(row.beside)])).collect()
    }
}

/// A predictor that has seen all of `measured`, up to the first figure that cannot be.
fn fit(likeness: Likeness, services: &[Service], measured: &[Measured]) -> Predictor {
    let mut predictor = Predictor::new(likeness);
    for service in services {
        predictor.know(service.clone());
    }
    let pairs = measured.iter().map(|row| (ServiceId(row.victim), ServiceId(row.beside), row.slowdown));
    // Tables are checked when they are read: nothing is left out here.
    let _ = predictor.observe_pairs(pairs);
    predictor
}

/// Every pair is slowed alike: by the median of those seen.
pub struct Median;

impl Learner for Median {
    fn predict(&self, _: &[Service], training: &[Measured], held: &[Measured]) -> Vec<f64> {
        let mut seen: Vec<_> = training.iter().map(|row| row.slowdown).collect();
        seen.sort_by(f64::total_cmp);
        vec![seen.get(seen.len() / 2).copied().unwrap_or(2.0); held.len()]
    }
}

/// Two tenants take turns: each is twice as slow.
pub struct TimeSlicing;

impl Learner for TimeSlicing {
    fn predict(&self, _: &[Service], _: &[Measured], held: &[Measured]) -> Vec<f64> {
        vec![2.0; held.len()]
    }
}

/// Sensitivity of the victim times pressure of the neighbour, each the mean logarithm of its row or column, fitted in turns.
pub struct SensitivityTimesPressure;

impl Learner for SensitivityTimesPressure {
    fn predict(&self, services: &[Service], training: &[Measured], held: &[Measured]) -> Vec<f64> {
        const ROUNDS: usize = 30;
        /// Weight of nothing known, in measurements.
        const RIDGE: f64 = 0.1;
        #[allow(clippy::cast_precision_loss, reason = "some hundreds")]
        let mean = training.iter().map(|row| row.slowdown.ln()).sum::<f64>() / training.len().max(1) as f64;
        let (mut sensitivity, mut pressure) = (vec![0.0; services.len()], vec![0.0; services.len()]);
        let left = |row: &Measured, other: f64| row.slowdown.ln() - mean - other;
        for _ in 0..ROUNDS {
            sensitivity = means(
                services.len(),
                RIDGE,
                training.iter().map(|row| (row.victim, left(row, pressure[row.beside]))),
            );
            pressure = means(
                services.len(),
                RIDGE,
                training.iter().map(|row| (row.beside, left(row, sensitivity[row.victim]))),
            );
        }
        held.iter()
            .map(|row| (mean + sensitivity[row.victim] + pressure[row.beside]).exp().max(1.0))
            .collect()
    }
}

fn means(count: usize, ridge: f64, values: impl Iterator<Item = (usize, f64)>) -> Vec<f64> {
    let mut sums = vec![(0.0, ridge); count];
    for (at, value) in values {
        sums[at].0 += value;
        sums[at].1 += 1.0;
    }
    sums.into_iter().map(|(sum, weight)| sum / weight).collect()
}
