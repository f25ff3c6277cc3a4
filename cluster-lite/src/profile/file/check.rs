//! What is wrong between values of a profile that are each right by themselves.

use weir_protocol::units::SmShare;

use super::{Inference, Kind, Profile, Stalls, Throughput};

/// By how much the parts of wall time may miss one: they are measured and rounded.
const ROUNDING: f64 = 0.02;

/// By which part the throughput at the request may pass the one alone: both are measured.
const NOISE: f64 = 0.1;

/// Something that contradicts something else.
pub(super) struct Refusal {
    /// What.
    pub message: String,
    /// What to do.
    pub help: &'static str,
    /// The keys that lead to one of the two.
    pub keys: &'static [&'static str],
}

fn refuse(message: String, help: &'static str, keys: &'static [&'static str]) -> Option<Refusal> {
    Some(Refusal { message, help, keys })
}

impl Profile {
    /// The first contradiction.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let nameless = || refuse("the name is empty".into(), "name the tenant", &["name"]);
        let checks =
            [self.shares(), self.throughput.refusal(), self.kind(), self.late(), self.stalls.refusal()];
        let name = if self.name.trim().is_empty() { nameless() } else { None };
        name.or_else(|| checks.into_iter().flatten().next())
    }

    fn shares(&self) -> Option<Refusal> {
        let Self { request, limit, kind, .. } = self;
        if *limit == SmShare::ZERO {
            return refuse(
                "the limit is 0 %: nothing would run".into(),
                "write a limit above 0%",
                &["limit"],
            );
        }
        if limit < request {
            let message = format!("the limit, {limit}, lies below the request, {request}");
            return refuse(message, "raise the limit, or lower the request", &["limit"]);
        }
        if *request == SmShare::ZERO && *kind != Kind::Filler {
            let message = format!("the request of a tenant of kind {kind} is 0 %");
            return refuse(message, "write a request above 0%, or kind = \"filler\"", &["request"]);
        }
        None
    }

    fn kind(&self) -> Option<Refusal> {
        match (self.kind, &self.inference) {
            (Kind::Inference, None) => {
                let help = "add batch, slo, latency_ms and latency_alone_ms";
                refuse("an inference tenant has no [inference]".into(), help, &["kind"])
            }
            (Kind::Training | Kind::Filler, Some(_)) => {
                let message = format!("a tenant of kind {} has [inference]", self.kind);
                refuse(message, "remove it, or write kind = \"inference\"", &["inference"])
            }
            _ => None,
        }
    }

    /// A latency against its own SLO.
    fn late(&self) -> Option<Refusal> {
        let Inference { slo, latency_ms, .. } = self.inference.as_ref()?;
        if *latency_ms <= slo.bound_ms() {
            return None;
        }
        let message = format!("with {latency_ms} ms at the request it misses its own SLO, {slo}");
        refuse(message, "raise the request, lower the batch, or promise less", &["inference", "latency_ms"])
    }
}

impl Throughput {
    fn refusal(&self) -> Option<Refusal> {
        let Self { alone, at_request, .. } = self;
        if *at_request <= alone * (1.0 + NOISE) {
            return None;
        }
        let message = format!(
            "the throughput at the request, {at_request}, passes the one with the whole GPU, {alone}"
        );
        refuse(message, "profile it again: one of the two is wrong", &["throughput", "at_request"])
    }
}

impl Stalls {
    fn refusal(&self) -> Option<Refusal> {
        let (sum, rest) = (self.sum(), 1.0 - self.compute - self.communication);
        if (sum - 1.0).abs() > ROUNDING {
            let message = format!("the parts of wall time sum to {sum:.3}");
            return refuse(message, "they must sum to 1", &["stalls"]);
        }
        if self.bubble > rest + ROUNDING {
            let message = format!(
                "the bubbles, {:.3}, are more than the time without a kernel, {rest:.3}",
                self.bubble
            );
            return refuse(message, "they are at most 1 - compute - communication", &["stalls", "bubble"]);
        }
        None
    }
}
