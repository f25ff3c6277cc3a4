//! Profiles: the values of all keys that a configuration does not set, each with its source.

use weir_protocol::units::Bytes;

use super::{Config, Marks, Mode, ProcessMemory, Profile};

/// Memory of an A100 40 GB. Source: NVIDIA A100 data sheet.
pub const MEMORY: Bytes = Bytes::gib(40);
/// SMs of an A100. Source: NVIDIA A100 white paper.
pub const SMS: u32 = 108;
/// A context's turn under time-slicing, us. Source: an H200, from each switch on.
pub const SLICE_US: u64 = 2_060;
/// A switch between contexts after a drain, us. Source: an H200, 137 to 146.
pub const SWITCH_US: u64 = 140;
/// A switch in mid-kernel beyond that, us. Source: an H200, 153 with one warp, 195 with 1,024 threads on each SM.
pub const CUT_US: [u64; 2] = [13, 55];
/// How often the making of a context interrupts others that run. Source: an H200, within 165 ms.
pub const CONTEXT_STALLS: u32 = 30;
/// Commands a stream takes before the launcher blocks. Source: an H200.
pub const QUEUE_DEPTH: u32 = 1_021;
/// From submission to start on an idle GPU, us. Source: an H200.
pub const SUBMIT_TO_START_US: u64 = 9;
/// A launch call, ns. Source: an H200, 4.1 to 4.5 us.
pub const LAUNCH_CPU_NS: u64 = 4_300;
/// A launch of a graph, ns. Source: an H200, a graph of 200 nodes.
pub const GRAPH_CPU_NS: u64 = 1_800;
/// Standard deviation of a kernel's time, millionths. Source: an H200, a kernel that computes, 3,000 times.
pub const SPREAD_PPM: u32 = 400;
/// Host to device and back, GB/s. Source: PCIe 4.0 x16, 32 GB/s less protocol.
pub const PCIE_GB_S: u64 = 25;
/// To another device, GB/s. Source: A100 NVLink, 600 GB/s in both directions.
pub const PEER_GB_S: u64 = 300;
/// Device memory, GB/s. Source: A100 40 GB data sheet, 1,555 GB/s.
pub const DEVICE_GB_S: u64 = 1_555;
/// Memory that a context takes. Source: `nvidia-smi` beside an empty context on an A100, about 400 MiB.
pub const CONTEXT_OVERHEAD: Bytes = Bytes::mib(400);
/// Power of a card on which nothing runs, W. Source: `nvidia-smi` on idle A100s shows 50 to 60 W.
pub const IDLE_W: u32 = 55;
/// Power of a card on which a kernel always runs, W. Source: A100 SXM4 data sheet, 400 W at most.
pub const BUSY_W: u32 = 400;
/// Power limit, W. Source: as above.
pub const POWER_LIMIT_W: u32 = 400;
/// How long a broker stays without clients, ms. Long enough for a shell loop of short programs.
pub const LINGER_MS: u64 = 2_000;
/// The CUDA version that the driver says, 1000 x major + 10 x minor.
pub const DRIVER_VERSION: u32 = 12_090;
/// Time of one block of a kernel without a row, ns.
pub const NS_PER_BLOCK: u64 = 5_000;
/// Bandwidth demand at which kernels begin to slow each other, thousandths of the device's. Ours: DRAM
/// efficiency under mixed streams is commonly seen at 80-90 % of the peak.
pub const BANDWIDTH_KNEE: u32 = 850;

/// Of the unkind profile. Ours: what boost clocks, caches and data make of kernels on cards that are not kept still.
const UNKIND_SPREAD_PPM: u32 = 30_000;
const UNKIND_DRIFT_PPM: u32 = 50_000;
/// Ours: two, so that each stream has somebody to hold up.
const UNKIND_CHANNEL_STREAMS: u32 = 2;

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::H200,
            gpus: 1,
            memory: MEMORY,
            sms: SMS,
            mode: Mode::TimeSlice,
            mps_pipe_directory: None,
            slice_us: SLICE_US,
            switch_us: SWITCH_US,
            cut_least_us: CUT_US[0],
            cut_most_us: CUT_US[1],
            yields_drained: true,
            context_stalls: CONTEXT_STALLS,
            channel_streams: 1,
            spread_ppm: SPREAD_PPM,
            drift_ppm: 0,
            queue_depth: QUEUE_DEPTH,
            linger_ms: LINGER_MS,
            driver_version: DRIVER_VERSION,
            launch_cpu_ns: LAUNCH_CPU_NS,
            graph_cpu_ns: GRAPH_CPU_NS,
            marks: Marks::default(),
            stream_waits: true,
            driver_locks: false,
            process_memory: ProcessMemory::Shown,
            submit_to_start_us: SUBMIT_TO_START_US,
            host_to_device_gb_s: PCIE_GB_S,
            device_to_host_gb_s: PCIE_GB_S,
            peer_gb_s: PEER_GB_S,
            device_gb_s: DEVICE_GB_S,
            context_overhead: CONTEXT_OVERHEAD,
            idle_w: IDLE_W,
            busy_w: BUSY_W,
            power_limit_w: POWER_LIMIT_W,
            ns_per_block: NS_PER_BLOCK,
            kernel: Vec::new(),
            fault: Vec::new(),
        }
    }
}

impl Config {
    /// All that a profile is.
    ///
    /// Not in `unkind`, since they would hide the rest of it: no yield after a drain, no waits in streams, other slices.
    pub fn of(profile: Profile) -> Self {
        match profile {
            Profile::H200 => Self::default(),
            Profile::Unkind => Self {
                profile,
                spread_ppm: UNKIND_SPREAD_PPM,
                drift_ppm: UNKIND_DRIFT_PPM,
                channel_streams: UNKIND_CHANNEL_STREAMS,
                driver_locks: true,
                process_memory: ProcessMemory::Unavailable,
                ..Self::default()
            },
        }
    }
}
