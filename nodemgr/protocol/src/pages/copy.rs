//! What a process has copied, on the usage page: calls, bytes and time by the way that the bytes went.

use serde::{Deserialize, Serialize};
#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use crate::sync::{AtomicU64, Ordering};

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(usize)]
pub enum CopyWay {
    /// From the host's memory to the device's.
    HostToDevice,
    /// From the device's memory to the host's.
    DeviceToHost,
    /// To or from another device.
    Peer,
    /// Within the device: on its SMs.
    DeviceToDevice,
    /// A memset: on the SMs too.
    Fill,
}

impl CopyWay {
    /// Every way, in the order of the words on the page.
    pub const ALL: [Self; 5] =
        [Self::HostToDevice, Self::DeviceToHost, Self::Peer, Self::DeviceToDevice, Self::Fill];

    /// Ways that a copy engine serves: the first ones of [`Self::ALL`].
    pub const ENGINES: usize = 3;

    /// Whether it runs on SMs and is charged as SM time.
    pub const fn is_on_sms(self) -> bool {
        self as usize >= Self::ENGINES
    }

    /// Whether it counts against the budget of bandwidth: what goes between host and device.
    pub const fn is_budgeted(self) -> bool {
        matches!(self, Self::HostToDevice | Self::DeviceToHost)
    }

    /// As statistics spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostToDevice => "host_to_device",
            Self::DeviceToHost => "device_to_host",
            Self::Peer => "peer",
            Self::DeviceToDevice => "device_to_device",
            Self::Fill => "fill",
        }
    }
}

/// What went one way.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Copied {
    /// Copies. Each one of a batch counts.
    pub calls: AtomicU64,
    /// Bytes.
    pub bytes: AtomicU64,
    /// Time they took, in nanoseconds: of the copy engine, or of the SMs; of a call that waits for its copy the time that
    /// it waited for it.
    pub time_ns: AtomicU64,
}

/// Everything that a process has copied; all only grow, but for small corrections of the time.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Copies {
    /// By [`CopyWay`].
    pub ways: [Copied; CopyWay::ALL.len()],
    _reserved: u64,
}

impl Copies {
    /// What went this way.
    pub fn of(&self, way: CopyWay) -> &Copied {
        &self.ways[way as usize]
    }

    /// The words, for whoever zeroes or moves them.
    pub(super) fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        self.ways.iter().flat_map(|way| [&way.calls, &way.bytes, &way.time_ns])
    }
}

impl Copied {
    /// Counts copies of so many bytes in all.
    pub fn add(&self, calls: u64, bytes: u64) {
        // Relaxed here and below: counters for people and for sums.
        self.calls.fetch_add(calls, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds to the time, or takes back what was predicted too long.
    pub fn add_time(&self, ns: i64) {
        self.time_ns.fetch_add(ns.cast_unsigned(), Ordering::Relaxed); // wraps: a signed sum
    }
}
