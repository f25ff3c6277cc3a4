//! Simulators in virtual time. Everything they print is *simulated*, and says so.

pub mod requests;
