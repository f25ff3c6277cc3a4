//! One document with everything: what `weir stats --json` prints and `weir ps` reads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_protocol::pages::{ContextSource, Gate, MemoryKind, ProcessSlot, ProcessState};

use super::schema::{Budget, ClassName, SCHEMA};
use super::unmanaged::{self, UnmanagedStats};
use crate::birth::is_stopped;
use crate::gpus::Health;
use crate::guard::Rule;
use crate::histogram::Histogram;
use crate::registry::{Cell, Counters, Latency, PERSISTENT, Process, Registry, Stand, Tenant};
use crate::shared::now;
use crate::signals::SignalStats;

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// [`SCHEMA`].
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
    /// Most tokens in the bucket.
    pub capacity_ns: i64,
    /// Balance at which a waiting launch goes on.
    pub resume_at_ns: i64,
    /// Most predicted work in flight.
    pub in_flight_cap_ns: u64,
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
    /// Memory held.
    pub memory_held_bytes: u64,
    /// Memory that is on the host because the tenant is parked; it holds none then.
    #[serde(default)]
    pub memory_parked_bytes: u64,
    /// What NVML says that it holds beyond that, in bytes; absent where it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_drift_bytes: Option<i64>,
    /// Whether more is held than the limit allows because it could not be refused: contexts that grew, for example.
    pub overcommitted: bool,
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

/// Everything in `registry`, but for whether processes are stopped.
pub fn collect(registry: &Registry, mode: weir_protocol::message::FailMode, tick_us: u64) -> Stats {
    let (nvml, nvml_why) = registry.gpus.health();
    let node = NodeStats {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        mode,
        policy: registry.policy_name.into(),
        off: registry.is_off(),
        tick_us,
        epoch: registry.epoch,
        simulated: registry.gpus.devices.iter().any(crate::gpus::Device::is_simulated),
        nvml,
        nvml_why,
        unmanaged: registry.guarded().rule,
        resize_latency: Histogram::default(),
        journal: registry.journal().as_str().into(),
    };
    let tenants = registry.tenants().iter().map(|tenant| tenant_stats(registry, tenant)).collect();
    let (signals, unmanaged) = (registry.signals().to_vec(), unmanaged::collect(registry));
    Stats { schema: SCHEMA, node, gpus: gpu_stats(registry), signals, unmanaged, tenants }
}

fn gpu_stats(registry: &Registry) -> Vec<GpuStats> {
    let used = registry.gpus.used();
    let on = |gpu: usize| registry.tenants().iter().filter(move |t| t.cells.iter().any(|c| c.gpu == gpu));
    let devices = registry.gpus.devices.iter().enumerate();
    let stats = devices.map(|(index, device)| GpuStats {
        index,
        uuid: device.uuid_text(),
        name: device.name.clone(),
        simulated: device.is_simulated(),
        memory_total_bytes: device.memory_total.0,
        memory_usable_bytes: registry.usable_memory(index).0,
        memory_used_bytes: used.get(index).copied().flatten(),
        policy: registry.policy_of(index).map_or(String::new(), |row| row.name.into()),
        mps: registry.is_mps(index),
        requested_permille: on(index).map(|t| t.budget.request.as_permille()).sum(),
        memory_limits_bytes: on(index).filter(|t| !t.is_parked()).map(|t| t.budget.memory.0).sum(),
        memory_parked_bytes: on(index)
            .filter(|t| t.is_parked())
            .flat_map(|t| &t.cells)
            .filter(|cell| cell.gpu == index)
            .map(|cell| cell.held().0)
            .sum(),
    });
    stats.collect()
}

/// A tenant's state while nothing is enforced but memory.
const OFF: &str = "off";
const CHECKPOINTED: &str = "checkpointed";
const UNMANAGED: &str = "unmanaged";
const BESIDE_MPS: &str = "beside_mps";

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

fn tenant_stats(registry: &Registry, tenant: &Tenant) -> TenantStats {
    let gpus: Vec<_> = tenant.cells.iter().map(|cell| cell_stats(registry, tenant, cell)).collect();
    TenantStats {
        name: tenant.name.clone(),
        class: tenant.class,
        owner_uid: tenant.owner,
        state: match tenant.park.stand {
            Stand::Running if tenant.park.held => CHECKPOINTED.into(),
            Stand::Running if registry.is_off() => OFF.into(),
            Stand::Running => state(registry, tenant, &gpus),
            stand => stand.as_str().into(),
        },
        budget: tenant.budget,
        budget_at_start: tenant.budget_at_start,
        latency: tenant.latency.clone(),
        persistent: tenant.holders.contains(&PERSISTENT),
        age_ns: now().since(tenant.made_at).0,
        oversubscribe: tenant.oversubscribe,
        processes_ever: tenant.registered,
        pids: tenant.processes.iter().map(|process| process.pid).collect(),
        unreached_pids: tenant.unreached.iter().map(|process| process.pid).collect(),
        gpus,
    }
}

