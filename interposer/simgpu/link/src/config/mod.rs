//! Configuration of the simulated machine: one TOML file (`$WEIR_SIMGPU_CONFIG`), single keys overridden from
//! the environment. Defaults describe one NVIDIA A100 40 GB; each is a named constant with its source.
//! Nonsense is refused with the line, the key and the range.

mod fault;
mod kernel;
mod load;
mod size;

pub use fault::{Fault, FaultAction, Lie, When};
pub use kernel::{KernelRow, waves_ns};
pub use load::ConfigError;

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, de};
use weir_protocol::price;
use weir_protocol::units::Bytes;

/// Memory of an A100 40 GB. Source: NVIDIA A100 data sheet.
pub const MEMORY: Bytes = Bytes::gib(40);
/// SMs of an A100. Source: NVIDIA A100 white paper.
pub const SMS: u32 = 108;
/// A context's turn under time-slicing, us. Source: the driver's default class "medium", 2 ms in nvidia-smi's help.
pub const SLICE_US: u64 = 2_000;
/// A switch between contexts, us. Source: two sliced tenants got 92 % in sum on an A100, i.e. a twentieth to a
/// tenth of the slice (GA100 note); to be replaced by calibration.
pub const SWITCH_US: u64 = 100;
/// Commands a stream takes before the launcher blocks. Source: common experience, about 1,024.
pub const QUEUE_DEPTH: u32 = 1_024;
/// From submission to start on an idle GPU, us. Source: 3-6 us between launch and start in profiler traces.
pub const SUBMIT_TO_START_US: u64 = 4;
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

/// How contexts share the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each context in turn.
    TimeSlice,
    /// All at once, as under MPS.
    Mps,
}

impl Mode {
    /// As written in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::TimeSlice => "time-slice",
            Mode::Mps => "mps",
        }
    }
}

/// The whole configuration, complete and in range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Number of GPUs, 1 to 16.
    #[serde(deserialize_with = "within::<1, 16, _, _>")]
    pub gpus: u32,
    /// Memory of each, `40GiB`.
    #[serde(with = "size")]
    pub memory: Bytes,
    /// SMs of each, 1 to 1,024.
    #[serde(deserialize_with = "within::<1, 1024, _, _>")]
    pub sms: u32,
    /// `time-slice` or `mps`.
    pub mode: Mode,
    /// Where the control daemon of MPS is: whoever looks elsewhere is no client of it. Absent: everybody is.
    pub mps_pipe_directory: Option<PathBuf>,
    /// A context's turn, us, 10 to 1,000,000.
    #[serde(deserialize_with = "within::<10, 1_000_000, _, _>")]
    pub slice_us: u64,
    /// A switch of contexts, us, 1 to 100,000: never zero, real ones are not.
    #[serde(deserialize_with = "within::<1, 100_000, _, _>")]
    pub switch_us: u64,
    /// Commands outstanding in one stream, 1 to 2,048.
    #[serde(deserialize_with = "within::<1, 2048, _, _>")]
    pub queue_depth: u32,
    /// How long the broker stays without clients, ms, up to one hour.
    #[serde(deserialize_with = "within::<0, 3_600_000, _, _>")]
    pub linger_ms: u64,
    /// CUDA version of the driver, 11000 to 13990.
    #[serde(deserialize_with = "within::<11_000, 13_990, _, _>")]
    pub driver_version: u32,
    /// CPU time that each launch call burns, ns.
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub launch_cpu_ns: u64,
    /// From submission to start on an idle GPU, us.
    #[serde(deserialize_with = "within::<0, 100_000, _, _>")]
    pub submit_to_start_us: u64,
    /// Host to device, GB/s.
    #[serde(deserialize_with = "within::<1, 100_000, _, _>")]
    pub host_to_device_gb_s: u64,
    /// Device to host, GB/s.
    #[serde(deserialize_with = "within::<1, 100_000, _, _>")]
    pub device_to_host_gb_s: u64,
    /// To another device, GB/s.
    #[serde(deserialize_with = "within::<1, 100_000, _, _>")]
    pub peer_gb_s: u64,
    /// Within a device, GB/s.
    #[serde(deserialize_with = "within::<1, 100_000, _, _>")]
    pub device_gb_s: u64,
    /// Memory that each context takes.
    #[serde(with = "size")]
    pub context_overhead: Bytes,
    /// Power while nothing runs, W.
    #[serde(deserialize_with = "within::<1, 10_000, _, _>")]
    pub idle_w: u32,
    /// Power while a kernel runs, W; the mean lies between the two in proportion.
    #[serde(deserialize_with = "within::<1, 10_000, _, _>")]
    pub busy_w: u32,
    /// Power limit, W. A mean beyond it is shown as a reason that holds the clocks back. Nothing is slowed by it, and so the
    /// mean stays beyond it.
    #[serde(deserialize_with = "within::<1, 10_000, _, _>")]
    pub power_limit_w: u32,
    /// Time of one block of a kernel that no row names, ns.
    #[serde(deserialize_with = "within::<1, 3_600_000_000_000, _, _>")]
    pub ns_per_block: u64,
    /// What kernels cost; the first row whose name matches counts.
    pub kernel: Vec<KernelRow>,
    /// Faults to inject.
    pub fault: Vec<Fault>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            gpus: 1,
            memory: MEMORY,
            sms: SMS,
            mode: Mode::TimeSlice,
            mps_pipe_directory: None,
            slice_us: SLICE_US,
            switch_us: SWITCH_US,
            queue_depth: QUEUE_DEPTH,
            linger_ms: LINGER_MS,
            driver_version: DRIVER_VERSION,
            launch_cpu_ns: 0,
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
    /// The row that prices kernels of this name.
    pub fn kernel_row(&self, name: &str) -> Option<&KernelRow> {
        self.kernel.iter().find(|row| price::matches(&row.name, name))
    }
}

