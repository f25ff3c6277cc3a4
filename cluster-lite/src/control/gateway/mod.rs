//! Requests over HTTP to instances: counted, held while a service wakes, sent to the instance with the least to do. A process
//! of its own without rights of its own: it goes on by its last table while the controller is gone.
//!
//! ```text
//!   GET /metrics      Prometheus text          GET /healthz      200 while it runs
//!   /SERVICE/REST     goes to an instance as /REST, head, body and all
//! ```
//!
//! A request is sent to a second instance only if the first took no connection, or broke off before it sent anything back and
//! the request may be asked twice: by its method (GET, HEAD, PUT, DELETE, OPTIONS), or by an `Idempotency-Key`.

mod book;
mod forward;
mod link;
mod metrics;
mod probe;
mod server;

pub use book::{Book, Refusal, Sent, Ticket, Turned};
pub use link::{Link, Tell};
pub use server::serve;