/// The worst of the processes' states, each process at its best GPU: most never touch all of them.
fn state(registry: &Registry, tenant: &Tenant, gpus: &[TenantGpuStats]) -> String {
    let all = || gpus.iter().flat_map(|gpu| &gpu.processes).map(|process| process.state);
    let name = match () {
        () if registry.guarded().has_escaped(tenant.id) => UNMANAGED,
        () if !tenant.unreached.is_empty() => "unreached",
        () if all().any(|s| s == ProcessState::Degraded) => "degraded",
        () if all().any(|s| s == ProcessState::BesideMps) => BESIDE_MPS,
        () if all().any(|s| s == ProcessState::Stale) => "stale",
        () if all().any(|s| s == ProcessState::Enforced) => "enforced",
        () => "starting",
    };
    name.into()
}

fn cell_stats(registry: &Registry, tenant: &Tenant, cell: &Cell) -> TenantGpuStats {
    let grant = cell.pages.grant.read();
    let processes: Vec<_> = tenant.processes.iter().filter_map(|p| process_stats(cell, p)).collect();
    let mut total = cell.dead.clone();
    processes.iter().for_each(|process| total.add(&process.counters));
    TenantGpuStats {
        index: cell.gpu,
        uuid: registry.gpus.devices.get(cell.gpu).map(crate::gpus::Device::uuid_text).unwrap_or_default(),
        epoch: cell.pages.grant.epoch(),
        generation: grant.generation,
        policy_state: cell.state().into(),
        rate_ppm: grant.rate.as_ppm(),
        fallback_ppm: grant.fallback_rate.as_ppm(),
        gate_closed: grant.gate == Gate::Closed,
        capacity_ns: grant.capacity.0,
        resume_at_ns: grant.resume_at.0,
        in_flight_cap_ns: grant.in_flight_cap.0,
        memory_limit_bytes: grant.memory_limit.0,
        copy_limit_bytes_per_s: grant.copy_limit.0,
        copy_balance_bytes: cell.pages.bucket.copies(),
        balance_ns: cell.pages.bucket.balance().0,
        achieved_percent: cell.achieved().as_percent(),
        memory_held_bytes: if tenant.is_parked() { 0 } else { cell.held().0 },
        memory_parked_bytes: if tenant.is_parked() { cell.held().0 } else { 0 },
        memory_drift_bytes: registry.guarded().drift(tenant.id, cell.gpu),
        overcommitted: !tenant.is_parked() && cell.is_overcommitted(cell.held()),
        total,
        processes,
    }
}

fn process_stats(cell: &Cell, process: &Process) -> Option<ProcessStats> {
    use std::sync::atomic::Ordering::Relaxed; // figures for people, each whole by itself
    let slot = cell.pages.usage.slots.get(process.slot)?;
    let (submitted, completed) = (slot.submitted_ns.load(Relaxed), slot.completed_ns.load(Relaxed));
    let by_kind =
        MemoryKind::ALL.iter().zip(&slot.by_kind).map(|(kind, word)| (kind_name(*kind), word.load(Relaxed)));
    let counters = Counters::of(slot);
    Some(ProcessStats {
        pid: process.pid,
        slot: process.slot,
        state: process_state(slot, &counters),
        build: process.build.clone(),
        driver: process.driver.clone(),
        memory_held_bytes: slot.held_bytes.load(Relaxed),
        memory_shared_bytes: slot.shared_bytes.load(Relaxed),
        context_source: ContextSource::from_word(slot.context_source.load(Relaxed)),
        memory_by_kind_bytes: by_kind
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(kind, bytes)| (kind.to_owned(), bytes))
            .collect(),
        acked_generation: slot.acked_generation.load(Relaxed),
        outstanding_ns: submitted.saturating_sub(completed),
        counters,
    })
}

/// A process writes its state when it launches. One that has only used memory has a context, and is bound by its
/// limit as any other. (The card's size can be asked for without a context.)
fn process_state(slot: &ProcessSlot, counters: &Counters) -> ProcessState {
    let word = slot.state.load(std::sync::atomic::Ordering::Relaxed); // see `process_stats`
    let uses_memory = counters.memory_calls.keys().any(|name| name != "cuDeviceTotalMem_v2");
    match ProcessState::from_word(word) {
        ProcessState::Starting if uses_memory || counters.refused > 0 => ProcessState::Enforced,
        state => state,
    }
}

fn kind_name(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Plain => "plain",
        MemoryKind::Managed => "managed",
        MemoryKind::Pool => "pool",
        MemoryKind::Virtual => "virtual",
        MemoryKind::Array => "array",
        MemoryKind::Context => "context",
        MemoryKind::Graph => "graph",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;
    use weir_protocol::mapping::Mapped;
    use weir_protocol::pages::{COUNTED_MEMORY_CALLS, UsagePage};

    #[test]
    fn a_process_that_only_uses_memory_is_not_starting_for_ever() {
        let (_fd, usage) = Mapped::<UsagePage>::create("weir-test").unwrap();
        let slot = &usage.slots[0];
        let state = || process_state(slot, &Counters::of(slot));
        let call = |name| {
            let at = COUNTED_MEMORY_CALLS.iter().position(|known| *known == name).unwrap();
            slot.memory_calls[at].fetch_add(1, Relaxed);
        };
        assert_eq!(state(), ProcessState::Starting);
        call("cuDeviceTotalMem_v2");
        assert_eq!(state(), ProcessState::Starting, "that needs no context");
        call("cuMemAlloc_v2");
        assert_eq!(state(), ProcessState::Enforced);
        slot.state.store(ProcessState::Degraded as u32, Relaxed);
        assert_eq!(state(), ProcessState::Degraded, "its own word counts");
    }
}
