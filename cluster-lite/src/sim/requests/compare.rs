//! Policies side by side, over seeds.

use serde::Serialize;

use super::{Outcome, Quantiles, Scenario, ServiceOutcome, run};
use crate::fault::Fault;
use crate::scale::Row;

/// One policy: means over the seeds, all services together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The policy.
    pub policy: &'static str,
    /// Seeds.
    pub seeds: u64,
    /// Requests.
    pub arrived: f64,
    /// Requests answered too late or not at all.
    pub violations: f64,
    /// The same of a hundred requests.
    pub violation_percent: f64,
    /// Instances started.
    pub cold_starts: f64,
    /// Instances that came back from the host.
    pub unparks: f64,
    /// Starts for which no GPU had room.
    pub unplaced: f64,
    /// Share held, times the time.
    pub gpu_seconds: f64,
    /// Latencies: means of the seeds' quantiles, each weighted by its service's answers.
    pub latency: Quantiles,
    /// Instances, on average over time.
    pub mean_instances: f64,
    /// Most instances of one service at once, over all seeds.
    pub most_instances: u32,
}

impl Summary {
    /// The mean of these outcomes.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let count = ratio_of(outcomes.len());
        let mean = |figure: &dyn Fn(&ServiceOutcome) -> f64| {
            outcomes.iter().map(|outcome| outcome.sum(figure)).sum::<f64>() / count
        };
        let served = mean(&|service| float(service.served)).max(1.0);
        let quantile = |of: fn(&Quantiles) -> f64| {
            mean(&|service| of(&service.latency) * float(service.served)) / served
        };
        let arrived = mean(&|service| float(service.arrived));
        let violations = mean(&|service| float(service.violations));
        let most =
            outcomes.iter().flat_map(|outcome| &outcome.services).map(|service| service.most_instances);
        Self {
            policy: outcomes.first().map_or("", |outcome| outcome.policy),
            seeds: outcomes.len() as u64,
            arrived,
            violations,
            violation_percent: 100.0 * violations / arrived.max(1.0),
            cold_starts: mean(&|service| float(service.cold_starts)),
            unparks: mean(&|service| float(service.unparks)),
            unplaced: mean(&|service| float(service.unplaced)),
            gpu_seconds: mean(&|service| service.gpu_seconds),
            latency: Quantiles {
                p50_ms: quantile(|latency| latency.p50_ms),
                p95_ms: quantile(|latency| latency.p95_ms),
                p99_ms: quantile(|latency| latency.p99_ms),
            },
            mean_instances: mean(&|service| mean_of(&service.instances)),
            most_instances: most.max().unwrap_or(0),
        }
    }

    /// What it would cost at this price of a GPU for an hour.
    pub fn cost(&self, gpu_hour: f64) -> f64 {
        self.gpu_seconds / 3600.0 * gpu_hour
    }

    /// Whether it is better than another in violations, cold starts or GPU-seconds, and worse in none of them.
    pub fn dominates(&self, other: &Self) -> bool {
        let pairs = self.axes().into_iter().zip(other.axes());
        let (mut better, mut worse) = (false, false);
        for (mine, others) in pairs {
            better |= mine < others;
            worse |= mine > others;
        }
        better && !worse
    }

    fn axes(&self) -> [f64; 3] {
        [self.violations, self.cold_starts, self.gpu_seconds]
    }
}

/// Runs each policy with each of `seeds` seeds; `draw` gives the scenario of a seed, so that drawn traces differ, too.
///
/// # Errors
/// A scenario names a placement policy that there is not.
pub fn compare(
    policies: &[&Row],
    seeds: u64,
    mut draw: impl FnMut(u64) -> Scenario,
) -> Result<Vec<Vec<Outcome>>, Fault> {
    let mut all = vec![Vec::new(); policies.len()];
    for seed in 1..=seeds {
        let scenario = draw(seed);
        for (outcomes, policy) in all.iter_mut().zip(policies) {
            outcomes.push(run(&scenario, policy, seed)?);
        }
    }
    Ok(all)
}

fn mean_of(counts: &[u32]) -> f64 {
    counts.iter().map(|count| f64::from(*count)).sum::<f64>() / ratio_of(counts.len())
}

#[allow(clippy::cast_precision_loss, reason = "a length, at least 1 for a division")]
fn ratio_of(count: usize) -> f64 {
    count.max(1) as f64
}

#[allow(clippy::cast_precision_loss, reason = "counts of requests")]
const fn float(count: u64) -> f64 {
    count as f64
}
