//! One document with everything: what `weir stats --json` prints and `weir ps` reads.

mod collect;

use std::collections::BTreeMap;

pub use collect::collect;
use serde::{Deserialize, Serialize};
use weir_protocol::pages::{ContextSource, ProcessState};

use super::schema::{Budget, ClassName};
use super::unmanaged::{DrainingStats, UnmanagedStats};
use crate::birth::is_stopped;
use crate::calibration::Draw;
use crate::gpus::{Health, Reasons};
use crate::guard::Rule;
use crate::histogram::Histogram;
use crate::registry::{Counters, Latency, ScraperStats, Stand};
use crate::signals::SignalStats;

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// [`SCHEMA`](super::schema::SCHEMA).
    pub schema: u32,
    /// The node manager.
    pub node: NodeStats,
    /// The GPUs.
    pub gpus: Vec<GpuStats>,
    /// Signals from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<SignalStats>,
    /// Processes on the GPUs that have no budget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged: Vec<UnmanagedStats>,
    /// Processes that have died and hold memory still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<DrainingStats>,
    /// The tenants.
    pub tenants: Vec<TenantStats>,
}

/// The node manager itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStats {
    /// Version of this build.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// `standalone`, `managed` or `strict`.
    pub mode: weir_protocol::message::FailMode,
    /// The policy that each GPU starts with.
    pub policy: String,
    /// Whether the operator has switched everything off but the memory limits.
    #[serde(default)]
    pub off: bool,
    /// Length of a tick, in microseconds.
    pub tick_us: u64,
    /// Ticks so far.
    pub epoch: u64,
    /// Whether any GPU is simulated.
    pub simulated: bool,
    /// How it stands with NVML.
    pub nvml: Health,
    /// Why not better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvml_why: Option<String>,
    /// What follows for processes without a budget.
    #[serde(default)]
    pub unmanaged: Rule,
    /// From changes of budget to the first launches under them.
    #[serde(default)]
    pub resize_latency: Histogram,
    /// `kept`; `degraded`: it cannot be written, a manager that starts after this one will not know everything; `off` in a
    /// stand-alone run.
    #[serde(default)]
    pub journal: String,
    /// The process that reads pages of latencies and signals.
    #[serde(default)]
    pub scraper: ScraperStats,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuStats {
    /// Its index.
    pub index: usize,
    /// Its UUID as `nvidia-smi` spells it.
    pub uuid: String,
    /// The product's name.
    pub name: String,
    /// Whether it is simulated.
    pub simulated: bool,
    /// The card's memory.
    pub memory_total_bytes: u64,
    /// The card's memory less the reserve: what tenants can have together.
    pub memory_usable_bytes: u64,
    /// Memory in use by NVML's account; absent where it is not known.
    pub memory_used_bytes: Option<u64>,
    /// Its power and clocks by NVML's account.
    #[serde(default)]
    pub power: PowerStats,
    /// The policy that decides there.
    #[serde(default)]
    pub policy: String,
    /// Whether tenants share it by MPS.
    #[serde(default)]
    pub mps: bool,
    /// Sum of the requests.
    pub requested_permille: u16,
    /// Sum of the memory limits, but for those of parked tenants.
    pub memory_limits_bytes: u64,
    /// Memory of parked tenants, which is on the host.
    #[serde(default)]
    pub memory_parked_bytes: u64,
}

/// A GPU's power and clocks, as they were read last. Absent is what the card or its driver does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerStats {
    /// What it draws.
    pub draw_mw: Option<u32>,
    /// What it may draw.
    pub limit_mw: Option<u32>,
    /// What it draws at rest: the least mean between two readings since the manager started.
    pub idle_mw: Option<u64>,
    /// What it draws at rest and at work, by its calibration file.
    pub calibrated: Option<Draw>,
    /// What it has taken since the driver was loaded.
    pub energy_mj: Option<u64>,
    /// Clock of the SMs.
    pub sm_clock_mhz: Option<u32>,
    /// That clock at most.
    pub sm_clock_most_mhz: Option<u32>,
    /// What holds the clocks down, by `nvidia-smi`'s names: `sw_power_cap`.
    pub clock_reasons: Option<Vec<String>>,
}

impl PowerStats {
    /// Which of the reasons are power or heat.
    pub fn held_back_by(&self) -> Vec<String> {
        let mut names = Reasons::HOLD_BACK.names();
        names.retain(|name| self.clock_reasons.as_ref().is_some_and(|reasons| reasons.contains(name)));
        names
    }
}

/// One tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantStats {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: ClassName,
    /// The user who made it.
    pub owner_uid: u32,
    /// `starting`, `enforced`, `stale`, `degraded`, `unreached`, `stopped` or `unmanaged` (one of its processes runs
    /// without the budget): the worst of its processes; `off` while nothing is enforced but memory; `parking`, `parked`,
    /// `unparking`, and `checkpointed` (by somebody else) go before all of these.
    pub state: String,
    /// Its budget.
    pub budget: Budget,
    /// The budget with which it was made.
    pub budget_at_start: Budget,
    /// Its latencies, where it has promised any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Whether it stays without a process: it stands in the configuration.
    #[serde(default)]
    pub persistent: bool,
    /// The budget that it has there; `budget` is another one where an operator has set it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured: Option<Budget>,
    /// Time since it was made, in nanoseconds: what its counters are a part of.
    pub age_ns: u64,
    /// Whether its plain allocations beyond the memory limit become managed memory.
    pub oversubscribe: bool,
    /// Processes that ever registered.
    pub processes_ever: u64,
    /// Its processes by id.
    pub pids: Vec<i32>,
    /// Processes whose pages could not be taken over from an earlier manager: they keep to their last limits.
    #[serde(default)]
    pub unreached_pids: Vec<i32>,
    /// Its GPUs.
    pub gpus: Vec<TenantGpuStats>,
}

