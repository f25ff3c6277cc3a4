//! Events as a person reads them: one line each.

use std::fmt;

use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::{Event, What};
use crate::control::schema::Budget;
use crate::gpus::Health;
use crate::registry::By;

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  ", clock(self.time_unix_ms))?;
        if let Some(tenant) = &self.tenant {
            write!(f, "{tenant}")?;
        }
        if let Some(gpu) = self.gpu {
            write!(f, "{}GPU {gpu}", if self.tenant.is_some() { " on " } else { "" })?;
        }
        if self.tenant.is_some() || self.gpu.is_some() {
            write!(f, ": ")?;
        }
        write!(f, "{}", self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ManagerStarted { version, policy, gpus } => {
                write!(f, "node manager {version} started, policy {policy}, GPUs: {gpus}")
            }
            Self::TenantMade { class, budget } => {
                let Budget { request, limit, memory, .. } = budget;
                write!(f, "made, {}: request {request}, limit {limit}, memory {memory}", class.as_str())
            }
            Self::TenantEnded => write!(f, "ended; its budget is free"),
            Self::ProcessJoined { pid } => write!(f, "process {pid} joined"),
            Self::ProcessEnded { pid } => write!(f, "process {pid} ended"),
            Self::BudgetSet { old, new } => write!(f, "budget set: {}", changed(old, new).join(", ")),
            Self::PolicySwitched { old, new } => write!(f, "policy {old} -> {new}"),
            Self::StateChanged { old, new, changes: 1 } => write!(f, "state {old} -> {new}"),
            Self::StateChanged { old, new, changes } => {
                write!(f, "state {old} -> {new}, after {changes} changes")
            }
            Self::GateForced { launches } => {
                write!(f, "launches let through a gate that would have held them: {launches}")
            }
            Self::MemoryRefused { allocations } => {
                write!(f, "allocations refused for the memory limit: {allocations}")
            }
            Self::NotEnforced { state } => write!(f, "NOT ENFORCED: {state}"),
            Self::EnforcedAgain => write!(f, "enforced again"),
            Self::LatencySource { failing: Some(why) } => write!(f, "its latencies cannot be read: {why}"),
            Self::LatencySource { failing: None } => write!(f, "its latencies can be read"),
            Self::SloMissed { slo, recent_ns } => write!(f, "SLO missed: {} ({slo})", Nanos(*recent_ns)),
            Self::SloKept { slo } => write!(f, "SLO kept again ({slo})"),
            Self::SignalsChanged { best_effort_permille } => {
                let share = SmShare::permille(*best_effort_permille);
                write!(f, "signals from outside leave {share} of each GPU to best effort")
            }
            Self::SignalFailing { name, why } => write!(f, "signal {name} cannot be read: {why}"),
            Self::SwitchedOff { uid } => {
                write!(f, "switched OFF by user {uid}: NOT ENFORCED but for memory limits")
            }
            Self::SwitchedOn { uid } => write!(f, "switched on by user {uid}: budgets are enforced"),
            Self::Parked { by, memory_bytes, took_ms } => {
                let why = match by {
                    By::Pressure => ", since others want memory",
                    _ => "",
                };
                write!(f, "parked: {} went to the host in {took_ms} ms{why}", Bytes(*memory_bytes))
            }
            Self::Unparked { by, took_ms } => {
                let why = match by {
                    By::Call => ", since it called",
                    _ => "",
                };
                write!(f, "unparked in {took_ms} ms{why}")
            }
            Self::ParkFailed { parked: true, why } => write!(f, "still PARKED, tried again: {why}"),
            Self::ParkFailed { parked: false, why } => write!(f, "could not be parked: {why}"),
            Self::Checkpointed => write!(f, "held by somebody else's checkpoint: it stands still"),
            Self::UnparkWaits { why } => write!(f, "has called and stays parked until there is room: {why}"),
            outside => outside.fmt_outside(f),
        }
    }
}

