//! What a run has used, told at its end, on stderr: stdout is the program's.

use std::time::Duration;

use serde::Serialize;
use weir_protocol::units::{Bytes, Nanos};

use super::{Context, printer};
use crate::control::schema::Created;
use crate::control::{Client, TenantGpuStats, TenantStats};

/// One GPU of the tenant, over its whole life.
#[derive(Serialize)]
struct Summary<'a> {
    schema: u32,
    tenant: &'a str,
    gpu: &'a str,
    simulated: bool,
    elapsed_ns: u64,
    request_percent: f64,
    limit_percent: f64,
    used_percent: f64,
    memory_limit_bytes: u64,
    state: &'static str,
    processes: u64,
    #[serde(flatten)]
    counters: &'a crate::registry::Counters,
}

/// Asks the manager and prints, one block for each GPU.
pub fn print(context: &Context, client: &mut Client, created: &Created, elapsed: Duration) {
    let stats = match client.stats() {
        Ok(stats) => stats,
        Err(fault) => return printer::talk(format_args!("weir: there is no summary\n{fault}")),
    };
    let Some(tenant) = stats.tenants.iter().find(|tenant| tenant.name == created.tenant) else {
        return printer::talk("weir: there is no summary: the node manager no longer knows this tenant");
    };
    if tenant.processes_ever == 0 && !context.json {
        return printer::talk(format_args!("weir: {}: no process of this tenant used CUDA", tenant.name));
    }
    for gpu in &tenant.gpus {
        let summary = summarize(tenant, gpu, created.simulated, elapsed);
        match serde_json::to_string(&summary) {
            Ok(line) if context.json => printer::talk(line),
            _ => printer::talk(text(&summary, gpu)),
        }
    }
}

fn summarize<'a>(
    tenant: &'a TenantStats,
    gpu: &'a TenantGpuStats,
    simulated: bool,
    elapsed: Duration,
) -> Summary<'a> {
    let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    Summary {
        schema: crate::control::schema::SCHEMA,
        tenant: &tenant.name,
        gpu: &gpu.uuid,
        simulated,
        elapsed_ns,
        request_percent: tenant.budget.request.as_percent(),
        limit_percent: tenant.budget.limit.as_percent(),
        used_percent: gpu.total.charged_ns as f64 / elapsed_ns.max(1) as f64 * 100.0,
        memory_limit_bytes: gpu.memory_limit_bytes,
        state: if gpu.total.faults > 0 { "degraded" } else { "enforced" },
        processes: tenant.processes_ever,
        counters: &gpu.total,
    }
}

fn text(summary: &Summary<'_>, gpu: &TenantGpuStats) -> String {
    let c = summary.counters;
    let simulated = if summary.simulated { ", simulated" } else { "" };
    [
        format!(
            "weir: {} on GPU {} ({}{simulated}), {}",
            summary.tenant,
            gpu.index,
            summary.gpu,
            Nanos(summary.elapsed_ns)
        ),
        format!(
            "  GPU time   {} charged: {:.1} % (request {} %, limit {} %)",
            Nanos(c.charged_ns),
            summary.used_percent,
            summary.request_percent,
            summary.limit_percent
        ),
        format!("  launches   {}; {} waited, {} in all", c.launches, c.throttled, Nanos(c.waited_ns)),
        format!(
            "  memory     peak {} of {}; {} allocations refused",
            Bytes(c.memory_peak_bytes),
            Bytes(summary.memory_limit_bytes),
            c.refused
        ),
        format!("  state      {}; {} processes", summary.state, summary.processes),
    ]
    .join("\n")
}
