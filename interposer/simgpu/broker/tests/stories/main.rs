//! Stories of real processes: a broker, clients over the socket and the page, signals.
#![allow(clippy::unwrap_used, reason = "a test: its helpers fail by panicking, too")]

mod card;
mod checkpoint;
mod deaths;
mod harness;
mod roles;
mod sharing;
mod starting;
mod teams;
