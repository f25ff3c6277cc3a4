//! What a tenant's process and the node manager say to each other over the tenant's socket.
//!
//! ```text
//!   process                                     node manager
//!   Hello { protocol, build }            --->
//!                                        <---   Welcome { slot, gpus, .. } + 4 memfds for each GPU
//!                                               or Refused { reason }
//!                                        <---   Notice { gpu, board } + a memfd for each neighbour; soon after, and
//!                                               whenever tenants come or go
//!   RING, when it begins work            --->   where the manager wants to be told (pages, `bell`)
//!   (the connection then stays open: its end means that the process is gone, or has called exec)
//!
//!   after the manager has died, to the next one:
//!   Hello { .., slot }                   --->
//!                                        <---   Rejoined, or Refused { reason }
//!                                        <---   Notice ..
//! ```
//!
//! Who a process is comes from the socket it reached and from its peer credentials, never from what it says.

use serde::{Deserialize, Serialize};

use crate::pages::Precedence;
use crate::price::PriceRow;
use crate::units::{Bytes, Nanos};

/// Descriptors that come with a welcome for each GPU: grant, bucket, usage and activity page.
pub const PAGES: usize = 4;

/// What a process sends when it begins work: one byte, and whole rows of them if nobody listens.
pub const RING: u8 = b'!';

/// Who else is on one GPU: the neighbours' activity pages come with it, for reading. Replaces what was said before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Position of the GPU in the welcome.
    pub gpu: u32,
    /// The number that the grant page shows while this holds.
    pub board: u32,
    /// Whether all neighbours' pages have come: a message holds only so many.
    pub complete: bool,
    /// How each of them stands to the tenant, in the order of the pages.
    pub standings: Vec<Standing>,
}

/// Who gives way to whom. The policy says whether classes make a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// The tenant gives way to this neighbour: its gate is closed while that has work.
    Better,
    /// They take turns, and of two who wait the neighbour goes first.
    Earlier,
    /// They take turns.
    Equal,
    /// They take turns, and of two who wait the tenant goes first.
    Later,
    /// This neighbour gives way to the tenant, which never waits for it.
    Lesser,
}

impl Standing {
    /// Who goes first, if they take turns at all.
    pub fn precedence(self) -> Option<Precedence> {
        match self {
            Self::Better | Self::Lesser => None,
            Self::Earlier => Some(Precedence::Theirs),
            Self::Equal => Some(Precedence::Nobodys),
            Self::Later => Some(Precedence::Ours),
        }
    }
}

/// A process's first and only message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`](crate::PROTOCOL_VERSION) of the interposer.
    pub protocol: u32,
    /// Version of `libweir.so`, for people.
    pub build: String,
    /// The driver library that the process loaded, for people.
    pub driver: String,
    /// The slot that the process has already: its connection was lost, its pages were not.
    pub slot: Option<u32>,
}

/// The manager's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The process belongs to the tenant; [`PAGES`] memfds for each of `gpus` come with the message, in the order of
    /// `gpus`.
    Welcome(Welcome),
    /// The process cannot be served.
    Refused {
        /// Why, and what to do about it.
        reason: String,
    },
    /// The process has its slot and its pages as before.
    Rejoined,
}

/// All that a process needs to enforce its tenant's budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`PROTOCOL_VERSION`](crate::PROTOCOL_VERSION) of the manager.
    pub protocol: u32,
    /// The tenant's name, for messages to people.
    pub tenant: String,
    /// The tenant's class; it never changes.
    pub class: Class,
    /// How the tenant fails (`faults`: standalone, managed or strict).
    pub mode: FailMode,
    /// The process's slot on each usage page.
    pub slot: u32,
    /// The GPUs granted; others are not the tenant's.
    pub gpus: Vec<GpuGrant>,
    /// What kernels cost before they are measured.
    pub prices: Vec<PriceRow>,
    /// What a context costs, as the operator has configured it; 0 where that is to be measured.
    pub context_memory: Bytes,
    /// Whether plain allocations beyond the limit become managed memory instead of being refused.
    pub oversubscribe: bool,
    /// The metric by which the program itself is to tell its latencies, if it is to.
    pub latency_metric: Option<String>,
}

/// What a switch from one context to another takes on a card that was not measured: about a tenth of a millisecond.
pub const SWITCH: Nanos = Nanos::from_micros(100);

/// One GPU of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuGrant {
    /// The driver's UUID of the device.
    pub uuid: [u8; 16],
    /// The card's own memory.
    pub memory_total: Bytes,
    /// Whether tenants share it by MPS: a process that is no client of it is to say so.
    pub mps: bool,
    /// Whether launches that may not go yet wait in their streams, and not on the host.
    pub in_stream: bool,
    /// What a switch from one context to another takes there.
    pub switch: Nanos,
}

/// What kind of work a tenant does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Online, with a latency to keep.
    Latency,
    /// The work that fillers must not slow.
    Primary,
    /// Best effort: its graphs are split, so that others get in between.
    Filler,
}

/// What happens when no manager can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailMode {
    /// `weir run` is the manager, of one tenant.
    Standalone,
    /// A daemon manages the node; without it the last limits hold.
    Managed,
    /// Without a daemon the program does not get the GPU.
    Strict,
}
