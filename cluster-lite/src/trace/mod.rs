//! Recorded and generated clusters, requests and measurements, read with file and place in every error.

pub mod gavel;
pub mod mix;