/// A whole number in a range; the error names the range, TOML adds line and key.
fn within<'de, const LOW: u64, const HIGH: u64, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    // i64: TOML's own type, so that a negative number gets the same clear answer.
    let value = i64::deserialize(from)?;
    u64::try_from(value)
        .ok()
        .filter(|value| (LOW..=HIGH).contains(value))
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| de::Error::custom(format!("{value} is not between {LOW} and {HIGH}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        toml::from_str::<Config>(text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_means_the_defaults() {
        assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
    }

    #[test]
    fn zero_sms_are_refused_with_line_key_and_range() {
        let why = refusal("gpus = 2\nsms = 0\n");
        assert!(
            why.contains("line 2") && why.contains("sms = 0") && why.contains("between 1 and 1024"),
            "{why}"
        );
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_known_ones() {
        let why = refusal("smss = 3\n");
        assert!(why.contains("line 1") && why.contains("smss") && why.contains("slice_us"), "{why}");
    }

    #[test]
    fn only_a_call_of_the_driver_can_be_the_last_that_succeeded() {
        let row = |call: &str| format!("[[fault]]\ncall = '{call}'\nnth = 1\naction = 'sigkill-after'\n");
        let config: Config = toml::from_str(&row("cuMem*")).unwrap();
        assert_eq!(config.fault[0].action, FaultAction::SigkillAfter);
        assert_eq!(toml::from_str::<Config>(&toml::to_string(&config).unwrap()).unwrap(), config);
        for call in ["nvmlInit_v2", "*"] {
            assert!(refusal(&row(call)).contains("only the driver's calls"), "{call}");
        }
    }

    #[test]
    fn a_size_without_a_unit_is_refused_with_a_hint() {
        let why = refusal("memory = \"40\"\n");
        assert!(why.contains("line 1") && why.contains("40GiB"), "{why}");
    }
}
