//! What became of a process's executable graphs: the ones that nobody can see being launched, and those of a filler that
//! were split, or could not be.

use serde::{Deserialize, Serialize};
#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use crate::sync::{AtomicU64, Ordering};

/// Something that is counted of executable graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum GraphCount {
    /// Graphs that kernels may launch too (`CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`): such launches are seen by nobody
    /// and charged to nobody.
    DeviceLaunchable,
    /// Graphs split into segments.
    Split,
    /// Segments that they were split into.
    Segments,
    /// Launches of graphs that went out as segments.
    SplitLaunches,
    /// Graphs with host functions or waits inside: they are charged from begin to end.
    Waits,
    /// Heavy graphs left whole: they have memory nodes.
    WholeMemory,
    /// Heavy graphs left whole: they have conditional nodes.
    WholeConditional,
    /// Heavy graphs left whole: they wait for events, semaphores or words from outside, or signal them.
    WholeSignals,
    /// Heavy graphs left whole: kernels may launch them, or other graphs of the process.
    WholeDeviceLaunchable,
    /// Heavy graphs left whole: the program changes them once they are executable.
    WholeUpdated,
    /// Heavy graphs left whole: one node has all the weight, or there are too many nodes.
    WholeIndivisible,
    /// Heavy graphs left whole: the driver refused a step.
    WholeRefused,
}

impl GraphCount {
    /// Every count, in the order of the words on the page.
    pub const ALL: [Self; 12] = [
        Self::DeviceLaunchable,
        Self::Split,
        Self::Segments,
        Self::SplitLaunches,
        Self::Waits,
        Self::WholeMemory,
        Self::WholeConditional,
        Self::WholeSignals,
        Self::WholeDeviceLaunchable,
        Self::WholeUpdated,
        Self::WholeIndivisible,
        Self::WholeRefused,
    ];

    /// As it is written in statistics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeviceLaunchable => "device_launchable",
            Self::Split => "split",
            Self::Segments => "segments",
            Self::SplitLaunches => "split_launches",
            Self::Waits => "waits",
            Self::WholeMemory => "whole_memory",
            Self::WholeConditional => "whole_conditional",
            Self::WholeSignals => "whole_signals",
            Self::WholeDeviceLaunchable => "whole_device_launchable",
            Self::WholeUpdated => "whole_updated",
            Self::WholeIndivisible => "whole_indivisible",
            Self::WholeRefused => "whole_refused",
        }
    }

    /// Whether it counts graphs of a filler that were left whole.
    pub const fn is_whole(self) -> bool {
        self as u8 >= Self::WholeMemory as u8
    }
}

/// The counts of one process on one GPU; they only grow.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Graphs([AtomicU64; 16]);

const _: () = assert!(GraphCount::ALL.len() <= 16);

// Relaxed throughout: counters for people.
impl Graphs {
    /// Counts `amount` more.
    pub fn add(&self, what: GraphCount, amount: u64) {
        if let Some(word) = self.0.get(what as usize) {
            word.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// One of the counts.
    pub fn get(&self, what: GraphCount) -> u64 {
        self.0.get(what as usize).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The words, for whoever zeroes or moves them.
    pub(super) fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        self.0.iter()
    }
}
