//! How many requests of a GPU run together and how many queue, and on which device class. Source: PALDIA (IPDPS 2024);
//! its formulae are not published, these are ours.
//!
//! More at once: less queueing, more interference. The model is a birth-death chain: requests arrive at random at a rate, k at
//! once finish at k / (service x slowdown(k)) each second, and of those beyond the concurrency the rest queue. From its
//! stationary states follows the time that a given part of the requests does not pass; the concurrency with the least such time
//! is chosen. The device class is the cheapest (cost an hour x GPUs) whose time keeps the SLO.
//!
//! Times are in milliseconds, rates in requests a second, costs in any money an hour.

mod device;
mod hardware;
pub mod queue;
pub mod server;
pub mod sweep;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use self::hardware::{Class, Hardware, Judged, MOST_GPUS, NotTaken, Promise, cheapest, judge};
use super::interference::{ServiceId, Table};

/// How much slower each of k requests runs when k run together.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    slowdowns: Vec<f64>,
}

impl Curve {
    /// From the slowdowns for 1, 2, 3 ... together. One more never speeds the others up: where a figure falls, the one before
    /// stands. Nothing if there is no figure, or one that is below 1 or no number.
    pub fn new(slowdowns: &[f64]) -> Option<Self> {
        let possible = slowdowns.iter().all(|value| (1.0..f64::INFINITY).contains(value));
        let mut most = 1.0_f64;
        let rising = slowdowns.iter().map(|value| {
            most = most.max(*value);
            most
        });
        (possible && !slowdowns.is_empty()).then(|| Self { slowdowns: rising.collect() })
    }

    /// As the predictor sees up to `most` instances of a service together.
    pub fn predicted(table: &Table, service: ServiceId, most: usize) -> Self {
        let together = |count: usize| table.slowdown(service, &vec![service; count]);
        let slowdowns: Vec<_> = (0..most.max(1)).map(together).collect();
        Self::new(&slowdowns).unwrap_or(Self { slowdowns: vec![1.0] })
    }

    /// Most requests together that it knows of.
    pub fn most(&self) -> usize {
        self.slowdowns.len()
    }

    /// The slowdown with `count` together; beyond the last known it grows in proportion.
    pub fn slowdown(&self, count: usize) -> f64 {
        let last = self.slowdowns.len();
        let known = self.slowdowns[count.clamp(1, last) - 1];
        #[allow(clippy::cast_precision_loss, reason = "a handful")]
        let beyond = (count.max(last) as f64) / last as f64;
        known * beyond
    }
}

/// A kind of request on one device class.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Requests a second that come to one GPU.
    pub rate: f64,
    /// Milliseconds of one request with the GPU to itself.
    pub service_ms: f64,
    /// Standard deviation of that time over its mean.
    pub variation: f64,
    /// What others beside it cost.
    pub curve: Curve,
}

/// A concurrency and what it is expected to come to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Requests that run together; others queue.
    pub together: usize,
    /// Time that the promised part does not pass, in milliseconds; infinite if more comes than can be done.
    #[serde(rename = "predicted_ms")]
    pub quantile_ms: f64,
}

/// How far two predicted times may lie apart and count as one: about the error of the chain.
pub const ALIKE: f64 = 0.05;

/// Each concurrency that the curve knows of, with the predicted time of `part` of the requests.
pub fn choices(load: &Load, part: f64) -> Vec<Choice> {
    let choice = |together| Choice { together, quantile_ms: queue::quantile_ms(load, together, part) };
    (1..=load.curve.most()).map(choice).collect()
}

/// The one with the least predicted time; of those that hardly differ the smallest, since fewer together need less memory and
/// disturb less. Under overload the one that does most.
pub fn choose(load: &Load, choices: &[Choice]) -> Choice {
    let best = choices.iter().map(|choice| choice.quantile_ms).fold(f64::INFINITY, f64::min);
    let alike = choices.iter().find(|choice| choice.quantile_ms <= best * (1.0 + ALIKE) && best.is_finite());
    let speed = |choice: &&Choice| queue::finished_per_s(load, choice.together);
    let fastest = || choices.iter().max_by(|one, other| speed(one).total_cmp(&speed(other)));
    // A curve knows of one at least.
    alike.or_else(fastest).copied().unwrap_or(Choice { together: 1, quantile_ms: f64::INFINITY })
}

/// How many requests to let run together, so that `part` of them takes least.
pub fn concurrency(load: &Load, part: f64) -> Choice {
    choose(load, &choices(load, part))
}
