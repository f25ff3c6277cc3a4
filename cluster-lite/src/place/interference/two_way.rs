//! The two-way model: one victim, one neighbour.

use std::collections::HashMap;

use super::likeness::Kin;
use super::regression::Regression;
use super::{Estimate, MOST_MEASURED, ServiceId, Unlearned, solo};

/// What measured pairs teach of others: the logarithm of their slowdown over that of the queueing model.
#[derive(Clone, Debug, Default)]
pub(super) struct TwoWay {
    pairs: Vec<(ServiceId, ServiceId)>,
    at: HashMap<(ServiceId, ServiceId), usize>,
    regression: Regression,
}

impl TwoWay {
    /// Takes one measurement; [`TwoWay::settle`] after the last.
    pub(super) fn observe(
        &mut self,
        kin: &Kin,
        pair: (ServiceId, ServiceId),
        slowdown: f64,
    ) -> Result<(), Unlearned> {
        let value = slowdown.max(1.0).ln() - prior(kin, pair).ln();
        if let Some(&at) = self.at.get(&pair) {
            self.regression.again(at, value);
            return Ok(());
        }
        if self.pairs.len() == MOST_MEASURED {
            return Err(Unlearned::Full);
        }
        // With noise in it no measurement is wholly determined by others.
        let own = kin.pairs(pair, pair) + kin.likeness().noise;
        self.regression.push(&self.column(kin, pair), own, value);
        self.at.insert(pair, self.pairs.len());
        self.pairs.push(pair);
        Ok(())
    }

    pub(super) fn settle(&mut self) {
        self.regression.settle();
    }

    pub(super) fn estimate(&self, kin: &Kin, pair: (ServiceId, ServiceId)) -> Estimate {
        let column = self.column(kin, pair);
        let slowdown = (prior(kin, pair) * self.regression.value(&column).exp()).max(1.0);
        Estimate { slowdown, deviation: self.regression.deviation(&column, kin.pairs(pair, pair)) }
    }

    /// Slowdowns of all pairs, row by row. The covariances are products of likenesses, so the sums over all measurements are
    /// two matrix products instead of one sum for each pair.
    pub(super) fn all(&self, kin: &Kin) -> Vec<f64> {
        let count = kin.services().len();
        let cells =
            || (0..count).flat_map(|row| (0..count).map(move |column| (ServiceId(row), ServiceId(column))));
        let alike: Vec<_> = cells().map(|(one, other)| kin.alike(one, other)).collect();
        let mut weights = vec![0.0; count * count];
        for (&(victim, neighbour), weight) in self.pairs.iter().zip(self.regression.weights()) {
            weights[victim.0 * count + neighbour.0] += weight;
        }
        let (by_victim, by_neighbour) = (product(&alike, &weights, count), product(&weights, &alike, count));
        let by_both = product(&by_victim, &alike, count);
        let row_sum = |row: usize| by_victim[row * count..][..count].iter().sum::<f64>();
        let column_sum = |column: usize| by_neighbour.iter().skip(column).step_by(count).sum::<f64>();
        let (victims, neighbours): (Vec<_>, Vec<_>) =
            ((0..count).map(row_sum).collect(), (0..count).map(column_sum).collect());
        let value = |pair: (ServiceId, ServiceId)| {
            let single = kin.likeness().single * (victims[pair.0.0] + neighbours[pair.1.0]);
            let learned = self.regression.mean() + by_both[pair.0.0 * count + pair.1.0] + single;
            (prior(kin, pair) * learned.exp()).max(1.0)
        };
        cells().map(value).collect()
    }

    pub(super) fn likelihood(&self) -> f64 {
        self.regression.likelihood()
    }

    fn column(&self, kin: &Kin, pair: (ServiceId, ServiceId)) -> Vec<f64> {
        self.pairs.iter().map(|other| kin.pairs(pair, *other)).collect()
    }
}

/// What the solo profiles alone say.
fn prior(kin: &Kin, (victim, neighbour): (ServiceId, ServiceId)) -> f64 {
    solo::slowdown(kin.uses(victim), &[kin.uses(neighbour)])
}

fn product(one: &[f64], other: &[f64], count: usize) -> Vec<f64> {
    let mut result = vec![0.0; count * count];
    for (row, out) in one.chunks(count.max(1)).zip(result.chunks_mut(count.max(1))) {
        for (factor, line) in row.iter().zip(other.chunks(count)) {
            if *factor != 0.0 {
                out.iter_mut().zip(line).for_each(|(sum, value)| *sum += factor * value);
            }
        }
    }
    result
}
