//! The node manager's side of the house: attaching to it, and what a process knows once attached.

mod attach;
mod betters;
mod board;
mod busy;
mod client;
mod connection;
mod context;
mod gpu;
pub mod helper;
mod local;
mod overlap;
mod page;
mod pieces;
mod run;
mod solo;
mod stale;
mod standing;
mod turns;
mod words;

pub use attach::{attach, fault};
pub use client::{CAPTURE_TURN, CAPTURES, Client};
pub use context::Context;
#[cfg(test)]
pub use gpu::a_gpu;
pub use gpu::{Gpu, SHARED_LANE};
pub use turns::Watched;
