//! The control socket: JSON lines for people, scripts and the rest of the project.
//!
//! One request per line, one response per line, in order. The schema is versioned and public.

mod client;
pub mod history;
pub mod park;
pub mod policy;
pub mod schema;
mod server;
mod stats;
pub mod switch;
mod unmanaged;

pub use client::{Absence, Client};
pub(crate) use history::{Watcher, serve_watchers};
pub(crate) use server::{Outcome, answer, created};
pub use stats::{
    AskStats, GpuStats, NodeStats, PowerStats, ProcessStats, Stats, TenantGpuStats, TenantStats,
};
pub use unmanaged::{DrainingStats, UnmanagedStats};
