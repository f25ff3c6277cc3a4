//! Where a process's wall time goes on one GPU, on the usage page.
//!
//! Each moment since the process's first context counts for exactly one of the words, so that their sum is the time that
//! has been settled; what went on since the last call of the program into the driver is not settled yet.

use serde::{Deserialize, Serialize};
#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use crate::sync::AtomicU64;

/// What the time went to. Where two of them hold at one moment, the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(usize)]
pub enum Stall {
    /// A kernel of the process runs.
    Compute,
    /// A kernel runs that exchanges data with other GPUs, and no other.
    Communication,
    /// Only copies are in flight.
    Copies,
    /// Work is queued on the GPU, which is somebody else's at the moment, or it is slower for somebody else's (MPS).
    Neighbour,
    /// Nothing is in flight; a launch or a copy waits at our gate.
    Gate,
    /// Nothing is in flight and nothing waits.
    Host,
}

impl Stall {
    /// Every one, in the order of the words on the page.
    pub const ALL: [Self; 6] =
        [Self::Compute, Self::Communication, Self::Copies, Self::Neighbour, Self::Gate, Self::Host];

    /// As statistics spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::Copies => "copies",
            Self::Neighbour => "neighbour",
            Self::Gate => "gate",
            Self::Host => "host",
        }
    }
}

/// The words, in nanoseconds. All only grow.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Stalls {
    /// By [`Stall`].
    pub parts_ns: [AtomicU64; Stall::ALL.len()],
    _reserved: [u64; 2],
}

impl Stalls {
    /// The words, for whoever zeroes or moves them.
    pub(super) fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        self.parts_ns.iter()
    }
}
