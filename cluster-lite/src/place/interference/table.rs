//! All pairs of a predictor at once: what placement asks.

use super::likeness::Kin;
use super::multi_way::{MultiWay, sorted};
use super::two_way::TwoWay;
use super::{ServiceId, Uses, solo};

/// Slowdowns of every pair and set, as they were predicted when the table was made.
#[derive(Clone, Debug)]
pub struct Table {
    kin: Kin,
    pairs: Vec<f64>,
    multi_way: MultiWay,
}

/// Somebody would be slowed beyond the ceiling.
#[derive(Clone, Debug, PartialEq)]
pub struct Breach {
    /// Index of the tenant in the set that was asked for.
    pub tenant: usize,
    /// Its predicted slowdown.
    pub slowdown: f64,
}

impl Table {
    pub(super) fn of(kin: &Kin, two_way: &TwoWay, multi_way: &MultiWay) -> Self {
        Self { kin: kin.clone(), pairs: two_way.all(kin), multi_way: multi_way.clone() }
    }

    /// How many times slower than alone `victim` runs beside all of `beside`: at least 1.
    pub fn slowdown(&self, victim: ServiceId, beside: &[ServiceId]) -> f64 {
        match beside {
            [] => 1.0,
            [one] => self.pair(victim, *one),
            all => self.set(victim, all),
        }
    }

    /// The slowdown of each tenant of a set that shares one GPU.
    pub fn slowdowns(&self, set: &[ServiceId]) -> Vec<f64> {
        let others = |at: usize| [&set[..at], &set[at + 1..]].concat();
        set.iter().enumerate().map(|(at, victim)| self.slowdown(*victim, &others(at))).collect()
    }

    /// Whether nobody of a set is slowed beyond `ceiling`.
    ///
    /// # Errors
    /// Who is slowed most, if that passes the ceiling.
    pub fn within(&self, set: &[ServiceId], ceiling: f64) -> Result<(), Breach> {
        let worst =
            self.slowdowns(set).into_iter().enumerate().max_by(|one, other| one.1.total_cmp(&other.1));
        match worst {
            Some((tenant, slowdown)) if slowdown > ceiling => Err(Breach { tenant, slowdown }),
            _ => Ok(()),
        }
    }

    fn pair(&self, victim: ServiceId, neighbour: ServiceId) -> f64 {
        self.pairs[victim.index() * self.kin.services().len() + neighbour.index()]
    }

    fn set(&self, victim: ServiceId, beside: &[ServiceId]) -> f64 {
        let learned = self.multi_way.factor(&self.kin, &sorted(victim, beside));
        (1.0 + learned * together(&self.kin, victim, beside, |other| self.pair(victim, other) - 1.0)).max(1.0)
    }
}

/// The excess of a set from the excesses of its pairs: their sum, as much more or less as the queueing model says that
/// together they are.
pub(super) fn together(
    kin: &Kin,
    victim: ServiceId,
    beside: &[ServiceId],
    pair: impl Fn(ServiceId) -> f64,
) -> f64 {
    let (own, all): (_, Vec<Uses>) =
        (kin.uses(victim), beside.iter().map(|other| kin.uses(*other)).collect());
    let apart: f64 = all.iter().map(|other| solo::slowdown(own, &[*other]) - 1.0).sum();
    let ratio = if apart > 0.0 { (solo::slowdown(own, &all) - 1.0) / apart } else { 1.0 };
    ratio * beside.iter().map(|other| pair(*other)).sum::<f64>()
}
