//! What a device is, and what a kernel asks of it.

use crate::Nanos;
use crate::noise::Noise;
use crate::stream::Work;

/// How contexts share the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each context in turn.
    TimeSlice,
    /// All at once.
    Mps,
}

/// A device. The defaults are round numbers, for scenarios that are reckoned by hand; [`Spec::h200`] is as a card was
/// measured, and the broker fills in what is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Streaming multiprocessors.
    pub sms: u32,
    /// How contexts share.
    pub mode: Mode,
    /// A context's turn, ns.
    pub slice: Nanos,
    /// A switch of contexts after a drain, ns; at least 1, since real ones are never free.
    pub switch: Nanos,
    /// What a switch takes beyond that where kernels are cut in their middle, ns: the least, and with all SMs full.
    pub cut: [Nanos; 2],
    /// Whether a drained context yields at once. If not, it has its slice to the end.
    pub yields_drained: bool,
    /// How often the making of a context interrupts the others.
    pub births: u32,
    /// How many streams of a context share a channel: one that is held holds up what the others were given after it.
    pub channel_streams: u32,
    /// What makes kernels longer or shorter than they should be.
    pub noise: Noise,
    /// From submission to start, ns.
    pub submit_to_start: Nanos,
    /// Bytes per microsecond, i.e. MB/s, of each copy engine, in the order of [`crate::Engine`].
    pub copy_bytes_per_us: [u64; 3],
    /// Bytes per microsecond within the device's memory.
    pub device_bytes_per_us: u64,
    /// Sum of bandwidth demands at which kernels begin to slow each other, thousandths.
    pub knee_permille: u32,
}

/// Over PCIe 4.0 x16 each way, and NVLink of an A100. Source: data sheets, less protocol.
const COPY_BYTES_PER_US: [u64; 3] = [25_000, 25_000, 300_000];
/// Source: A100 40 GB data sheet.
const DEVICE_BYTES_PER_US: u64 = 1_555_000;
/// Ours: DRAM efficiency under mixed streams is commonly seen at 80-90 % of the peak.
const KNEE_PERMILLE: u32 = 850;

impl Default for Spec {
    fn default() -> Self {
        Self {
            sms: 108,
            mode: Mode::TimeSlice,
            slice: 2_000_000,
            switch: 100_000,
            cut: [0; 2],
            yields_drained: true,
            births: 0,
            channel_streams: 1,
            noise: Noise::NONE,
            submit_to_start: 0,
            copy_bytes_per_us: COPY_BYTES_PER_US,
            device_bytes_per_us: DEVICE_BYTES_PER_US,
            knee_permille: KNEE_PERMILLE,
        }
    }
}

impl Spec {
    /// An H200 as it was measured (driver 580, CUDA 13.0), with its time slices, switches and starts; sizes and rates stay
    /// the default's.
    pub const fn h200() -> Self {
        Self {
            sms: 132,
            mode: Mode::TimeSlice,
            slice: 2_060_000,
            switch: 140_000,
            // One warp: 153 us in all; 1,024 threads on each SM: 195.
            cut: [13_000, 55_000],
            yields_drained: true,
            births: 30,
            channel_streams: 1,
            submit_to_start: 9_000,
            noise: Noise { independent_ppm: 400, correlated_ppm: 0 },
            copy_bytes_per_us: COPY_BYTES_PER_US,
            device_bytes_per_us: DEVICE_BYTES_PER_US,
            knee_permille: KNEE_PERMILLE,
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

    /// What the front end does between kernels, as a kernel that leaves the SMs to others.
    pub(crate) const fn mark(solo: Nanos) -> Self {
        Self { solo, blocks: 1, bandwidth_permille: 0, spins: false }
    }
}

impl Spec {
    /// What a command asks of the SMs, if it is anything.
    pub(crate) fn demand(&self, work: Work) -> Option<Kernel> {
        match work {
            Work::Kernel(kernel) => Some(kernel),
            Work::Memory(bytes) => Some(self.memory_kernel(bytes)),
            Work::Mark(takes) | Work::Record(_, _, takes) => Some(Kernel::mark(takes)),
            _ => None,
        }
    }

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
