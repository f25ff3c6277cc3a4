//! All that the interposer and the node manager know of each other.
//!
//! ```text
//!   libweir.so                 socket: Hello -> Welcome, Notice ..             node manager
//!   +-----------------+   +-------------------------------------------+   +----------------+
//!   | reads           |<--| grant page    rate, caps, gate, limits    |<--| writes         |
//!   | reads, writes   |<->| bucket page   balance, refill stamp       |   | reads          |
//!   | writes own slot |-->| usage page    one slot per process        |-->| reads, zeroes  |
//!   +-----------------+   +-------------------------------------------+   +----------------+
//! ```
//!
//! One set of these pages per tenant and GPU, and an activity page that its neighbours read too. No lock spans processes: every word has one writer, or is changed
//! by a single atomic instruction, so either side may die at any instruction and the other goes on.
//!
//! * [`units`]: the types in which everything is counted, and how people write them.
//! * [`pages`]: the layouts, and the atomic protocol of each page beside its layout.
//! * [`mapping`]: the one place where bytes become a typed page.
//! * [`message`], [`codec`], [`transport`]: what goes over a tenant's socket.
//! * [`launch`]: what a program keeps to while nobody answers there.

pub mod codec;
pub mod launch;
pub mod mapping;
pub mod message;
pub mod pages;
pub mod price;
#[doc(hidden)] // for models of what lies on top of these pages
pub mod sync;
pub mod transport;
pub mod units;

/// The protocol this build speaks. Raised whenever a page layout or a message changes its meaning; both sides
/// name both numbers when they differ.
pub const PROTOCOL_VERSION: u32 = 14;
