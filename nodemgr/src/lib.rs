//! The node manager: who has which budget on a GPU, and what of it holds right now.
//!
//! ```text
//!   place, lock, config     where it lies and how it is to run
//!   gpus                    the node's GPUs, from NVML
//!   authority, birth        who is at the other end of a socket, and what he may do
//!   registry                tenants, budgets, pages, processes; one value behind one lock
//!   nearest                 the word that was probably meant
//!   typed                   shares and sizes as people type them
//!   latency, signals        what applications and the world outside tell
//!   scraper                 reads it where it is a page at a URL, as a process of its own
//!   events                  what has happened, in a bounded ring
//!   hello                   the first bytes of a process
//!   poll                    thread 1: sockets and lives
//!   tick                    thread 2: observe, decide, publish
//!   park                    idle tenants' memory on the host: what the driver does, on threads of its own
//!   journal, takeover       what a manager leaves behind, and how the next one takes it over
//!   launch                  what it leaves to programs that start without one
//!   notify                  what a supervisor hears
//!   ack                     waiting for the first launch under a new grant
//!   control                 the control socket: schema, both sides, statistics
//!   sim                     all of this in virtual time, on the simulated GPU's model
//!   web                     the same over HTTP, as a process of its own
//!   cli                     the `weir` command
//! ```
//!
//! The manager never blocks on a process, and a launch never waits for the manager: all that they share is pages.

mod ack;
pub mod authority;
mod birth;
pub mod calibration;
pub mod cli;
pub mod codes;
pub mod config;
pub mod control;
pub mod events;
pub mod failpoint;
pub mod fault;
mod footprint;
pub mod gpus;
pub mod guard;
pub mod hello;
pub mod histogram;
mod journal;
pub mod latency;
mod launch;
mod lock;
pub mod manager;
pub mod mps;
mod nearest;
pub mod notify;
mod park;
pub mod place;
mod poll;
pub mod registry;
mod scraper;
mod shared;
pub mod signals;
pub mod sim;
mod takeover;
mod tick;
mod typed;
pub mod unprivileged;
pub mod web;

pub use fault::Fault;
pub use manager::{Manager, Options};
pub use place::Place;
