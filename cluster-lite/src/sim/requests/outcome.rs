//! What came of a simulation.

use serde::Serialize;

/// Latencies in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half are faster.
    pub p50_ms: f64,
    /// 95 of 100 are.
    pub p95_ms: f64,
    /// 99 of 100 are.
    pub p99_ms: f64,
}

impl Quantiles {
    /// Of these latencies; zeros where there are none.
    pub fn of(mut latencies_ms: Vec<f64>) -> Self {
        let mut at = |of_thousand: usize| {
            if latencies_ms.is_empty() {
                return 0.0;
            }
            let index = ((latencies_ms.len() * of_thousand).div_ceil(1000)).max(1) - 1;
            *latencies_ms.select_nth_unstable_by(index, f64::total_cmp).1
        };
        Self { p50_ms: at(500), p95_ms: at(950), p99_ms: at(990) }
    }
}

/// One service.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServiceOutcome {
    /// Its model and its trace.
    pub name: String,
    /// Requests that came.
    pub arrived: u64,
    /// Requests that were answered.
    pub served: u64,
    /// Requests without an answer at the end: in a queue, or with an instance.
    pub waiting: u64,
    /// Requests that found the queue full.
    pub refused: u64,
    /// Requests that were answered too late, or not at all.
    pub violations: u64,
    /// Instances that were started: each loads its model.
    pub cold_starts: u64,
    /// Instances that came back from the host.
    pub unparks: u64,
    /// Times that an instance found no GPU.
    pub unplaced: u64,
    /// Share that instances held, times the time.
    pub gpu_seconds: f64,
    /// Of those that were answered.
    pub latency: Quantiles,
    /// Most instances at once.
    pub most_instances: u32,
    /// Instances that answered, or were about to, in each second.
    pub instances: Vec<u32>,
}

/// All services under one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The policy.
    pub policy: &'static str,
    /// The seed.
    pub seed: u64,
    /// Always: nothing here was measured.
    pub simulated: bool,
    /// Simulated seconds.
    pub seconds: f64,
    /// The services.
    pub services: Vec<ServiceOutcome>,
}

impl Outcome {
    /// A figure of all services together.
    pub fn sum(&self, figure: impl Fn(&ServiceOutcome) -> f64) -> f64 {
        self.services.iter().map(figure).sum()
    }
}
