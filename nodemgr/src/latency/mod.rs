//! Request latencies: what a tenant has promised its users, and how it keeps it by the figures that the application
//! itself exports.
//!
//! ```text
//!   slo        `p95 < 200ms`: a quantile and its bound
//!   source     URL and metric, checked before anything is asked; or that the program tells by itself
//!   exposition the lines of one metric in Prometheus text
//!   window     the quantile of the last seconds, and how many requests were late: from differences of buckets
//! ```
//!
//! Pages are read by a process of its own ([`crate::scraper`]).

pub(crate) mod exposition;
mod slo;
mod source;
mod window;

pub(crate) use exposition::Figures;
pub use slo::{Promise, parse};
pub use source::{HINT, Source, check_url};
pub(crate) use window::{Reading, Window};

/// How it stands with a source, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Nobody has asked yet.
    #[default]
    Asked,
    /// There are figures.
    Told,
    /// It answers, and no request came of late.
    Idle,
    /// It does not answer as it should, and why.
    Failing(String),
}
