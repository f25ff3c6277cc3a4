//! Pages that others serve over HTTP, tenants among them, are read by a process of its own: without root, without a way
//! back to it, and it may die without consequence. The node manager itself opens no network connection.
//!
//! ```text
//!   rounds     in the manager, a thread: whom to ask when, and what follows from answers
//!   queue      questions that wait, and those that are asked
//!   child      the process as the manager sees it: started, heard, ended, started again with growing pauses
//!   message    a question, an answer, and what neither may hold
//!   process    the process itself: a thread for each question, so that a page that hangs delays no other
//!   fetch      one page, with a deadline and a longest length, and what is looked for on it
//! ```
//!
//! Both sides speak over one socket, a packet a message. What the process says is as little believed as what the pages say.

mod child;
mod fetch;
mod message;
mod process;
mod queue;
mod rounds;

pub(crate) use process::run;
pub(crate) use rounds::{Asked, start};

/// The command of `weir` that is this process.
pub(crate) const COMMAND: &str = "scrape";
