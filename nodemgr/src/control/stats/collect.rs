//! The statistics as the registry has them now.

use weir_protocol::message::FailMode;
use weir_protocol::pages::{ContextSource, Gate, MemoryKind, ProcessSlot, ProcessState};

use super::{
    CHECKPOINTED, GpuStats, NodeStats, OFF, ProcessStats, Stats, TenantGpuStats, TenantStats, UNMANAGED,
};
use crate::control::schema::SCHEMA;
use crate::control::unmanaged;
use crate::histogram::Histogram;
use crate::registry::{Cell, Counters, PERSISTENT, Process, Registry, Stand, Tenant, UNREACHED};
use crate::shared::now;

/// Everything in `registry`, but for whether processes are stopped; `overview`: without what each process did.
pub fn collect(registry: &Registry, mode: FailMode, tick_us: u64, overview: bool) -> Stats {
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
        scraper: registry.scraper().clone(),
    };
    let tenants = registry.tenants().iter().map(|tenant| tenant_stats(registry, tenant, overview)).collect();
    let (signals, unmanaged) = (registry.signals().to_vec(), unmanaged::collect(registry));
    let draining = unmanaged::draining(registry);
    Stats { schema: SCHEMA, node, gpus: gpu_stats(registry), signals, unmanaged, draining, tenants }
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
        power: registry.power_of(index),
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

fn tenant_stats(registry: &Registry, tenant: &Tenant, overview: bool) -> TenantStats {
    let cells = tenant.cells.iter().map(|cell| cell_stats(registry, tenant, cell, overview));
    let (gpus, states): (Vec<_>, Vec<_>) = cells.unzip();
    TenantStats {
        name: tenant.name.clone(),
        class: tenant.class,
        owner_uid: tenant.owner,
        state: match tenant.park.stand {
            Stand::Running if tenant.park.held => CHECKPOINTED.into(),
            Stand::Running if registry.is_off() => OFF.into(),
            Stand::Running => state(registry, tenant, &states.concat()).into(),
            stand => stand.as_str().into(),
        },
        budget: tenant.budget,
        budget_at_start: tenant.budget_at_start,
        latency: tenant.latency.clone(),
        persistent: tenant.holders.contains(&PERSISTENT),
        configured: tenant.configured,
        age_ns: now().since(tenant.made_at).0,
        oversubscribe: tenant.oversubscribe,
        processes_ever: tenant.registered,
        pids: tenant.processes.iter().map(|process| process.pid).collect(),
        unreached_pids: tenant.unreached.iter().map(|process| process.pid).collect(),
        gpus,
    }
}

/// The worst of the processes' states, each process at its best GPU: most never touch all of them.
fn state(registry: &Registry, tenant: &Tenant, states: &[ProcessState]) -> &'static str {
    use ProcessState::{BesideMps, Degraded, Enforced, Stale, Starting};
    match () {
        () if registry.guarded().has_escaped(tenant.id) => UNMANAGED,
        () if !tenant.unreached.is_empty() => UNREACHED,
        () => {
            let worst =
                [Degraded, BesideMps, Stale, Enforced].into_iter().find(|state| states.contains(state));
            worst.unwrap_or(Starting).name()
        }
    }
}

fn cell_stats(
    registry: &Registry,
    tenant: &Tenant,
    cell: &Cell,
    overview: bool,
) -> (TenantGpuStats, Vec<ProcessState>) {
    let (mut total, mut states, mut processes) = (cell.dead.clone(), Vec::new(), Vec::new());
    let mut waits = false;
    for process in &tenant.processes {
        let Some(slot) = cell.pages.usage.slots.get(process.slot) else { continue };
        let counters = Counters::of(slot);
        total.add(&counters);
        waits |= slot.waits();
        let state = process_state(slot, &counters);
        states.push(state);
        if !overview {
            processes.push(process_stats(process, slot, state, counters));
        }
    }
    let grant = cell.pages.grant.read();
    let held = cell.held();
    let stats = TenantGpuStats {
        index: cell.gpu,
        uuid: registry.gpus.devices.get(cell.gpu).map(crate::gpus::Device::uuid_text).unwrap_or_default(),
        epoch: cell.pages.grant.epoch(),
        generation: grant.generation,
        policy_state: cell.state().into(),
        rate_ppm: grant.rate.as_ppm(),
        fallback_ppm: grant.fallback_rate.as_ppm(),
        gate_closed: grant.gate == Gate::Closed,
        turns: turns(cell, waits).into(),
        capacity_ns: grant.capacity.0,
        resume_at_ns: grant.resume_at.0,
        in_flight_cap_ns: grant.in_flight_cap.0,
        hold_ns: grant.hold.0,
        memory_limit_bytes: grant.memory_limit.0,
        copy_limit_bytes_per_s: grant.copy_limit.0,
        copy_balance_bytes: cell.pages.bucket.copies(),
        balance_ns: cell.pages.bucket.balance().0,
        achieved_percent: cell.achieved().as_percent(),
        energy_mj: cell.energy_mj,
        memory_held_bytes: if tenant.is_parked() { 0 } else { held.0 },
        memory_parked_bytes: if tenant.is_parked() { held.0 } else { 0 },
        memory_drift_bytes: registry.guarded().drift(tenant.id, cell.gpu),
        overcommitted: !tenant.is_parked() && (cell.holds_too_much(held) || cell.uncovered().0 > 0),
        growth_uncovered_bytes: cell.uncovered().0,
        total,
        processes,
    };
    (stats, states)
}

/// What the tenant does about turns at this moment.
fn turns(cell: &Cell, waits: bool) -> &'static str {
    let activity = &cell.pages.activity;
    match () {
        () if activity.passes() => "passes",
        () if waits => "waits",
        () if activity.quiet(None).is_none() => "dense",
        () => "rests",
    }
}

fn process_stats(
    process: &Process,
    slot: &ProcessSlot,
    state: ProcessState,
    counters: Counters,
) -> ProcessStats {
    use std::sync::atomic::Ordering::Relaxed; // figures for people, each whole by itself
    let (submitted, completed) = (slot.submitted_ns.load(Relaxed), slot.completed_ns.load(Relaxed));
    let by_kind =
        MemoryKind::ALL.iter().zip(&slot.by_kind).map(|(kind, word)| (kind.name(), word.load(Relaxed)));
    ProcessStats {
        pid: process.pid,
        slot: process.slot,
        state,
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
    }
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
