//! Experiments in simulated time over recorded clusters. All of their figures are simulated.

pub mod inflation;
mod parallel;
#[cfg(feature = "plot")]
pub mod plot;

pub use self::parallel::in_parallel;
