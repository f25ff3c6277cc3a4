//! What `weir-loop` says on stdout, one JSON line each.

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Said {
    /// The process is there and has not called the driver yet.
    Started {
        /// It (under `weir run` not the one that was started).
        pid: u32,
    },
    /// Context, streams and kernels are there; launching begins.
    Ready,
    /// An answer to `allocate SIZE`.
    Allocated {
        /// What was asked for.
        bytes: u64,
        /// What the driver answered, by name.
        result: String,
    },
    /// An answer to `free`: all that `allocate` got was given back.
    Freed {
        /// How much.
        bytes: u64,
    },
    /// An answer to `report`: what happened since the last one.
    Report(Progress),
    /// The end: what happened in all.
    Done(Progress),
}

/// What a loop has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Launches that the driver accepted; a graph is one.
    pub launches: u64,
    /// Wall time, in nanoseconds.
    pub elapsed_ns: u64,
    /// Longest time between the returns of two launches that follow each other, in nanoseconds.
    pub longest_gap_ns: u64,
    /// p95 of the time from the end of a step to that of the next one, in nanoseconds; none where the loop tells no latencies.
    #[serde(default)]
    pub p95_step_ns: Option<u64>,
}
