//! Recorded and generated clusters, requests and measurements, read with file and line in every error.

pub mod gavel;
pub mod lines;
pub mod mix;
pub mod openb;
pub mod requests;
