//! Scenarios: who shares the GPU, what each runs, and for how long. One TOML file each; times are in the names.

mod check;
mod read;
mod trace;
mod values;

use std::ffi::CStr;

use serde::{Deserialize, Serialize};
use weir_simgpu_model::Mode;

pub use self::check::seconds as check_seconds;
pub use self::trace::Recorded;
pub use self::values::{Promise, nanos};
use crate::control::schema::ClassName;

/// What stands in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is, in a sentence.
    pub about: String,
    /// Where its figures come from.
    #[serde(default)]
    pub source: String,
    /// What makes arrivals and jitter repeatable.
    #[serde(default = "one")]
    pub seed: u64,
    /// How long it is measured, in simulated time.
    pub seconds: f64,
    /// How long it runs before.
    #[serde(default = "two")]
    pub warm_up_seconds: f64,
    /// The GPU.
    #[serde(default)]
    pub device: Device,
    /// Who shares it.
    pub tenant: Vec<Tenant>,
}

/// The GPU; by default an A100 as the simulated GPU has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// How contexts share it.
    #[serde(default)]
    pub mode: Sharing,
    /// The driver's time slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_us: Option<f64>,
    /// A switch of contexts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_us: Option<f64>,
}

/// How contexts share a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// In turns.
    #[default]
    TimeSlice,
    /// All at once.
    Mps,
}

impl From<Sharing> for Mode {
    fn from(sharing: Sharing) -> Self {
        match sharing {
            Sharing::TimeSlice => Self::TimeSlice,
            Sharing::Mps => Self::Mps,
        }
    }
}

/// Who shares the GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its class.
    #[serde(default)]
    pub class: ClassName,
    /// Share guaranteed, such as `30%`; only a filler may leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Share never exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// What it promises its users: `p95 < 200ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<String>,
    /// Of which latency.
    #[serde(default)]
    pub slo_on: Metric,
    /// How the manager learns of it.
    #[serde(default)]
    pub slo_by: Readings,
    /// What its kernels ask of the GPU where several run at once.
    #[serde(default)]
    pub kernel: KernelShape,
    /// It serves requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inference: Option<Inference>,
    /// It trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<Training>,
    /// It works through batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<Offline>,
}

/// A latency of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// From arrival to the last token.
    #[default]
    Request,
    /// From arrival to the first token.
    FirstToken,
    /// Between two tokens, the mean of a request.
    PerToken,
}

impl Metric {
    /// What it is called by who tells it.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::Request => c"request_seconds",
            Self::FirstToken => c"time_to_first_token_seconds",
            Self::PerToken => c"time_per_output_token_seconds",
        }
    }
}

/// How the manager learns of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readings {
    /// To the nanosecond.
    #[default]
    Exact,
    /// As by the hint: from buckets, by the manager's own window.
    Hint,
}

/// What a kernel asks of the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelShape {
    /// Part of the SMs that its blocks fill.
    #[serde(default = "hundred")]
    pub sm_percent: u16,
    /// Part of the memory's bandwidth that it takes.
    #[serde(default)]
    pub bandwidth_percent: u16,
}

impl Default for KernelShape {
    fn default() -> Self {
        Self { sm_percent: 100, bandwidth_percent: 0 }
    }
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inference {
    /// Reading a batch of prompts, or the whole model for a batch where there are no tokens.
    #[serde(default)]
    pub prefill_ms: f64,
    /// What each prompt of a batch adds to that.
    #[serde(default)]
    pub prefill_each_ms: f64,
    /// A step that gives each request of the batch a token.
    #[serde(default)]
    pub decode_ms: f64,
    /// Tokens of a request, in the mean.
    #[serde(default = "one_float")]
    pub tokens: f64,
    /// How much they vary.
    #[serde(default)]
    pub token_cv: f64,
    /// Requests served at once.
    #[serde(default = "one_count")]
    pub batch: usize,
    /// Its longest kernel or graph.
    #[serde(default = "standard_unit")]
    pub unit_us: f64,
    /// When requests come.
    #[serde(default)]
    pub arrivals: Arrivals,
}

/// When requests come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// Requests in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_s: Option<f64>,
    /// Coefficient of variation of the time between two: 1 is Poisson, more is bursty.
    #[serde(default = "one_float")]
    pub cv: f64,
    /// A recorded trace instead: requests in each second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_per_s: Option<Vec<f64>>,
    /// A recorded trace of single requests instead: a CSV file, found from where the scenario is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// What stands in that file.
    #[serde(skip)]
    pub recorded: Vec<Recorded>,
    /// By what the rates of a trace are multiplied.
    #[serde(default = "one_float")]
    pub times: f64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { per_s: None, cv: 1.0, trace_per_s: None, trace: None, recorded: Vec::new(), times: 1.0 }
    }
}

/// A training loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// How it is spread over GPUs.
    pub parallel: Parallel,
    /// How it exchanges data with them.
    #[serde(default)]
    pub exchange: Exchange,
    /// Work of an iteration.
    pub compute_ms: f64,
    /// All bubbles of an iteration.
    pub bubble_ms: f64,
    /// Parts of a batch that follow each other through a pipeline.
    #[serde(default = "four")]
    pub micro_batches: u64,
    /// How much bubbles vary: standard deviation.
    #[serde(default)]
    pub jitter_percent: f64,
    /// Its longest kernel or graph.
    #[serde(default = "standard_unit")]
    pub unit_us: f64,
}

/// How training is spread over GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Parallel {
    /// Each has the whole model.
    #[default]
    Data,
    /// Each has some of the layers.
    Model,
    /// The same, with several micro-batches under way.
    Pipeline,
}

/// How training exchanges data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exchange {
    /// Nothing of it is on the GPU meanwhile.
    #[default]
    Drained,
    /// A kernel stays there (NCCL).
    Resident,
}

/// Batches without end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offline {
    /// Work of a batch.
    pub batch_ms: f64,
    /// Its longest kernel or graph.
    #[serde(default = "standard_unit")]
    pub unit_us: f64,
}

fn one() -> u64 {
    1
}
fn four() -> u64 {
    4
}
fn two() -> f64 {
    2.0
}
fn one_float() -> f64 {
    1.0
}
fn one_count() -> usize {
    1
}
fn hundred() -> u16 {
    100
}

/// Kernels of large models are some hundred microseconds long.
fn standard_unit() -> f64 {
    200.0
}
