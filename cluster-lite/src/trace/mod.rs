//! What others recorded, read with file and line in every error.

pub mod requests;
