//! What single words of a process's slot mean.

use serde::{Deserialize, Serialize};

/// What kind of memory a ledger entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum MemoryKind {
    /// `cuMemAlloc`, pitched too.
    Plain,
    /// `cuMemAllocManaged`.
    Managed,
    /// Stream-ordered allocations and the pools behind them.
    Pool,
    /// `cuMemCreate`.
    Virtual,
    /// Arrays and mipmapped arrays.
    Array,
    /// What a context costs by itself.
    Context,
    /// Memory nodes of graphs.
    Graph,
}

impl MemoryKind {
    /// Every kind, in the order of the words on the page.
    pub const ALL: [Self; 7] =
        [Self::Plain, Self::Managed, Self::Pool, Self::Virtual, Self::Array, Self::Context, Self::Graph];

    /// As statistics spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Managed => "managed",
            Self::Pool => "pool",
            Self::Virtual => "virtual",
            Self::Array => "array",
            Self::Context => "context",
            Self::Graph => "graph",
        }
    }
}

/// How a process stands to its budget. Everything but [`Self::Enforced`] is shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum ProcessState {
    /// Registered; no context on this GPU yet.
    Starting = 0,
    /// Budgets hold.
    Enforced = 1,
    /// The manager's epoch stands still: fallback rate, last limits.
    Stale = 2,
    /// A fault of ours let at least one call pass unenforced; or the process keeps limits of its own, where no manager sees it.
    Degraded = 3,
    /// It is no client of MPS, by which tenants share the GPU: it has no partition, its gate alone holds it.
    BesideMps = 4,
}

impl ProcessState {
    /// From a word that a tenant wrote: unknown values read as [`Self::Degraded`].
    pub fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Starting,
            1 => Self::Enforced,
            2 => Self::Stale,
            4 => Self::BesideMps,
            _ => Self::Degraded,
        }
    }

    /// As statistics spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Enforced => "enforced",
            Self::Stale => "stale",
            Self::Degraded => "degraded",
            Self::BesideMps => "beside_mps",
        }
    }
}

/// How a process knows what its contexts cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum ContextSource {
    /// It has no context yet.
    None = 0,
    /// NVML's figure for the process.
    Process = 1,
    /// By how much the card's used memory rose, within bounds: a neighbour's allocation may be in it.
    Difference = 2,
    /// What the operator has configured.
    Configured = 3,
    /// Nobody can tell: contexts are not charged.
    Unknown = 4,
}

impl ContextSource {
    /// From a word that a tenant wrote: unknown values read as [`Self::Unknown`].
    pub fn from_word(word: u32) -> Self {
        match word {
            0 => Self::None,
            1 => Self::Process,
            2 => Self::Difference,
            3 => Self::Configured,
            _ => Self::Unknown,
        }
    }
}
