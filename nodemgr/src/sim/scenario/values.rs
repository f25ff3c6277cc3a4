//! What the words and numbers of a scenario come to: times, shares, promises.

use weir_protocol::units::{Nanos as Time, SmShare};
use weir_simgpu_model::{Nanos, Spec};

use super::{Inference, Offline, Scenario, Tenant, Training};
use crate::fault::Fault;
use crate::sim::engine::START;
use crate::sim::measure::Window;
use crate::sim::random::Random;

/// Longest time that a scenario may name, a day: sums of a few stay far within 64 bits.
const LONGEST_NS: f64 = 86_400e9;

/// Nanoseconds; what is no time at all counts as none.
#[allow(clippy::cast_possible_truncation, reason = "cut at a day")]
#[allow(clippy::cast_sign_loss, reason = "a negative number becomes zero")]
pub fn nanos(ns: f64) -> Nanos {
    ns.clamp(0.0, LONGEST_NS).round() as Nanos
}

fn ms(ms: f64) -> Nanos {
    nanos(ms * 1e6)
}

impl Inference {
    /// The longest kernel.
    pub fn unit(&self) -> Nanos {
        nanos(self.unit_us * 1e3)
    }

    /// Work of reading so many prompts.
    pub fn prefill(&self, prompts: usize) -> Nanos {
        ms(self.prefill_ms + self.prefill_each_ms * prompts as f64)
    }

    /// Work of one step.
    pub fn decode(&self) -> Nanos {
        ms(self.decode_ms)
    }

    /// Tokens of one request.
    #[allow(clippy::cast_possible_truncation, reason = "cut at a million")]
    #[allow(clippy::cast_sign_loss, reason = "at least one")]
    pub fn draw_tokens(&self, random: &mut Random) -> u32 {
        random.gamma(self.tokens, self.token_cv).round().clamp(1.0, 1e6) as u32
    }
}

impl Training {
    /// The longest kernel.
    pub fn unit(&self) -> Nanos {
        nanos(self.unit_us * 1e3)
    }

    /// Work of an iteration.
    pub fn compute(&self) -> Nanos {
        ms(self.compute_ms)
    }

    /// Bubbles of an iteration.
    pub fn bubble(&self) -> Nanos {
        ms(self.bubble_ms)
    }
}

impl Offline {
    /// The longest kernel.
    pub fn unit(&self) -> Nanos {
        nanos(self.unit_us * 1e3)
    }

    /// Work of a batch.
    pub fn batch(&self) -> Nanos {
        ms(self.batch_ms)
    }
}

impl Tenant {
    /// The share guaranteed.
    ///
    /// # Errors
    /// It is no share.
    pub fn request(&self) -> Result<Option<SmShare>, Fault> {
        share("request", self.request.as_deref())
    }

    /// The share never exceeded.
    ///
    /// # Errors
    /// It is no share.
    pub fn limit(&self) -> Result<Option<SmShare>, Fault> {
        share("limit", self.limit.as_deref())
    }

    /// What it promises: the quantile and its bound.
    pub fn promise(&self) -> Option<Promise> {
        promise(self.slo.as_deref()?)
    }

    /// The longest kernel.
    pub fn unit(&self) -> Nanos {
        let units = [
            self.inference.as_ref().map(Inference::unit),
            self.training.as_ref().map(Training::unit),
            self.offline.as_ref().map(Offline::unit),
        ];
        units.into_iter().flatten().next().unwrap_or(0)
    }
}

/// The share that a key names.
///
/// # Errors
/// It is none.
pub fn share(key: &str, text: Option<&str>) -> Result<Option<SmShare>, Fault> {
    text.map(str::parse).transpose().map_err(|error| Fault::unit(key, &error))
}

/// A quantile of a latency and its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Which quantile, in thousandths.
    pub quantile_permille: u16,
    /// Its bound.
    pub target: Time,
}

/// Reads `p95 < 200ms`.
fn promise(text: &str) -> Option<Promise> {
    let promise = crate::latency::parse(text).ok()?;
    Some(Promise { quantile_permille: promise.quantile_permille, target: Time(promise.target_ns) })
}

impl Scenario {
    /// When it is measured, in nanoseconds of simulated time.
    pub fn window(&self) -> Window {
        let from = START + nanos(self.warm_up_seconds * 1e9);
        Window { from, to: from + nanos(self.seconds * 1e9) }
    }

    /// What a switch of contexts takes.
    pub fn switch(&self) -> Nanos {
        let standard = Spec::default().switch;
        self.device.switch_us.map_or(standard, |us| nanos(us * 1e3))
    }
}
