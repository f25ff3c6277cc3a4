//! Predicted work of a request, in nanoseconds of a whole GPU: what its sender or its length tells of it. Policies that scale by
//! work (Cypress, ASPLOS 2025) see the sum of what waits rather than a count.

use serde::{Deserialize, Serialize};
use weir_protocol::units::{Nanos, Tokens};

use super::model::Service;
use crate::profile;

/// GPU time of a request of which nothing was measured.
const UNKNOWN_WORK: Tokens = Tokens(10_000_000);

/// What nobody believes of a single request: more than an hour of a GPU.
const MOST: Nanos = Nanos::from_secs(3_600);

/// What tells the work of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// A header with GPU-milliseconds.
    Header(String),
    /// Its `Content-Length`, at so many nanoseconds a byte.
    Length(u64),
}

/// How the gateway sizes the requests of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// What tells it.
    pub told: Told,
    /// Work of one that is not told, or not in words that can be: a mean one.
    pub mean_ns: u64,
}

impl Sizes {
    /// Of a service; nothing if nothing tells the work of its requests.
    pub fn of(service: &Service) -> Option<Self> {
        let mean_ns = u64::try_from(mean_work(service).0).unwrap_or(0);
        service.work.clone().map(|told| Self { told, mean_ns })
    }

    /// Work of a request with these headers.
    pub fn work_ns<'a>(&self, header: impl FnOnce(&str) -> Option<&'a str>) -> u64 {
        let told = match &self.told {
            Told::Header(name) => header(name).and_then(|text| text.trim().parse().ok()).and_then(from_ms),
            Told::Length(each) => header("content-length")
                .and_then(|text| text.trim().parse::<u64>().ok())
                .map(|bytes| bytes.saturating_mul(*each).min(MOST.0)),
        };
        told.unwrap_or(self.mean_ns)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most an hour")]
fn from_ms(ms: f64) -> Option<u64> {
    let ns = ms * 1e6;
    (0.0..=MOST.0 as f64).contains(&ns).then_some(ns as u64)
}

/// Work of a mean request: measured where there is a profile, assumed where there is none.
pub fn mean_work(service: &Service) -> Tokens {
    let measured = service.profile.as_ref().and_then(request_ms).and_then(from_ms);
    measured.and_then(|ns| i64::try_from(ns).ok()).map_or(UNKNOWN_WORK, Tokens)
}

/// What a request takes of an instance that has a whole GPU and a full batch, in milliseconds. That is more than its kernels take where
/// the host keeps it, and speeds are in the same unit: nobody is faster for the share that he leaves. Of what is no single request (an
/// LLM's token) only its kernels' time is known.
fn request_ms(profile: &profile::Profile) -> Option<f64> {
    let inference = profile.inference.as_ref().filter(|_| profile.kind == profile::Kind::Inference);
    let whole = inference.map(|inference| inference.latency_alone_ms / f64::from(inference.batch));
    whole.or(profile.throughput.gpu_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_work_that_is_told_and_a_mean_one_where_that_cannot_be() {
        let by = |told| Sizes { told, mean_ns: 7 };
        let header = by(Told::Header("x-gpu-ms".into()));
        for (text, ns) in [("12.5", 12_500_000), (" 3 ", 3_000_000), ("0", 0)] {
            assert_eq!(header.work_ns(|name| (name == "x-gpu-ms").then_some(text)), ns);
        }
        for text in ["", "-1", "NaN", "inf", "1e12", "3ms"] {
            assert_eq!(header.work_ns(|_| Some(text)), 7, "{text}");
        }
        assert_eq!(header.work_ns(|_| None), 7);
        let length = by(Told::Length(250));
        assert_eq!(length.work_ns(|name| (name == "content-length").then_some("4000")), 1_000_000);
        assert_eq!(length.work_ns(|_| Some("18446744073709551615")), MOST.0);
        assert_eq!(length.work_ns(|_| None), 7, "chunked");
    }
}
