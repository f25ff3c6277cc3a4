//! Simulators in virtual time. Everything they print is *simulated*, and says so.

pub mod inflation;
mod parallel;
#[cfg(feature = "plot")]
pub mod plot;
pub mod requests;

pub use self::parallel::in_parallel;
