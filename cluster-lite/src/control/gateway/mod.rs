//! Requests over HTTP to instances: counted, held while a service wakes, sent to the instance with the least to do. A process
//! of its own without rights of its own: it goes on by its last table while the controller is gone.

mod book;

pub use book::{Book, Refusal, Sent, Ticket, Turned};
