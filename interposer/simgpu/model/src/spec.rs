//! What a device is, and what a kernel asks of it.

use crate::Nanos;

/// How contexts share the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each context in turn.
    TimeSlice,
    /// All at once.
    Mps,
}

/// A device. The defaults are an A100's where it matters; the broker fills in the configured ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Streaming multiprocessors.
    pub sms: u32,
    /// How contexts share.
    pub mode: Mode,
    /// A context's turn, ns.
    pub slice: Nanos,
    /// A switch of contexts, ns; at least 1, since real ones are never free.
    pub switch: Nanos,
    /// From submission to start, ns.
    pub submit_to_start: Nanos,
    /// Bytes per microsecond, i.e. MB/s, of each copy engine, in the order of [`crate::Engine`].
    pub copy_bytes_per_us: [u64; 3],
    /// Bytes per microsecond within the device's memory.
    pub device_bytes_per_us: u64,
    /// Sum of bandwidth demands at which kernels begin to slow each other, thousandths.
    pub knee_permille: u32,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            sms: 108,
            mode: Mode::TimeSlice,
            slice: 2_000_000,
            switch: 100_000,
            submit_to_start: 0,
            copy_bytes_per_us: [25_000, 25_000, 300_000],
            device_bytes_per_us: 1_555_000,
            knee_permille: 850,
        }
    }
}

/// A kernel's demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Time alone on the device, ns; waves and tails are priced in.
    pub solo: Nanos,
    /// Thread blocks; they spread breadth-first, so `sms` of them hold the whole device.
    pub blocks: u32,
    /// Bandwidth it takes when alone, thousandths.
    pub bandwidth_permille: u32,
    /// It runs until it is resumed, whatever `solo` says.
    pub spins: bool,
}

impl Kernel {
    /// A kernel that fills the device for `solo` ns.
    pub const fn full(solo: Nanos) -> Self {
        Self { solo, blocks: u32::MAX, bandwidth_permille: 0, spins: false }
    }
}

impl Spec {
    /// The kernel that fills or copies `bytes` of device memory: all of the bandwidth, few of the SMs count.
    pub(crate) fn memory_kernel(&self, bytes: u64) -> Kernel {
        let solo = transfer(bytes, self.device_bytes_per_us);
        Kernel { solo, blocks: self.sms, bandwidth_permille: 1000, spins: false }
    }
}

/// Least time of any transfer, ns. Source: a 4-byte copy takes 1-2 us on PCIe devices.
const LEAST_TRANSFER: Nanos = 1_500;

/// Time to move `bytes`, ns.
pub(crate) fn transfer(bytes: u64, bytes_per_us: u64) -> Nanos {
    let ns = u128::from(bytes) * 1000 / u128::from(bytes_per_us.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX >> 16).saturating_add(LEAST_TRANSFER)
}
