//! Stories of the node manager with real processes, on a fixed list of GPUs: who may come, what he gets, and what
//! is left of him.

#![allow(clippy::unwrap_used, reason = "a test ends where what it needs is absent")]

mod admission;
mod authority;
mod bell;
mod death;
mod history;
mod hostile;
mod latency;
mod persistent;
mod resize;
mod restart;
mod schema;
mod scraper;
mod servers;
mod shape;
mod skew;
mod stage;
mod store;
mod switch;
mod web;
