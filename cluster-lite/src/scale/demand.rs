//! Arrivals and queue as work: GPU-time rather than a count, where sizes are known (Cypress, papers.md 3.4).

use weir_protocol::units::{Nanos, Tokens};

use super::{Rules, Seen, Service};

/// GPUs that are busy with this work for as long as `over`.
pub fn gpus(work: Tokens, over: Nanos) -> f64 {
    #[allow(
        clippy::cast_precision_loss,
        reason = "work over time: nobody plans to the ten thousandth nanosecond"
    )]
    let ratio = work.0.max(0) as f64 / over.0.max(1) as f64;
    ratio
}

/// What arrives, averaged, and what waits.
#[derive(Clone, Debug)]
pub struct Demand {
    by_work: bool,
    over_s: f64,
    before: Option<Nanos>,
    average: f64,
    weight: f64,
}

/// Demand at the moment, in GPUs and GPU-seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// Work that arrives, in GPUs.
    pub arriving: f64,
    /// Work that arrived since the last look, in tokens.
    pub arrived: Tokens,
    /// Work that waits, in GPU-seconds.
    pub queued_s: f64,
}

impl Demand {
    /// A memory of what arrives. `by_work`: by sizes where they are known; else each request counts as a mean one.
    pub const fn new(rules: &Rules, by_work: bool) -> Self {
        Self { by_work, over_s: rules.rate_s, before: None, average: 0.0, weight: 0.0 }
    }

    /// Over how many seconds arrivals are averaged.
    pub const fn over_s(&self) -> f64 {
        self.over_s
    }

    /// One more look.
    pub fn see(&mut self, service: &Service, seen: &Seen) -> Need {
        let mean =
            |count: u64| Tokens(service.mean_work.0.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX)));
        let of = |count, work: Option<Tokens>| work.filter(|_| self.by_work).unwrap_or_else(|| mean(count));
        let arrived = of(seen.arrived, seen.arrived_work);
        let queued = of(seen.queued, seen.queued_work);
        let passed = seen.now.since(self.before.unwrap_or(Nanos(0)));
        // The first look has nothing before it: a second is what lies between two.
        let passed = if self.before.is_none() { Nanos::from_secs(1) } else { passed };
        self.before = Some(seen.now);
        self.learn(gpus(arrived, passed), nanos(passed) / 1e9);
        Need { arriving: self.average, arrived, queued_s: gpus(queued, Nanos::from_secs(1)) }
    }

    /// An exponential mean that is unbiased from its first value on.
    fn learn(&mut self, rate: f64, passed_s: f64) {
        let keep = (-passed_s / self.over_s.max(1e-3)).exp();
        let weight = self.weight * keep + (1.0 - keep);
        if weight > 0.0 {
            self.average = (self.average * self.weight * keep + rate * (1.0 - keep)) / weight;
        }
        self.weight = weight;
    }
}

#[allow(clippy::cast_precision_loss, reason = "a time between two looks is far below 2^53 ns")]
const fn nanos(time: Nanos) -> f64 {
    time.0 as f64
}
