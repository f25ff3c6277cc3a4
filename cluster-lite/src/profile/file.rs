//! The profile of a tenant: what it needs and what it is like, in a TOML file that people and placement read.
//!
//! ```toml
//! version = 1
//! name = "resnet152"
//! kind = "inference"         # training, inference, llm or filler
//! request = "30%"            # guaranteed share that it needs
//! limit = "60%"              # share beyond which it gains nothing worth having
//! memory = "5GiB"            # most device memory that it held
//!
//! [throughput]               # in its own unit: samples, requests, tokens, steps
//! unit = "requests/s"
//! alone = 620.0              # with the whole GPU
//! at_request = 400.0
//! gpu_ms = 1.4               # milliseconds of the whole GPU that one of them takes
//!
//! [inference]                # of kind inference; of llm if it was profiled under an SLO
//! batch = 16
//! slo = "p95 < 40ms"
//! latency_ms = 39.2          # that quantile, with this batch at the request
//! latency_alone_ms = 25.8    # the same with the whole GPU
//!
//! [copies]                   # 10^9 bytes a second, with the whole GPU
//! host_to_device_gb_s = 1.2
//! device_to_host_gb_s = 0.01
//!
//! [stalls]                   # parts of wall time with the whole GPU, by the words of `weir ps --stalls`
//! compute = 0.71
//! communication = 0.0
//! copies = 0.04
//! neighbour = 0.0
//! gate = 0.0
//! host = 0.25
//! bubble = 0.29              # part in which its context was drained, so that others may run
//!
//! [interference]             # absent: not measured
//! sensitivity = 0.12         # part of its throughput at the request that it loses beside the reference
//! reference = "filler of 1 ms kernels without a pause"
//!
//! [measured]
//! device = "NVIDIA A100-SXM4-40GB"
//! simulated = false
//! date = "2026-11-25"
//! command = ["python", "serve.py", "--batch", "{batch}"]
//! confidence = 0.95
//!
//! [[measured.probe]]         # each measurement of the search, in order
//! share = "30%"
//! batch = 16
//! throughput = 400.0
//! deviation = 3.1            # standard error of the throughput
//! latency_ms = 39.2
//! ```
//!
//! A key that is not known, twice there or missing, and a value that cannot be, are refused with file and line.

mod check;
mod read;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_protocol::units::{Bytes, SmShare};

use super::slo::Slo;
use super::values;
/// Version of the file. Raised when a key changes its meaning.
pub const PROFILE_VERSION: u32 = 1;

/// What kind of work a tenant does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Trains: throughput counts.
    Training,
    /// Answers requests within a latency.
    Inference,
    /// Generates tokens.
    Llm,
    /// Best effort: lives on what is left.
    Filler,
}

impl Kind {
    /// All of them, as they are written.
    pub const ALL: [(&'static str, Self); 4] = [
        ("training", Self::Training),
        ("inference", Self::Inference),
        ("llm", Self::Llm),
        ("filler", Self::Filler),
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name))
    }
}

/// What a tenant needs and what it is like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`PROFILE_VERSION`].
    pub version: u32,
    /// What it is called.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Guaranteed share that it needs; nothing for fillers.
    #[serde(with = "values::share")]
    pub request: SmShare,
    /// Share beyond which it gains nothing worth having.
    #[serde(with = "values::share")]
    pub limit: SmShare,
    /// Most device memory that it held.
    #[serde(with = "values::size")]
    pub memory: Bytes,
    /// How much it does.
    pub throughput: Throughput,
    /// How it answers requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inference: Option<Inference>,
    /// What it copies.
    pub copies: Copies,
    /// Where its wall time goes.
    pub stalls: Stalls,
    /// What a neighbour costs it; absent if that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interference: Option<Interference>,
    /// How all of this was measured.
    pub measured: Measured,
}

/// How much a tenant does, in its own unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throughput {
    /// Such as `samples/s`.
    pub unit: String,
    /// With the whole GPU.
    #[serde(deserialize_with = "values::positive")]
    pub alone: f64,
    /// With the request, and no more.
    #[serde(deserialize_with = "values::positive")]
    pub at_request: f64,
    /// Milliseconds of the whole GPU that one of the unit takes, as charged.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "values::positive_or_none")]
    pub gpu_ms: Option<f64>,
}

/// How a tenant answers requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inference {
    /// Requests that are answered at once.
    #[serde(deserialize_with = "values::batch")]
    pub batch: u32,
    /// What it promises.
    pub slo: Slo,
    /// The SLO's quantile with this batch at the request, in milliseconds.
    #[serde(deserialize_with = "values::positive")]
    pub latency_ms: f64,
    /// The same with the whole GPU.
    #[serde(deserialize_with = "values::positive")]
    pub latency_alone_ms: f64,
}

/// What a tenant copies between host and device with the whole GPU, in 10^9 bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copies {
    /// To the device.
    #[serde(deserialize_with = "values::amount")]
    pub host_to_device_gb_s: f64,
    /// To the host.
    #[serde(deserialize_with = "values::amount")]
    pub device_to_host_gb_s: f64,
}

/// Where a tenant's wall time goes with the whole GPU: parts that sum to one, by the words of `weir ps --stalls`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stalls {
    /// A kernel of it runs.
    #[serde(deserialize_with = "values::part")]
    pub compute: f64,
    /// Only collectives run.
    #[serde(deserialize_with = "values::part")]
    pub communication: f64,
    /// Only copies are in flight.
    #[serde(deserialize_with = "values::part")]
    pub copies: f64,
    /// The GPU is a neighbour's.
    #[serde(deserialize_with = "values::part")]
    pub neighbour: f64,
    /// It waits at the gate.
    #[serde(deserialize_with = "values::part")]
    pub gate: f64,
    /// Nothing is in flight and nothing waits.
    #[serde(deserialize_with = "values::part")]
    pub host: f64,
    /// Part in which no kernel of it was on the GPU, so that others may run: the rest of `compute` and `communication`, less
    /// what was not its own doing (`neighbour`, `gate`).
    #[serde(deserialize_with = "values::part")]
    pub bubble: f64,
}

impl Stalls {
    /// Sum of the parts; `bubble` is no part of its own.
    pub fn sum(&self) -> f64 {
        self.compute + self.communication + self.copies + self.neighbour + self.gate + self.host
    }
}

/// What a neighbour costs a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interference {
    /// Part of the throughput at the request that it loses beside the reference, 0 to 1.
    #[serde(deserialize_with = "values::part")]
    pub sensitivity: f64,
    /// The neighbour.
    pub reference: String,
}

/// How a profile was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The GPU, as NVML names it.
    pub device: String,
    /// Whether it was a simulated one.
    pub simulated: bool,
    /// The day.
    #[serde(deserialize_with = "values::day")]
    pub date: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// With which confidence each comparison of the search was made; absent if nothing varied.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "values::part_or_none")]
    pub confidence: Option<f64>,
    /// Each measurement, in order.
    #[serde(default, rename = "probe", skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeRow>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeRow {
    /// Under this limit.
    #[serde(with = "values::share")]
    pub share: SmShare,
    /// With this batch.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "values::batch_or_none")]
    pub batch: Option<u32>,
    /// What was measured.
    #[serde(deserialize_with = "values::amount")]
    pub throughput: f64,
    /// Its standard error; absent if it was measured once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "amount_or_none")]
    pub deviation: Option<f64>,
    /// The SLO's quantile, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "values::positive_or_none")]
    pub latency_ms: Option<f64>,
}

fn amount_or_none<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    values::amount(from).map(Some)
}
