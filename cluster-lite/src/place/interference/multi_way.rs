//! The multi-way model: what measured sets teach beyond their pairs.
//!
//! Two sets are alike as far as their victims are and, on average, their members; what is learned is the logarithm of the
//! measured excess over the one that the pairs predict.

use std::collections::HashMap;

use super::likeness::Kin;
use super::regression::Regression;
use super::{MOST_MEASURED, ServiceId, Unlearned};

/// Excess below which a set says nothing of contention, in parts of the speed alone.
const LEAST_EXCESS: f64 = 0.02;

/// A victim and all beside it, sorted.
pub(super) type Set = (ServiceId, Vec<ServiceId>);

#[derive(Clone, Debug, Default)]
pub(super) struct MultiWay {
    sets: Vec<Set>,
    at: HashMap<Set, usize>,
    regression: Regression,
}

impl MultiWay {
    /// Learns a measured slowdown where the pairs say `expected`.
    pub(super) fn observe(
        &mut self,
        kin: &Kin,
        set: Set,
        slowdown: f64,
        expected: f64,
    ) -> Result<(), Unlearned> {
        let excess = |slowdown: f64| (slowdown - 1.0).max(LEAST_EXCESS);
        let value = (excess(slowdown) / excess(expected)).ln();
        if let Some(&at) = self.at.get(&set) {
            self.regression.again(at, value);
        } else {
            if self.sets.len() == MOST_MEASURED {
                return Err(Unlearned::Full);
            }
            // With noise in it no measurement is wholly determined by others.
            let own = covariance(kin, &set, &set) + kin.likeness().noise;
            self.regression.push(&self.column(kin, &set), own, value);
            self.at.insert(set.clone(), self.sets.len());
            self.sets.push(set);
        }
        self.regression.settle();
        Ok(())
    }

    /// By how much the excess of a set differs from what its pairs say.
    pub(super) fn factor(&self, kin: &Kin, set: &Set) -> f64 {
        if self.sets.is_empty() {
            return 1.0;
        }
        self.regression.value(&self.column(kin, set)).exp()
    }

    fn column(&self, kin: &Kin, set: &Set) -> Vec<f64> {
        self.sets.iter().map(|other| covariance(kin, set, other)).collect()
    }
}

fn covariance(kin: &Kin, one: &Set, other: &Set) -> f64 {
    let members = one.1.iter().flat_map(|a| other.1.iter().map(move |b| kin.alike(*a, *b)));
    #[allow(clippy::cast_precision_loss, reason = "a handful of tenants")]
    let mean = members.sum::<f64>() / (one.1.len() * other.1.len()) as f64;
    kin.likeness().pair(kin.alike(one.0, other.0), mean)
}

/// The same set however its members are ordered.
pub(super) fn sorted(victim: ServiceId, beside: &[ServiceId]) -> Set {
    let mut beside = beside.to_vec();
    beside.sort_unstable();
    (victim, beside)
}
