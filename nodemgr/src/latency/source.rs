//! Where latencies come from: a URL that answers with Prometheus text, and a metric on it; or the program itself, that
//! tells each request by `weir_latency`.

use serde::{Deserialize, Serialize};

use crate::codes;
use crate::fault::Fault;

/// Units that a metric's name can end in, in nanoseconds.
const UNITS: [(&str, f64); 7] = [
    ("_seconds", 1e9),
    ("_milliseconds", 1e6),
    ("_ms", 1e6),
    ("_microseconds", 1e3),
    ("_us", 1e3),
    ("_nanoseconds", 1.0),
    ("_ns", 1.0),
];

/// What stands in the place of the URL where the program tells its latencies by itself.
pub const HINT: &str = "hint";

/// One source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// `http://HOST:PORT/PATH`, or [`HINT`].
    pub url: String,
    /// A histogram or a summary, whose name ends in its unit; of a hint, the name that the program calls it by.
    pub metric: String,
}

impl Source {
    /// Checks what a person wrote.
    ///
    /// # Errors
    /// [`codes::LATENCY_SOURCE`].
    pub fn check(&self) -> Result<(), Fault> {
        if self.url != HINT {
            check_url(&self.url)?;
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        let metric = self.metric.as_str();
        if metric.is_empty() || !metric.chars().all(plain) || metric.starts_with(|c: char| c.is_ascii_digit())
        {
            let message = format!("`{}` is no name of a metric", metric.escape_debug());
            let help = "name one without labels, such as vllm:time_to_first_token_seconds";
            return Err(Fault::new(&codes::LATENCY_SOURCE, message, help));
        }
        if self.url != HINT && self.unit_ns().is_none() {
            let message = format!("`{metric}` does not say its unit");
            let help = "name a histogram or summary whose name ends in _seconds, _ms, _us or _ns";
            return Err(Fault::new(&codes::LATENCY_SOURCE, message, help));
        }
        Ok(())
    }

    /// The name by which the program is to tell its latencies, if it is to.
    pub fn hint_metric(&self) -> Option<&str> {
        (self.url == HINT).then_some(self.metric.as_str())
    }

    /// The metric's unit, in nanoseconds.
    pub fn unit_ns(&self) -> Option<f64> {
        UNITS.iter().find(|(suffix, _)| self.metric.ends_with(suffix)).map(|(_, ns)| *ns)
    }
}

/// Whether we could ask there: plain HTTP to a host with a name.
///
/// # Errors
/// [`codes::LATENCY_SOURCE`].
pub fn check_url(url: &str) -> Result<(), Fault> {
    let wrong = |why: &str, help: &str| {
        let message = format!("`{}` cannot be asked: {why}", url.escape_debug());
        Err(Fault::new(&codes::LATENCY_SOURCE, message, help))
    };
    if url.starts_with("https://") {
        return wrong(
            "there is no TLS here",
            "name the server's plain port on this machine: http://127.0.0.1:8000/metrics",
        );
    }
    let parsed = url.parse::<ureq::http::Uri>().ok();
    let host = parsed.as_ref().and_then(ureq::http::Uri::host).filter(|host| !host.is_empty());
    if !url.starts_with("http://") || host.is_none() {
        return wrong("it is no URL", "write it as http://127.0.0.1:8000/metrics, or hint");
    }
    if parsed.is_some_and(|uri| uri.authority().is_some_and(|who| who.as_str().contains('@'))) {
        return wrong("it has a password in it", "let the metrics page be read without one on this machine");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(url: &str, metric: &str) -> Result<(), String> {
        let source = Source { url: url.into(), metric: metric.into() };
        source.check().map_err(|fault| fault.code)
    }

    #[test]
    fn plain_http_and_a_metric_with_its_unit_are_taken() {
        for metric in ["vllm:time_to_first_token_seconds", "nv_inference_first_response_histogram_ms"] {
            assert_eq!(checked("http://127.0.0.1:8000/metrics", metric), Ok(()));
        }
        assert_eq!(checked("http://[::1]:8002/metrics", "a_us"), Ok(()));
        assert_eq!(checked("hint", "request"), Ok(()), "what a program tells is in nanoseconds");
    }

    #[test]
    fn all_else_is_refused() {
        for url in
            ["", "metrics", "https://a/", "ftp://a/", "http://", "http:///x", "http://a:b@c/", "http://a b/"]
        {
            assert_eq!(checked(url, "a_seconds"), Err("W0121".into()), "{url}");
        }
        assert_eq!(checked("hint", "a request"), Err("W0121".into()));
        for metric in ["", "a", "a_bytes", "a b_seconds", "a{x=\"1\"}_seconds", "9_seconds"] {
            assert_eq!(checked("http://a/", metric), Err("W0121".into()), "{metric}");
        }
    }
}
