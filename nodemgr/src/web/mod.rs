//! `weir web`: a process of its own, without rights of its own, between the control socket and HTTP. It may die at any
//! moment without consequence for anybody but those who ask it.
//!
//! ```text
//!   GET  /metrics              Prometheus text, for everybody who reaches the port
//!   GET  /v1/stats             the answers of the control socket, with the token
//!   GET  /v1/policy
//!   GET  /v1/events?after=N
//!   GET  /v1/why/TENANT
//!   POST /v1/do                one request of the control socket; those that change something only with --allow-set
//! ```
//!
//! hyper alone: a handful of routes needs no framework, and its time limits are what a small server lacks.

pub mod metrics;
mod route;
mod serve;
mod token;

pub use serve::{Settings, serve};
pub use token::Token;
