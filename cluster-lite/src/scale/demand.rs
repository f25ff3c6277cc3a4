//! Arrivals and queue as work: GPU-time rather than a count, where sizes are known (Cypress, papers.md 3.4).

use serde::{Deserialize, Serialize};
use weir_protocol::units::{Nanos, Tokens};

use super::{Rules, Seen, Service};

/// A start that takes so long or longer is worth the rules' bounds. Ours: less than a start's median (22.7 s, Alibaba 2026).
const LONG_START_S: f64 = 20.0;

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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Demand {
    by_work: bool,
    least_s: f64,  // averaged over so many seconds at least,
    most_s: f64,   // and at most,
    requests: f64, // and over so many requests in between
    rate: Average, // requests a second, over the most
    before: Option<Nanos>,
    average: Average, // in GPUs
    rush: Average,    // in GPUs
}

/// An exponential mean that begins at nothing: one large request after a silence is no rate.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Average(f64);

impl Average {
    fn learn(&mut self, value: f64, passed_s: f64, over_s: f64) -> f64 {
        let keep = (-passed_s / over_s.max(1e-3)).exp();
        self.0 = self.0 * keep + value * (1.0 - keep);
        self.0
    }
}

/// Demand at the moment, in GPUs and GPU-seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// Work that arrives, in GPUs.
    pub arriving: f64,
    /// The same over the time that a request may take, where that is shorter: a rush.
    pub rush: f64,
    /// Work that arrived since the last look, in tokens.
    pub arrived: Tokens,
    /// Work that waits, in GPU-seconds.
    pub queued_s: f64,
}

impl Demand {
    /// A memory of what arrives. `by_work`: by sizes where they are known; else each request counts as a mean one.
    pub const fn new(rules: &Rules, by_work: bool) -> Self {
        Self {
            by_work,
            least_s: rules.rate_s,
            most_s: rules.rate_most_s,
            requests: rules.rate_requests,
            rate: Average(0.0),
            before: None,
            average: Average(0.0),
            rush: Average(0.0),
        }
    }

    /// Over how many seconds arrivals are averaged now: as many as bring enough requests, within bounds.
    pub fn over_s(&self, service: &Service) -> f64 {
        let [least_s, most_s] = self.bounds_s(service);
        (self.requests / self.rate.0.max(1e-9)).min(most_s).max(least_s)
    }

    /// What a mistake costs is a start: where that is short, nobody waits for long to be sure.
    fn bounds_s(&self, service: &Service) -> [f64; 2] {
        let part = (seconds(service.cold_start) / LONG_START_S).min(1.0);
        [self.least_s, self.most_s].map(|bound| bound * part)
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
        let (rate, passed_s) = (gpus(arrived, passed), seconds(passed));
        #[allow(clippy::cast_precision_loss, reason = "requests of a second")]
        self.rate.learn(seen.arrived as f64 / passed_s.max(1e-9), passed_s, self.bounds_s(service)[1]);
        let over_s = self.over_s(service);
        let arriving = self.average.learn(rate, passed_s, over_s);
        // What is uneven within a request's own time is evened out by its batch.
        let rush_s = (seconds(service.patience) + own_s(service)).min(over_s);
        let rush = if rush_s <= passed_s { rate } else { self.rush.learn(rate, passed_s, rush_s) };
        Need { arriving, rush, arrived, queued_s: gpus(queued, Nanos::from_secs(1)) }
    }
}

/// Time of a mean request in a full batch at the profiled share, in seconds.
fn own_s(service: &Service) -> f64 {
    let in_a_batch = gpus(service.mean_work, Nanos::from_secs(1)) * f64::from(service.batch);
    in_a_batch / service.capacity(service.request).max(1e-9)
}

#[allow(clippy::cast_precision_loss, reason = "times of this kind are far below 2^53 ns")]
const fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}
