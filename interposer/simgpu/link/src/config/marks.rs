//! What events and words in streams cost: `[marks]` in the file.

use serde::{Deserialize, Serialize};

use super::within;

/// GPU: beside the kernels, in the context's turn. CPU: what the call takes at least. Source of all defaults: an H200 and an
/// H100 (driver 580).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Marks {
    /// A timed event on the GPU, ns. An untimed one takes nothing there.
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub timed_event_ns: u64,
    /// The same on the CPU.
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub timed_event_cpu_ns: u64,
    /// An untimed event on the CPU, ns.
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub event_cpu_ns: u64,
    /// A word that a stream writes, on the GPU, ns.
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub write_ns: u64,
    /// The same on the CPU.
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub write_cpu_ns: u64,
    /// A word of host memory that a stream waits for, once it is as it should be: on the GPU, ns.
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub wait_on_host_ns: u64,
    /// The same of a word of device memory.
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub wait_on_device_ns: u64,
    /// A wait on the CPU, ns.
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub wait_cpu_ns: u64,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            timed_event_ns: 2_080,
            timed_event_cpu_ns: 1_060,
            event_cpu_ns: 300,
            write_ns: 2_080,
            write_cpu_ns: 1_060,
            wait_on_host_ns: 2_270,
            wait_on_device_ns: 1_450,
            wait_cpu_ns: 950,
        }
    }
}
