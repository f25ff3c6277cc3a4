//! What tenants on one GPU cost each other: predicted from solo profiles, refined by measurements.
//!
//! *Slowdown* is throughput alone over throughput beside others: 1 is as fast as alone. Two models, as in SMore
//! (TPDS 36(5), 2025), whose features and constants are not published; these are ours:
//!
//! ```text
//! solo(a | S)   queueing alone: tenants meet at the SMs and at the copy engines (solo.rs); exact for fair shares
//! two-way       ln slowdown(a | b)    = ln solo(a | b) + what like pairs taught              (two_way.rs)
//! multi-way     excess(a | S)         = sum over b of excess(a | b) x solo's excess of the set over that of its pairs
//!                                       x what like sets taught                              (multi_way.rs)
//! ```
//!
//! with excess = slowdown - 1. "What like pairs taught" is Gaussian-process regression (kriging) of the logarithm: pairs are
//! alike as far as their victims are alike and their neighbours are. It needs no training run: a measurement is one more row of
//! a triangular factor. Where nothing was measured the queueing model stands, and where that knows nothing of a tenant it
//! is taken to be always busy.
//!
//! Everything here holds for one device class; a cluster has one [`Predictor`] for each.

mod factor;
pub mod folds;
mod likeness;
mod multi_way;
mod regression;
pub mod solo;
mod table;
#[cfg(test)]
mod tests;
mod two_way;

pub use likeness::{Likeness, Service};
pub use solo::Uses;
pub use table::{Breach, Table};

use std::collections::HashMap;

use likeness::Kin;
use multi_way::{MultiWay, sorted};
use two_way::TwoWay;

/// Most different pairs, and most different sets, that a predictor learns from: the factor of one takes 32 MiB.
pub const MOST_MEASURED: usize = 2_896;
/// A measured speed-up beyond a factor of two is no speed-up but a wrong figure of the speed alone.
pub const LEAST_SLOWDOWN: f64 = 0.5;
/// The greatest slowdown that counts as one: beyond it a tenant stands still, and a ratio says nothing.
pub const MOST_SLOWDOWN: f64 = 1_000.0;

/// A service within its predictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(usize);

impl ServiceId {
    /// Its place in the order of first mention.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// A measurement that teaches nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unlearned {
    /// A ratio that cannot have been measured.
    #[error("a slowdown of {0} cannot be: {LEAST_SLOWDOWN} to {MOST_SLOWDOWN} can")]
    Impossible(f64),
    /// A slowdown needs somebody beside.
    #[error("nobody was beside it: that is its speed alone")]
    Alone,
    /// Memory for further pairs or sets is spent.
    #[error("{MOST_MEASURED} different ones are learned: repeated ones alone are taken")]
    Full,
}

/// Predicts slowdowns on one device class, and learns from measured ones.
#[derive(Clone, Debug)]
pub struct Predictor {
    kin: Kin,
    by_name: HashMap<String, ServiceId>,
    two_way: TwoWay,
    multi_way: MultiWay,
}

impl Default for Predictor {
    fn default() -> Self {
        Self::new(Likeness::default())
    }
}

impl Predictor {
    /// A predictor that has measured nothing.
    pub fn new(likeness: Likeness) -> Self {
        let (two_way, multi_way) = (TwoWay::default(), MultiWay::default());
        Self { kin: Kin::new(likeness), by_name: HashMap::new(), two_way, multi_way }
    }

    /// Makes a service known; one of that name keeps its first profile.
    pub fn know(&mut self, service: Service) -> ServiceId {
        let next = ServiceId(self.kin.services().len());
        let id = *self.by_name.entry(service.name.clone()).or_insert(next);
        if id == next {
            self.kin.push(service);
        }
        id
    }

    /// The service of that name.
    pub fn find(&self, name: &str) -> Option<ServiceId> {
        self.by_name.get(name).copied()
    }

    /// The services, in the order in which they became known.
    pub fn services(&self) -> &[Service] {
        self.kin.services()
    }

    /// Learns that `victim` ran `slowdown` times slower than alone beside all of `beside`. A pair or set that was measured
    /// before moves towards the new figure.
    ///
    /// # Errors
    /// A slowdown that cannot be, nobody beside, or no room for another pair or set.
    pub fn observe(
        &mut self,
        victim: ServiceId,
        beside: &[ServiceId],
        slowdown: f64,
    ) -> Result<(), Unlearned> {
        match beside {
            [] => Err(Unlearned::Alone),
            [one] => self.observe_pairs([(victim, *one, slowdown)]),
            all => {
                let pair = |other| self.pair(victim, other).slowdown - 1.0;
                let expected = 1.0 + table::together(&self.kin, victim, all, pair);
                self.multi_way.observe(&self.kin, sorted(victim, all), possible(slowdown)?, expected)
            }
        }
    }

    /// Learns many pairs (victim, neighbour, slowdown) at once: all before the first that cannot be.
    ///
    /// # Errors
    /// As [`Predictor::observe`].
    pub fn observe_pairs(
        &mut self,
        pairs: impl IntoIterator<Item = (ServiceId, ServiceId, f64)>,
    ) -> Result<(), Unlearned> {
        let each = |(victim, neighbour, slowdown)| {
            self.two_way.observe(&self.kin, (victim, neighbour), possible(slowdown)?)
        };
        let outcome = pairs.into_iter().try_for_each(each);
        self.two_way.settle();
        outcome
    }

    /// The slowdown of `victim` beside `neighbour`, with the standard deviation of its logarithm.
    pub fn pair(&self, victim: ServiceId, neighbour: ServiceId) -> Estimate {
        self.two_way.estimate(&self.kin, (victim, neighbour))
    }

    /// All pairs at once, for placement: then a question costs a few look-ups. To be made anew after measurements.
    pub fn table(&self) -> Table {
        Table::of(&self.kin, &self.two_way, &self.multi_way)
    }

    /// How likely the measured pairs are under this likeness (logarithm; greater is better).
    pub fn likelihood(&self) -> f64 {
        self.two_way.likelihood()
    }
}

fn possible(slowdown: f64) -> Result<f64, Unlearned> {
    if (LEAST_SLOWDOWN..=MOST_SLOWDOWN).contains(&slowdown) {
        Ok(slowdown)
    } else {
        Err(Unlearned::Impossible(slowdown))
    }
}

/// A predicted slowdown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub slowdown: f64,
    /// Standard deviation of its logarithm: 0.1 is about 10 %.
    pub deviation: f64,
}
