//! Gate, meter and ledger: what `libweir.so` decides, without the driver, the clock or a system call.
//!
//! ```text
//!   launch --> price (TLS cache) --> purse (TLS token slice) --> driver            the hot path: a few loads
//!                  | miss                  | empty, or a new grant
//!                  v                       v
//!              price book              gate: grant page, bucket, in-flight cap  --> wait, or a new slice
//! ```
//!
//! `libweir.so` and the policy simulator run this same code; time is always an argument.

pub mod admission;
pub mod copy;
pub mod cut;
pub mod flight;
pub mod gang;
pub mod gate;
pub mod hold;
pub mod lag;
pub mod lateness;
pub mod ledger;
pub mod lock;
pub mod meter;
mod ones;
pub mod overlap;
pub mod pace;
pub mod piece;
pub mod pool;
pub mod price;
pub mod progress;
pub mod purse;
pub mod rests;
mod skyline;
pub mod solo;
pub mod stall;
pub mod tail;
pub mod turn;
