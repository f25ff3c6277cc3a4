//! What can happen on a node.

use serde::{Deserialize, Serialize};

use crate::control::schema::{Budget, ClassName};
use crate::gpus::Health;
use crate::latency::Promise;
use crate::registry::By;

/// What can happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// The node manager has started.
    ManagerStarted {
        /// Its version.
        version: String,
        /// The policy that each GPU starts with.
        policy: String,
        /// How many GPUs it has.
        gpus: usize,
    },
    /// A tenant was made.
    TenantMade {
        /// Its class.
        class: ClassName,
        /// Its budget.
        budget: Budget,
    },
    /// A tenant has ended; its budget is free.
    TenantEnded,
    /// A process has registered.
    ProcessJoined {
        /// Its number.
        pid: i32,
    },
    /// A process has gone, or has called `exec`.
    ProcessEnded {
        /// Its number.
        pid: i32,
    },
    /// A budget was set.
    BudgetSet {
        /// Before.
        old: Budget,
        /// Now.
        new: Budget,
    },
    /// A GPU has another policy.
    PolicySwitched {
        /// Before.
        old: String,
        /// Now.
        new: String,
    },
    /// The policy has another state for a tenant, and has kept to it for a second.
    StateChanged {
        /// The last one that was told.
        old: String,
        /// Now.
        new: String,
        /// Changes in between: more than one if it went back and forth.
        changes: u32,
    },
    /// Launches went through a gate that would have held them, so that nothing stands still for ever.
    GateForced {
        /// How many.
        launches: u64,
    },
    /// Allocations were refused for the memory limit.
    MemoryRefused {
        /// How many.
        allocations: u64,
    },
    /// Not all of a tenant's budget is enforced.
    NotEnforced {
        /// How it stands instead: `stale`, `degraded`, `beside_mps`, `unreached`.
        state: String,
    },
    /// All of a tenant's budget is enforced again.
    EnforcedAgain,
    /// Latencies can be read again, or cannot any more.
    LatencySource {
        /// Why they cannot.
        failing: Option<String>,
    },
    /// A promise is not kept any more.
    SloMissed {
        /// The promise.
        slo: Promise,
        /// Its quantile of late, in nanoseconds.
        recent_ns: u64,
    },
    /// A promise is kept again.
    SloKept {
        /// The promise.
        slo: Promise,
    },
    /// Signals from outside leave another part to best effort.
    SignalsChanged {
        /// That part, in thousandths of a GPU.
        best_effort_permille: u16,
    },
    /// Power or heat holds a GPU's clocks back.
    ClocksHeldBack {
        /// By NVML's names: `sw_power_cap`, `sw_thermal_slowdown`, `hw_thermal_slowdown`, `hw_power_brake_slowdown`.
        reasons: Vec<String>,
        /// What it draws, in mW.
        draw_mw: Option<u32>,
        /// What it may draw, in mW.
        limit_mw: Option<u32>,
    },
    /// They have been free for some readings.
    ClocksFree,
    /// The process that reads pages of latencies and signals has ended, or had to be ended: another one takes its place.
    ScraperLost {
        /// Why.
        why: String,
    },
    /// A signal from outside cannot be read.
    SignalFailing {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// The operator has switched everything off but the memory limits.
    SwitchedOff {
        /// The user.
        uid: u32,
    },
    /// Budgets are enforced again.
    SwitchedOn {
        /// The user.
        uid: u32,
    },
    /// A tenant's memory went to the host.
    Parked {
        /// Who wanted it so.
        by: By,
        /// How much, on all its GPUs.
        memory_bytes: u64,
        /// What that took.
        took_ms: u64,
    },
    /// It is back, and the tenant goes on.
    Unparked {
        /// Who wanted it so.
        by: By,
        /// What that took.
        took_ms: u64,
    },
    /// A tenant could not be parked, or not be had back yet.
    ParkFailed {
        /// Whether it is parked now.
        parked: bool,
        /// Why.
        why: String,
    },
    /// Somebody else has locked a process of it, or taken a checkpoint: it stands still.
    Checkpointed,
    /// A parked tenant has called, and others have its memory.
    UnparkWaits {
        /// Who has it.
        why: String,
    },
    /// The limits on a card and what contexts may grow by do not fit there together.
    GrowthUncovered {
        /// What is missing, with those who came before.
        lacks_bytes: u64,
    },
    /// More memory is held than the limit allows, because it could not be refused.
    Overcommitted {
        /// By how much.
        over_bytes: u64,
    },
    /// A process is on a GPU and has no budget.
    UnmanagedProcess {
        /// Its number.
        pid: i32,
        /// Its user.
        uid: u32,
        /// Its program.
        program: String,
        /// What it holds there, by NVML's account.
        memory_bytes: Option<u64>,
        /// Whether it keeps to limits of an earlier node manager.
        keeps_limits: bool,
    },
    /// It has gone, or has a budget now.
    UnmanagedGone {
        /// Its number.
        pid: i32,
    },
    /// It was killed, as the configuration wants it.
    UnmanagedKilled {
        /// Its number.
        pid: i32,
    },
    /// It stands still with its control group, as the configuration wants it.
    UnmanagedFrozen {
        /// Its number.
        pid: i32,
        /// The control group.
        cgroup: String,
    },
    /// It goes on although the configuration wants it frozen.
    UnmanagedRuns {
        /// Its number.
        pid: i32,
        /// Why.
        why: String,
    },
    /// It was not killed although the configuration wants it.
    UnmanagedSpared {
        /// Its number.
        pid: i32,
        /// Why.
        why: String,
    },
    /// A process has died, and NVML lists it still: its memory is not free yet.
    MemoryDrains {
        /// Its number.
        pid: i32,
        /// What it holds, by NVML's account.
        memory_bytes: u64,
    },
    /// It is free now.
    MemoryDrained {
        /// Its number.
        pid: i32,
    },
    /// It has not become free for so long that the GPU or its driver must be taken for stuck.
    GpuWedged {
        /// The dead process's number.
        pid: i32,
        /// What it holds, by NVML's account.
        memory_bytes: u64,
        /// Time since its death, in seconds.
        after_s: u64,
    },
    /// NVML does not say what it should.
    NvmlUnsure {
        /// How it stands: `stale`, `partial`.
        state: Health,
        /// What is known of the reason.
        why: Option<String>,
    },
    /// It does again.
    NvmlAnswers,
}