/// Asks for everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskStats {
    /// Without what each process did: a thousand of them are a megabyte and more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overview: bool,
}

impl TenantStats {
    /// Looks whether one of its processes is stopped.
    pub(super) fn look_at_processes(&mut self) {
        if !FIRST.contains(&self.state.as_str()) && self.pids.iter().any(|pid| is_stopped(*pid)) {
            self.state = "stopped".into();
        }
    }

    /// Leaves out what only its owner may see.
    pub(super) fn hide_processes(&mut self) {
        self.pids.clear();
        self.unreached_pids.clear();
        self.latency = None; // where its figures are to be had is its own
        self.gpus.iter_mut().for_each(|gpu| gpu.processes.clear());
    }

    /// Memory of one kind that its living processes hold on its first GPU, in bytes.
    pub fn memory_of_kind_bytes(&self, kind: &str) -> u64 {
        let processes = self.gpus.first().into_iter().flat_map(|gpu| &gpu.processes);
        processes.filter_map(|process| process.memory_by_kind_bytes.get(kind)).sum()
    }
}

/// One tenant on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantGpuStats {
    /// Index of the GPU.
    pub index: usize,
    /// Its UUID.
    pub uuid: String,
    /// The grant page's epoch.
    pub epoch: u64,
    /// Which grant holds.
    pub generation: u32,
    /// The policy's state for it, such as `STEADY`; empty before the first decision.
    #[serde(default)]
    pub policy_state: String,
    /// Refill rate, in millionths of the GPU.
    pub rate_ppm: u32,
    /// Rate without a manager or with a closed gate.
    pub fallback_ppm: u32,
    /// Whether the gate is closed.
    pub gate_closed: bool,
    /// `passes`, takes no turns; `waits`, a launch may not go yet; `dense`, at work in its turn; `rests`, nothing is in flight.
    #[serde(default)]
    pub turns: String,
    /// Most tokens in the bucket.
    pub capacity_ns: i64,
    /// Balance at which a waiting launch goes on.
    pub resume_at_ns: i64,
    /// Most predicted work in flight.
    pub in_flight_cap_ns: u64,
    /// Longest that each of its bursts is put off, as its promise leaves it time to spare; 0: not at all.
    #[serde(default)]
    pub hold_ns: u64,
    /// The memory limit that holds.
    pub memory_limit_bytes: u64,
    /// Bytes that may be copied between host and device in each second; 0: unlimited.
    pub copy_limit_bytes_per_s: u64,
    /// Bytes that may be copied at once; negative: a debt. 0 where it is unlimited.
    pub copy_balance_bytes: i64,
    /// Tokens in the bucket; negative: a debt.
    pub balance_ns: i64,
    /// Share charged during the last second, by the tenant's own counters.
    pub achieved_percent: f64,
    /// Energy that its work has taken since the manager started: its part of what the GPU has taken beyond rest, by SM time;
    /// absent where the GPU does not tell.
    #[serde(default)]
    pub energy_mj: Option<u64>,
    /// Memory held.
    pub memory_held_bytes: u64,
    /// Memory that is on the host because the tenant is parked; it holds none then.
    #[serde(default)]
    pub memory_parked_bytes: u64,
    /// What NVML says that it holds beyond that, in bytes; absent where it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_drift_bytes: Option<i64>,
    /// Whether more is held than the limit allows because it could not be refused, contexts that grew, for example; or may
    /// come to be held, since limits and growth do not fit on the card together.
    pub overcommitted: bool,
    /// What the card lacks for the limits of this tenant and those before it, and for what contexts may grow by.
    #[serde(default)]
    pub growth_uncovered_bytes: u64,
    /// Counters of all processes, dead ones too.
    pub total: Counters,
    /// Counters of the living.
    pub processes: Vec<ProcessStats>,
}

/// One process on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessStats {
    /// Process id in the manager's namespace.
    pub pid: i32,
    /// Its slot.
    pub slot: usize,
    /// How it stands to its budget.
    pub state: ProcessState,
    /// Version of its `libweir.so`.
    pub build: String,
    /// Its driver library.
    pub driver: String,
    /// Memory held.
    pub memory_held_bytes: u64,
    /// Memory of other processes that it has open; charged to its owner.
    pub memory_shared_bytes: u64,
    /// How it knows what its contexts cost.
    pub context_source: ContextSource,
    /// Memory held by kind.
    pub memory_by_kind_bytes: BTreeMap<String, u64>,
    /// The grant under which it launched last.
    pub acked_generation: u32,
    /// Predicted work handed to the driver and not known to be done.
    pub outstanding_ns: u64,
    /// Its counters.
    pub counters: Counters,
}

/// A tenant's state while nothing is enforced but memory.
const OFF: &str = "off";
const CHECKPOINTED: &str = "checkpointed";
const UNMANAGED: &str = "unmanaged";
const BESIDE_MPS: &str = ProcessState::BesideMps.name();

/// States that say more than that a process is stopped.
const FIRST: [&str; 7] = [
    OFF,
    CHECKPOINTED,
    UNMANAGED,
    BESIDE_MPS,
    Stand::Parking.as_str(),
    Stand::Parked.as_str(),
    Stand::Unparking.as_str(),
];
