//! Keys whose values are words.

use serde::{Deserialize, Serialize};

/// What everything that a configuration does not set is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// As an H200 was measured.
    #[default]
    H200,
    /// The same with what other cards, drivers and containers do beside.
    Unkind,
}

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

/// What NVML says of the memory of single processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessMemory {
    /// What they hold.
    #[default]
    Shown,
    /// Nothing, as some drivers say in a container.
    Zero,
    /// They are not listed, as across the borders of a container.
    Absent,
    /// That it cannot be told (`NVML_VALUE_NOT_AVAILABLE`), as under WDDM or where the caller may not know.
    Unavailable,
}
