//! `weir ps`: who has what, and uses how much of it.

use weir_protocol::pages::{CopyWay, GraphCount, Stall};
use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::{Context, printer, switch, unmanaged};
use crate::control::{Client, GpuStats, Stats, TenantGpuStats, TenantStats};
use crate::events::drawn;
use crate::fault::Fault;
use crate::latency::Health;
use crate::signals::SignalStats;

const HEADS: [&str; 13] = [
    "NAME", "CLASS", "GPU", "REQUEST", "LIMIT", "ACHIEVED", "TURNS", "WAITED", "MEMORY", "COPIES", "POLICY",
    "STATE", "PIDS",
];

/// Of a view of where wall time went.
const STALL_HEADS: [&str; 9] =
    ["NAME", "GPU", "TIME", "COMPUTE", "COMMUNICATION", "COPIES", "NEIGHBOUR", "GATE", "HOST"];

#[derive(clap::Args)]
pub(super) struct Args {
    /// Show where the tenants' wall time went since their first contexts: a kernel ran, one that exchanges data with other
    /// GPUs, only copies, the GPU was a neighbour's, a launch or copy waited at the gate, none of these
    #[arg(long)]
    stalls: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let mut client = Client::connect(&context.place()?)?;
    if context.json {
        printer::json(&client.stats()?);
        return Ok(0);
    }
    let stats = client.overview()?;
    if stats.node.off {
        printer::data(switch::OFF);
    }
    for note in unmanaged::notes(&stats).into_iter().chain(unmanaged::draining(&stats)) {
        printer::data(note);
    }
    if stats.tenants.is_empty() {
        printer::talk("no tenants; start one with: weir run --request 30% --memory 2GiB -- PROGRAM ...");
        return Ok(0);
    }
    if stats.node.simulated {
        printer::data(printer::SIMULATED);
    }
    printer::data(match args.stalls {
        true => printer::table(&STALL_HEADS, &rows(&stats, stalls)),
        false => printer::table(&HEADS, &rows(&stats, row)),
    });
    let promises = stats.tenants.iter().filter_map(slo);
    let by_mps = stats.gpus.iter().filter(|gpu| gpu.mps).map(|gpu| {
        format!("GPU {}: shared by MPS; a fatal fault of one program there is one of all", gpu.index)
    });
    let signals = stats.signals.iter().map(signal).chain(stats.gpus.iter().filter_map(clocks));
    for note in promises.chain(signals).chain(lost(&stats)).chain(by_mps) {
        printer::data(note);
    }
    for note in pairs(&stats).filter_map(|(tenant, gpu)| graphs(&tenant.name, gpu)) {
        printer::data(note);
    }
    Ok(0)
}

/// What a tenant promises, and how it keeps it.
fn slo(tenant: &TenantStats) -> Option<String> {
    let promise = tenant.budget.slo?;
    let latency = tenant.latency.as_ref();
    let kept = match latency.map(|latency| (&latency.health, latency.recent_ns)) {
        None => String::new(),
        Some((Health::Asked, _)) => "; not asked yet".into(),
        Some((Health::Told | Health::Idle, Some(ns))) if ns > promise.target_ns => {
            format!("; MISSED: {}", Nanos(ns))
        }
        Some((Health::Told | Health::Idle, Some(ns))) => format!("; kept: {}", Nanos(ns)),
        Some((Health::Told | Health::Idle, None)) => "; no request of late".into(),
        Some((Health::Failing(why), _)) => format!("; NOBODY TELLS: {why}"),
    };
    let source = latency.map_or(String::new(), |latency| format!(" by {}", latency.source.metric));
    Some(format!("slo of {}: {promise}{source}{kept}", tenant.name))
}

/// What comes from outside, and what it leaves to best effort.
fn signal(signal: &SignalStats) -> String {
    let left = SmShare::permille(signal.best_effort_permille);
    let value = signal.value.map_or("unknown".to_owned(), |value| value.to_string());
    let failing = signal.failing.as_ref().map_or(String::new(), |why| format!("; cannot be read: {why}"));
    format!("signal {}: {value}, best effort may have {left} of each GPU{failing}", signal.name)
}

/// What holds a GPU's clocks back.
fn clocks(gpu: &GpuStats) -> Option<String> {
    let GpuStats { index, power, .. } = gpu;
    let reasons = power.held_back_by();
    let drawn = || drawn(&reasons, power.draw_mw, power.limit_mw);
    (!reasons.is_empty()).then(|| format!("GPU {index}: clocks held back: {}", drawn()))
}

fn pairs(stats: &Stats) -> impl Iterator<Item = (&TenantStats, &TenantGpuStats)> {
    stats.tenants.iter().flat_map(|tenant| tenant.gpus.iter().map(move |gpu| (tenant, gpu)))
}

