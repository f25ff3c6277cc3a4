//! The node manager's side of the house: attaching to it, and what a process knows once attached.

mod attach;
mod betters;
mod board;
mod client;
mod connection;
mod gpu;
mod overlap;
mod run;
mod turns;
mod words;

pub use attach::{attach, fault};
pub use client::{CAPTURE_TURN, CAPTURES, Client};
#[cfg(test)]
pub use gpu::a_gpu;
pub use gpu::{Context, Gpu, SHARED_LANE};
pub use turns::Watched;
