//! Recorded measurements, read with file and place in every error.

pub mod gavel;
