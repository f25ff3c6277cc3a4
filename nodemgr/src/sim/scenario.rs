//! Scenarios: who shares the GPU, what each runs, and for how long. One TOML file each; times are in the names.

use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_protocol::units::{Nanos as Time, SmShare};
use weir_simgpu_model::{Mode, Nanos};

use crate::codes;
use crate::config;
use crate::control::schema::ClassName;
use crate::fault::Fault;

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
    /// By what its rates are multiplied.
    #[serde(default = "one_float")]
    pub times: f64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { per_s: None, cv: 1.0, trace_per_s: None, times: 1.0 }
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
    pub fn draw_tokens(&self, random: &mut super::random::Random) -> u32 {
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

fn share(key: &str, text: Option<&str>) -> Result<Option<SmShare>, Fault> {
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
    let (quantile, bound) = text.split_once('<')?;
    let percent: f64 = quantile.trim().strip_prefix('p')?.parse().ok()?;
    let bound: f64 = bound.trim().strip_suffix("ms")?.trim().parse().ok()?;
    let sound = (1.0..100.0).contains(&percent) && bound > 0.0;
    let permille = u16::try_from(nanos(percent * 10.0)).ok()?;
    sound.then_some(Promise { quantile_permille: permille, target: Time(ms(bound)) })
}

impl Scenario {
    /// Reads the file.
    ///
    /// # Errors
    /// [`codes::SCENARIO`], with the line where there is one.
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            refuse(path, format!("cannot be read: {error}"), "name a TOML file; bench/scenarios has examples")
        })?;
        Self::parse(&text, path)
    }

    /// The scenario in `text`; `path` is for messages only.
    ///
    /// # Errors
    /// [`codes::SCENARIO`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, Fault> {
        let scenario: Self = toml::from_str(text)
            .map_err(|error| config::misunderstood(&codes::SCENARIO, text, path, &error))?;
        scenario.check().map_err(|(what, help)| refuse(path, what, help))?;
        Ok(scenario)
    }

    /// When it is measured, in nanoseconds of simulated time.
    pub fn window(&self) -> super::measure::Window {
        let from = super::engine::START + nanos(self.warm_up_seconds * 1e9);
        super::measure::Window { from, to: from + nanos(self.seconds * 1e9) }
    }

    /// What a switch of contexts takes.
    pub fn switch(&self) -> Nanos {
        let standard = weir_simgpu_model::Spec::default().switch;
        self.device.switch_us.map_or(standard, |us| nanos(us * 1e3))
    }

    fn check(&self) -> Result<(), (String, &'static str)> {
        if !(self.seconds > 0.0 && self.seconds <= 86_400.0 && self.warm_up_seconds >= 0.0) {
            return Err((
                format!("has seconds = {}", self.seconds),
                "simulate more than nothing and at most a day",
            ));
        }
        if self.tenant.is_empty() {
            return Err(("has no tenants".into(), "add a [[tenant]]"));
        }
        self.tenant.iter().try_for_each(check_tenant)
    }
}

fn check_tenant(tenant: &Tenant) -> Result<(), (String, &'static str)> {
    let name = tenant.name.escape_debug();
    let kinds = [tenant.inference.is_some(), tenant.training.is_some(), tenant.offline.is_some()];
    if kinds.into_iter().filter(|kind| *kind).count() != 1 {
        let help = "give it one of [tenant.inference], [tenant.training] and [tenant.offline]";
        return Err((format!("has a tenant `{name}` that does not run exactly one thing"), help));
    }
    if tenant.slo.is_some() && tenant.promise().is_none() {
        let help = "write a quantile and its bound: \"p95 < 200ms\"";
        return Err((format!("has a tenant `{name}` whose slo is none"), help));
    }
    for (key, text) in [("request", &tenant.request), ("limit", &tenant.limit)] {
        if let Err(fault) = share(key, text.as_deref()) {
            let help = "write a percentage with its sign, such as \"30%\"";
            return Err((format!("has a tenant `{name}`: {}", fault.message), help));
        }
    }
    let busy = |work: f64, unit: f64| work > 0.0 && unit > 0.0;
    let works = match (&tenant.inference, &tenant.training, &tenant.offline) {
        (Some(i), ..) => busy(i.prefill_ms + i.prefill_each_ms, i.unit_us) && i.batch > 0,
        (_, Some(t), _) => busy(t.compute_ms, t.unit_us),
        (.., Some(o)) => busy(o.batch_ms, o.unit_us),
        _ => false,
    };
    let decodes = tenant.inference.as_ref().is_none_or(|i| i.tokens <= 1.0 || i.decode_ms > 0.0);
    if !works || !decodes {
        let help = "give prefill_ms, compute_ms or batch_ms, decode_ms where there are tokens, and a unit_us above zero";
        return Err((format!("has a tenant `{name}` without work"), help));
    }
    Ok(())
}

fn refuse(path: &Path, what: String, help: &str) -> Fault {
    Fault::new(&codes::SCENARIO, format!("`{}` {what}", path.display()), help)
}
