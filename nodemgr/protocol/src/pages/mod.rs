//! The shared pages of a tenant on one GPU, each with its atomic protocol beside its layout.
//!
//! | page | writer | maps it writable | holds |
//! | --- | --- | --- | --- |
//! | [`GrantPage`] | node manager | node manager | what the tenant may do now |
//! | [`BucketPage`] | the tenant's processes | both | balance and refill stamp |
//! | [`UsagePage`] | each process its own slot | both | memory held, launches, waits |
//! | [`ActivityPage`] | each process its own word, all of them the turn | both; neighbours read-only | who has work on the GPU now, whose turn it is |
//!
//! Only fixed-size integers stand on a page: any bytes are valid, nothing read from it is used as an index or a
//! length before it was range-checked, and there is no padding to leak.

mod activity;
mod bell;
mod bucket;
mod calls;
mod copy;
mod grant;
mod graphs;
mod header;
mod share;
mod slot;
mod stall;
mod standing;
mod told;
mod turn;
mod usage;
mod words;

pub use activity::{ActivityPage, Held, Occupancy};
pub use bell::{Bell, Wants};
pub use bucket::BucketPage;
pub use calls::{COUNTED_LAUNCHES, COUNTED_MEMORY_CALLS};
pub use copy::{Copied, Copies, CopyWay};
pub use grant::{Accrual, Gate, Grant, GrantPage, NO_BOARD, Rate};
pub use graphs::{GraphCount, Graphs};
pub use header::{Header, PageError, PageKind};
pub use share::{SHARES, Share, ShareState, Shared};
pub use slot::{LANES, Lane, Moved, ProcessSlot};
pub use stall::{Stall, Stalls};
pub use standing::Standing;
pub use told::{TOLD_BUCKETS, Told};
pub use turn::{Precedence, SHORTEST, Stand, Turn, kept_by};
pub use usage::{PROCESS_SLOTS, UsagePage};
pub use words::{ContextSource, MemoryKind, ProcessState};
