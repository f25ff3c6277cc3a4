//! `weir ps`: who has what, and uses how much of it.

use weir_protocol::pages::GraphCount;
use weir_protocol::units::{Bytes, Nanos};

use super::{Context, printer};
use crate::control::{Client, Stats, TenantGpuStats, TenantStats};
use crate::fault::Fault;

const HEADS: [&str; 10] =
    ["NAME", "CLASS", "GPU", "REQUEST", "LIMIT", "ACHIEVED", "WAITED", "MEMORY", "STATE", "PIDS"];

pub(super) fn run(context: &Context) -> Result<u8, Fault> {
    let stats = Client::connect(&context.place()?)?.stats()?;
    if context.json {
        printer::json(&stats);
        return Ok(0);
    }
    if stats.tenants.is_empty() {
        printer::talk("no tenants; start one with: weir run --request 30% --memory 2GiB -- PROGRAM ...");
        return Ok(0);
    }
    if stats.node.simulated {
        printer::data(printer::SIMULATED);
    }
    printer::data(printer::table(&HEADS, &rows(&stats)));
    for note in pairs(&stats).filter_map(|(tenant, gpu)| graphs(&tenant.name, gpu)) {
        printer::data(note);
    }
    Ok(0)
}

fn pairs(stats: &Stats) -> impl Iterator<Item = (&TenantStats, &TenantGpuStats)> {
    stats.tenants.iter().flat_map(|tenant| tenant.gpus.iter().map(move |gpu| (tenant, gpu)))
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
    let told: Vec<_> = device.into_iter().chain(whole).collect();
    (!told.is_empty()).then(|| format!("graphs of {tenant} on GPU {}: {}", gpu.index, told.join("; ")))
}

fn rows(stats: &Stats) -> Vec<Vec<String>> {
    pairs(stats).map(|(tenant, gpu)| row(tenant, gpu)).collect()
}

fn row(tenant: &TenantStats, gpu: &TenantGpuStats) -> Vec<String> {
    let pids: Vec<_> = tenant.pids.iter().map(i32::to_string).collect();
    vec![
        tenant.name.clone(),
        tenant.class.as_str().into(),
        gpu.index.to_string(),
        tenant.budget.request.to_string(),
        tenant.budget.limit.to_string(),
        format!("{:.1} %", gpu.achieved_percent),
        Nanos(gpu.total.waited_ns).to_string(),
        memory(tenant, gpu),
        tenant.state.clone(),
        if pids.is_empty() { "-".into() } else { pids.join(",") },
    ]
}

fn memory(tenant: &TenantStats, gpu: &TenantGpuStats) -> String {
    let over = match () {
        () if gpu.overcommitted => " overcommitted",
        () if tenant.oversubscribe && gpu.memory_held_bytes > gpu.memory_limit_bytes => " oversubscribed",
        () => "",
    };
    format!("{} / {}{over}", Bytes(gpu.memory_held_bytes), Bytes(gpu.memory_limit_bytes))
}