/// What the node manager cannot reach, or could not hand on to the next one.
fn lost(stats: &Stats) -> Vec<String> {
    let unreached = stats.tenants.iter().filter(|tenant| !tenant.unreached_pids.is_empty());
    let mut notes: Vec<_> = unreached
        .map(|tenant| {
            let pids: Vec<_> = tenant.unreached_pids.iter().map(i32::to_string).collect();
            format!(
                "{}: not taken over from an earlier node manager, last limits hold: {}",
                tenant.name,
                pids.join(",")
            )
        })
        .collect();
    if stats.node.journal == "degraded" {
        notes.push("the journal cannot be written: a restart of the node manager would lose tenants".into());
    }
    notes
}

/// What an operator should know of a tenant's graphs: what nobody sees being launched, and what could not be split.
fn graphs(tenant: &str, gpu: &TenantGpuStats) -> Option<String> {
    let device = gpu.total.graphs(GraphCount::DeviceLaunchable);
    let whole = GraphCount::ALL
        .iter()
        .filter(|count| count.is_whole())
        .map(|count| gpu.total.graphs(*count))
        .sum::<u64>();
    let device =
        (device > 0).then(|| format!("{device} can be launched by the tenant's own kernels, uncharged"));
    let whole = (whole > 0).then(|| format!("{whole} longer than 500 us could not be split"));
    let waits = gpu.total.graphs(GraphCount::Waits);
    let waits = (waits > 0)
        .then(|| format!("{waits} with host functions or waits inside, charged from begin to end"));
    let told: Vec<_> = device.into_iter().chain(waits).chain(whole).collect();
    (!told.is_empty()).then(|| format!("graphs of {tenant} on GPU {}: {}", gpu.index, told.join("; ")))
}

fn rows(stats: &Stats, row: fn(&Stats, &TenantStats, &TenantGpuStats) -> Vec<String>) -> Vec<Vec<String>> {
    pairs(stats).map(|(tenant, gpu)| row(stats, tenant, gpu)).collect()
}

/// Parts of the time that has been dealt out: up to the last call of each process into the driver.
fn stalls(_: &Stats, tenant: &TenantStats, gpu: &TenantGpuStats) -> Vec<String> {
    let parts = &gpu.total.stalls_ns;
    let all = parts.values().fold(0u64, |sum, ns| sum.saturating_add(*ns));
    let percent = |stall: Stall| {
        let ns = parts.get(stall.name()).copied().unwrap_or(0);
        format!("{:.1} %", ns as f64 * 100.0 / all.max(1) as f64)
    };
    let head = [tenant.name.clone(), gpu.index.to_string(), Nanos(all).to_string()];
    head.into_iter().chain(Stall::ALL.map(percent)).collect()
}

fn row(stats: &Stats, tenant: &TenantStats, gpu: &TenantGpuStats) -> Vec<String> {
    let pids: Vec<_> = tenant.pids.iter().map(i32::to_string).collect();
    vec![
        tenant.name.clone(),
        tenant.class.as_str().into(),
        gpu.index.to_string(),
        tenant.budget.request.to_string(),
        tenant.budget.limit.to_string(),
        format!("{:.1} %", gpu.achieved_percent),
        gpu.turns.clone(),
        Nanos(gpu.total.waited_ns).to_string(),
        memory(tenant, gpu),
        copies(tenant, gpu),
        policy(stats, gpu),
        tenant.state.clone(),
        if pids.is_empty() { "-".into() } else { pids.join(",") },
    ]
}

/// What went between host and device, and how much of it may in a second.
fn copies(tenant: &TenantStats, gpu: &TenantGpuStats) -> String {
    let ways = CopyWay::ALL.into_iter().filter(|way| way.is_budgeted());
    let bytes = ways.filter_map(|way| gpu.total.copies.get(way.name())).map(|copied| copied.bytes);
    let bytes = Bytes(bytes.fold(0, u64::saturating_add));
    let limit = tenant.budget.copy_limit;
    if limit.is_limited() { format!("{bytes} (at {limit})") } else { bytes.to_string() }
}

/// What decides there, and what it makes of the tenant: `static STEADY`.
fn policy(stats: &Stats, gpu: &TenantGpuStats) -> String {
    let name = stats.gpus.iter().find(|known| known.index == gpu.index).map_or("-", |known| &known.policy);
    format!("{name} {}", gpu.policy_state).trim_end().to_owned()
}

fn memory(tenant: &TenantStats, gpu: &TenantGpuStats) -> String {
    if gpu.memory_parked_bytes > 0 {
        return format!("{} / {} on the host", Bytes(gpu.memory_parked_bytes), Bytes(gpu.memory_limit_bytes));
    }
    let over = match () {
        () if gpu.overcommitted => " overcommitted",
        () if tenant.oversubscribe && gpu.memory_held_bytes > gpu.memory_limit_bytes => " oversubscribed",
        () => "",
    };
    format!("{} / {}{over}", Bytes(gpu.memory_held_bytes), Bytes(gpu.memory_limit_bytes))
}
