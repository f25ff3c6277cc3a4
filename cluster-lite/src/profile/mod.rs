//! What a tenant needs: searches over shares and batches, and the file that they are written to.

mod file;
pub mod inference;
mod slo;
pub mod training;
mod values;

pub use file::{
    Copies, Inference, Interference, Kind, Measured, PROFILE_VERSION, ProbeRow, Profile, Stalls, Throughput,
};
pub use slo::Slo;
