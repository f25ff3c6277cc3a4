//! Requests in virtual time: they arrive, wait, and are served in batches by instances that a policy starts and sizes.
//!
//! ```text
//!   model      how long a request takes: the published latencies, and what is assumed beside them
//!   pool       GPUs with share and memory, the fullest that fits first
//!   instance   one instance: what it works on, and how fast
//!   engine     the events: a request, a batch's next end, a start's end, a second
//!   ticks      each second: what a policy sees, and what it wishes done
//!   outcome    what came of it
//!   compare    policies side by side, over seeds
//! ```
//!
//! What is real in it: the policies ([`crate::scale`]) and the recorded arrivals. All else is a model. Requests join and
//! leave a running batch; each of a batch of *n* advances at `speed(share) / (1 + slope (n - 1))` of its pace alone on a
//! whole GPU. A share that is changed counts at once, as the node manager's resize does (a millisecond).

mod compare;
mod engine;
mod instance;
mod model;
mod outcome;
mod pool;
#[cfg(test)]
mod tests;
mod ticks;

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use weir_protocol::units::{Bytes, Nanos};

pub use self::compare::{Summary, compare};
pub use self::model::{MODELS, Model, model};
pub use self::outcome::{Outcome, Quantiles, ServiceOutcome};
use crate::fault::Fault;
use crate::place::POLICIES;
use crate::scale::{Row, Rules};
use crate::trace::requests::Trace;

/// How long a start takes: log-normal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColdStart {
    /// Half take less.
    pub median: Nanos,
    /// Nine of ten take less.
    pub p90: Nanos,
}

impl Default for ColdStart {
    /// Load times of the Alibaba GenAI 2026 trace (`basemodel_update_latency`): median 22.7 s, p90 42.0 s.
    fn default() -> Self {
        Self { median: Nanos::from_millis(22_718), p90: Nanos::from_millis(41_988) }
    }
}

/// The 90 % quantile of the standard normal distribution.
const NORMAL_P90: f64 = 1.281_551_565_5;

impl ColdStart {
    fn draw(&self, random: &mut ChaCha8Rng) -> Nanos {
        let (median, p90) = (float(self.median), float(self.p90));
        let drawn = LogNormal::new(median.ln(), (p90 / median).ln() / NORMAL_P90);
        drawn.map_or(self.median, |times| nanos(times.sample(random)))
    }
}

/// A service: what it runs and who asks it.
#[derive(Clone, Debug)]
pub struct Hosted {
    /// What runs.
    pub model: &'static Model,
    /// Who asks.
    pub trace: Arc<Trace>,
    /// Fewest instances.
    pub floor: u32,
    /// Most instances.
    pub ceiling: u32,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The services.
    pub services: Vec<Hosted>,
    /// GPUs, all alike.
    pub gpus: usize,
    /// Device memory of each.
    pub gpu_memory: Bytes,
    /// How long a start takes.
    pub cold_start: ColdStart,
    /// How long an instance takes to come back from the host; nothing: it cannot be parked.
    pub unpark: Option<Nanos>,
    /// By how much predicted work misses the true one: sigma of its logarithm. A language model's answer is not known
    /// when it is asked for.
    pub prediction_sigma: f64,
    /// The placement policy by which instances find their GPUs.
    pub place: String,
    /// Requests that may wait for a service; more are refused.
    pub queue: usize,
    /// What the policies go by.
    pub rules: Rules,
}

impl Scenario {
    /// Services on as many GPUs as asked for, with all else as documented in `docs/scaling.md`.
    pub fn new(services: Vec<Hosted>, gpus: usize) -> Self {
        Self {
            services,
            gpus,
            gpu_memory: Bytes::gib(80),
            cold_start: ColdStart::default(),
            unpark: Some(Nanos::from_secs(2)),
            prediction_sigma: 0.3,
            place: POLICIES[0].name.into(),
            queue: 100_000,
            rules: Rules::default(),
        }
    }
}

/// Simulates a scenario under a policy; the same seed gives the same outcome.
///
/// # Errors
/// There is no such placement policy.
pub fn run(scenario: &Scenario, policy: &Row, seed: u64) -> Result<Outcome, Fault> {
    Ok(engine::Engine::new(scenario, policy, seed)?.run())
}

#[allow(clippy::cast_precision_loss, reason = "simulated times are far below 2^53 ns")]
const fn float(time: Nanos) -> f64 {
    time.0 as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are at least 0 and below 2^53 ns"
)]
const fn nanos(time: f64) -> Nanos {
    Nanos(time as u64)
}
