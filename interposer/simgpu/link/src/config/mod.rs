//! Configuration of the simulated machine: one TOML file (`$WEIR_SIMGPU_CONFIG`), single keys overridden from
//! the environment. A profile says what the other keys are if nobody sets them: `h200` behaves in time as a card was
//! measured to, with the memory and the SMs of an A100; `unkind` adds what other cards and drivers do. Each figure is a
//! named constant with its source. Nonsense is refused with the line, the key and the range.

mod fault;
mod kernel;
mod load;
mod marks;
mod profile;
mod size;
mod ways;

pub use fault::{Fault, FaultAction, Lie, When};
pub use kernel::{KernelRow, waves_ns};
pub use load::ConfigError;
pub use marks::Marks;
pub use profile::*;
pub use ways::{Mode, ProcessMemory, Profile};

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, de};
use weir_protocol::price;
use weir_protocol::units::Bytes;

/// The whole configuration, complete and in range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where all that is not set comes from, `h200` or `unkind`.
    pub profile: Profile,
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
    /// A switch of contexts after a drain, us, 1 to 100,000: never zero, real ones are not.
    #[serde(deserialize_with = "within::<1, 100_000, _, _>")]
    pub switch_us: u64,
    /// What a switch takes beyond that where kernels are cut off in their middle, us: where they hold hardly any SM.
    #[serde(deserialize_with = "within::<0, 100_000, _, _>")]
    pub cut_least_us: u64,
    /// The same where they fill all SMs.
    #[serde(deserialize_with = "within::<0, 100_000, _, _>")]
    pub cut_most_us: u64,
    /// Whether a context that is drained yields at once. If not, it has its slice to the end.
    pub yields_drained: bool,
    /// How often the making of a context interrupts others that run, 0 to 1,000.
    #[serde(deserialize_with = "within::<0, 1_000, _, _>")]
    pub context_stalls: u32,
    /// How many streams of a context share a channel, 1 to 64: one that is held holds up the others.
    #[serde(deserialize_with = "within::<1, 64, _, _>")]
    pub channel_streams: u32,
    /// Standard deviation of the time of each kernel, millionths.
    #[serde(deserialize_with = "within::<0, 200_000, _, _>")]
    pub spread_ppm: u32,
    /// The same of what all kernels of 20 ms, and of 5 s, have in common.
    #[serde(deserialize_with = "within::<0, 200_000, _, _>")]
    pub drift_ppm: u32,
    /// Commands outstanding in one stream, 1 to 2,048.
    #[serde(deserialize_with = "within::<1, 2048, _, _>")]
    pub queue_depth: u32,
    /// How long the broker stays without clients, ms, up to one hour.
    #[serde(deserialize_with = "within::<0, 3_600_000, _, _>")]
    pub linger_ms: u64,
    /// CUDA version of the driver, 11000 to 13990.
    #[serde(deserialize_with = "within::<11_000, 13_990, _, _>")]
    pub driver_version: u32,
    /// CPU time that a launch call takes at least, ns.
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub launch_cpu_ns: u64,
    /// The same of a graph's launch.
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub graph_cpu_ns: u64,
    /// What events and words cost.
    pub marks: Marks,
    /// Whether streams can wait for words. If not, such calls answer `CUDA_ERROR_NOT_SUPPORTED`, and no attribute says so.
    pub stream_waits: bool,
    /// Whether a launch that waits for room in a full queue holds a lock that the process's other driver calls need.
    pub driver_locks: bool,
    /// What NVML says of the memory of processes: `shown`, `zero`, `absent` or `unavailable`.
    pub process_memory: ProcessMemory,
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
