//! The books: what the simulated GPUs did, for whom. What Weir says of shares is judged against them, so they
//! are taken by the model itself and sum exactly: busy + switch + idle = wall time of the device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All books, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Books {
    /// Always true: nobody shall take these figures for a real GPU's.
    pub simulated: bool,
    /// When they were taken, ns of `CLOCK_MONOTONIC`.
    pub now_ns: u64,
    /// One per device.
    pub gpus: Vec<Gpu>,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// As NVML writes it.
    pub uuid: String,
    /// `time-slice` or `mps`.
    pub mode: String,
    /// Capacity, bytes.
    pub memory_total: u64,
    /// Held by all, bytes.
    pub memory_used: u64,
    /// Time with at least one kernel resident, ns.
    pub busy_ns: u64,
    /// Time lost to switching contexts, ns.
    pub switch_ns: u64,
    /// The rest, ns.
    pub idle_ns: u64,
    /// Busy part of about the last second, percent.
    pub recent_busy_percent: u32,
    /// Everyone who has used this device since the broker started.
    pub clients: Vec<Client>,
}

/// One process on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// Process id, as the broker sees it.
    pub pid: i32,
    /// Its name in `/proc`.
    pub comm: String,
    /// Whether it still runs.
    pub alive: bool,
    /// Its contexts, ended ones too.
    pub contexts: Vec<Context>,
    /// Memory held now, bytes.
    pub memory_bytes: u64,
    /// Most it ever held, bytes.
    pub memory_peak_bytes: u64,
    /// Calls per driver function; those never called are left out.
    pub calls: BTreeMap<String, u64>,
    /// Calls that were answered with an error.
    pub refused_calls: BTreeMap<String, u64>,
    /// Launches that may begin before the kernel before them has ended (programmatic dependent launch).
    #[serde(default)]
    pub dependent_launches: u64,
    /// Those of them that cannot, since another command stood between them and that kernel while it ran.
    #[serde(default)]
    pub split_pairs: u64,
}

/// One context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Its number.
    pub id: u32,
    /// Its part of the GPU's busy time (under MPS divided by weight), ns.
    pub true_use_ns: u64,
    /// Time in which it had work queued or running, ns.
    pub queued_ns: u64,
    /// Times that the GPU switched to it.
    pub switches: u64,
    /// Kernels completed.
    pub launches: u64,
    /// Commands queued or running now.
    pub queued: u64,
    /// What copy engines were given: to the device, to the host, to other devices.
    pub copied: [Copied; 3],
}

/// What one copy engine was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Bytes.
    pub bytes: u64,
    /// Time that they take there, ns.
    pub time_ns: u64,
}
