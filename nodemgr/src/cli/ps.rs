//! `weir ps`: who has what, and uses how much of it.

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
    Ok(0)
}

fn rows(stats: &Stats) -> Vec<Vec<String>> {
    let pairs = stats.tenants.iter().flat_map(|tenant| tenant.gpus.iter().map(move |gpu| (tenant, gpu)));
    pairs.map(|(tenant, gpu)| row(tenant, gpu)).collect()
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