impl What {
    /// What has happened beside the tenants' own doings.
    fn fmt_outside(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ScraperLost { why } => {
                write!(f, "latencies and signals from URLs are not read until another process does: {why}")
            }
            Self::UnmanagedProcess { pid, uid, program, memory_bytes, keeps_limits } => {
                unmanaged(f, (*pid, *uid, program), *memory_bytes, *keeps_limits)
            }
            Self::UnmanagedGone { pid } => write!(f, "process {pid} is not there without a budget any more"),
            Self::UnmanagedKilled { pid } => write!(f, "process {pid} had no budget and was killed"),
            Self::UnmanagedFrozen { pid, cgroup } => {
                write!(f, "process {pid} has no budget and is frozen with its control group {cgroup}")
            }
            Self::UnmanagedRuns { pid, why } => {
                write!(f, "process {pid} has no budget and goes on, it is NOT frozen: {why}")
            }
            Self::UnmanagedSpared { pid, why } => {
                write!(f, "process {pid} has no budget and was not killed: {why}")
            }
            Self::MemoryDrains { pid, memory_bytes } => {
                write!(f, "draining: process {pid} has died and holds {} still", Bytes(*memory_bytes))
            }
            Self::MemoryDrained { pid } => write!(f, "what process {pid} held is free"),
            Self::GpuWedged { pid, memory_bytes, after_s } => {
                let held = Bytes(*memory_bytes);
                write!(
                    f,
                    "WEDGED: process {pid} died {after_s} s ago and holds {held} still; the GPU may need a reset"
                )
            }
            Self::NvmlUnsure { state, why } => unsure(f, *state, why.as_deref()),
            Self::NvmlAnswers => write!(f, "NVML answers again"),
            Self::ClocksHeldBack { reasons, draw_mw, limit_mw } => {
                write!(f, "clocks held back: {}", drawn(reasons, *draw_mw, *limit_mw))
            }
            Self::ClocksFree => write!(f, "clocks no longer held back"),
            Self::GrowthUncovered { lacks_bytes } => {
                let lacks = Bytes(*lacks_bytes);
                write!(
                    f,
                    "overcommitted: the card lacks {lacks} for the limits and what contexts may grow by"
                )
            }
            Self::Overcommitted { over_bytes } => {
                write!(f, "overcommitted: {} more held than the limit allows", Bytes(*over_bytes))
            }
            _ => Ok(()), // told above
        }
    }
}

/// What holds clocks back, and at which draw: `sw_power_cap, 398 of 400 W`.
pub(crate) fn drawn(reasons: &[String], draw_mw: Option<u32>, limit_mw: Option<u32>) -> String {
    let watts = |mw: Option<u32>| mw.map_or("unknown".to_owned(), |mw| (mw / 1_000).to_string());
    format!("{}, {} of {} W", reasons.join(", "), watts(draw_mw), watts(limit_mw))
}

fn unmanaged(
    f: &mut fmt::Formatter<'_>,
    (pid, uid, program): (i32, u32, &str),
    memory_bytes: Option<u64>,
    keeps_limits: bool,
) -> fmt::Result {
    write!(f, "NOT MANAGED: process {pid} ({}, user {uid}) has no budget", program.escape_debug())?;
    memory_bytes.map_or(Ok(()), |bytes| write!(f, ", holds {}", Bytes(bytes)))?;
    if keeps_limits { write!(f, "; it keeps to limits of an earlier node manager") } else { Ok(()) }
}

fn unsure(f: &mut fmt::Formatter<'_>, state: Health, why: Option<&str>) -> fmt::Result {
    write!(f, "nvml: {}: used memory and processes without a budget may not be known", state.as_str())?;
    why.map_or(Ok(()), |why| write!(f, " ({why})"))
}

/// What differs, as `request 30 % -> 40 %`.
fn changed(old: &Budget, new: &Budget) -> Vec<String> {
    let line = |what: &str, old: String, new: String| (old != new).then(|| format!("{what} {old} -> {new}"));
    let lines = [
        line("request", old.request.to_string(), new.request.to_string()),
        line("limit", old.limit.to_string(), new.limit.to_string()),
        line("memory", old.memory.to_string(), new.memory.to_string()),
        line("copy limit", old.copy_limit.to_string(), new.copy_limit.to_string()),
    ];
    let slo = |budget: &Budget| budget.slo.map_or_else(|| "none".to_owned(), |slo| slo.to_string());
    lines.into_iter().chain([line("slo", slo(old), slo(new))]).flatten().collect()
}

/// The time of day in UTC: the node's own zone is not this process's to guess.
pub(crate) fn clock(unix_ms: u64) -> String {
    let (seconds, ms) = (unix_ms / 1_000, unix_ms % 1_000);
    let (h, m, s) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{h:02}:{m:02}:{s:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::super::{About, Ring};
    use super::*;
    use weir_protocol::units::Bandwidth;

    #[test]
    fn a_line_says_when_to_whom_where_and_what() {
        let (request, copy_limit) = (SmShare::percent(30), Bandwidth::UNLIMITED);
        let old = Budget { request, limit: SmShare::FULL, memory: Bytes::gib(2), copy_limit, slo: None };
        let mut ring = Ring::default();
        ring.push(About::NODE, What::TenantEnded);
        ring.push(About::gpu(1), What::PolicySwitched { old: "static".into(), new: "weir".into() });
        let new = Budget { request: SmShare::percent(40), ..old };
        ring.push(About::tenant("train", 0).on(0), What::BudgetSet { old, new });
        let lines: Vec<_> = ring
            .after(0)
            .map(|event| Event { time_unix_ms: 3_723_004, ..event.clone() }.to_string())
            .collect();
        assert_eq!(
            lines,
            [
                "01:02:03.004Z  ended; its budget is free",
                "01:02:03.004Z  GPU 1: policy static -> weir",
                "01:02:03.004Z  train on GPU 0: budget set: request 30 % -> 40 %",
            ]
        );
    }
}
