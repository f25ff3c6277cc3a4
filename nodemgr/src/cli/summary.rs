//! What a run has used, told at its end, on stderr: stdout is the program's.
//!
//! Counters are the tenant's, and so is the time that they are a part of: several runs may be one tenant, and what each
//! of them used is not told apart.

use std::time::Duration;

use serde::Serialize;
use weir_protocol::pages::CopyWay;
use weir_protocol::units::{Bytes, Nanos};

use super::{Context, printer};
use crate::control::schema::{Budget, Created};
use crate::control::{Client, TenantGpuStats, TenantStats};

/// One GPU of the tenant, over its whole life.
#[derive(Serialize)]
struct Summary<'a> {
    schema: u32,
    tenant: &'a str,
    gpu: &'a str,
    simulated: bool,
    /// How long this run took.
    elapsed_ns: u64,
    /// How long the tenant has been there: longer, if this run joined it.
    tenant_age_ns: u64,
    joined: bool,
    request_percent: f64,
    limit_percent: f64,
    /// Of the tenant's time.
    used_percent: f64,
    memory_limit_bytes: u64,
    /// The budget with which the tenant was made.
    budget_at_start: Budget,
    state: &'static str,
    processes: u64,
    #[serde(flatten)]
    counters: &'a crate::registry::Counters,
}

/// Asks the manager and prints, one block for each GPU.
pub fn print(context: &Context, client: &mut Client, created: &Created, elapsed: Duration) {
    let mut asked = client.stats();
    if asked.is_err()
        && client.is_closed()
        && let Ok(mut next) = context.place().and_then(|place| Client::connect(&place))
    {
        asked = next.stats(); // of the manager that has taken over
    }
    let stats = match asked {
        Ok(stats) => stats,
        Err(_) if client.is_closed() => {
            return printer::talk("weir: no summary: the node manager ended while this ran");
        }
        Err(fault) => return printer::talk(format_args!("weir: no summary: {}", fault.message)),
    };
    let Some(tenant) = stats.tenants.iter().find(|tenant| tenant.name == created.tenant) else {
        return printer::talk("weir: no summary: the node manager no longer knows this tenant");
    };
    if tenant.processes_ever == 0 && !context.json {
        return printer::talk(format_args!(
            "weir: {}: no process came under this budget: none used CUDA, or the library was not in it",
            tenant.name
        ));
    }
    for gpu in &tenant.gpus {
        let mut summary = summarize(tenant, gpu, created, elapsed);
        if stats.node.off {
            summary.state = "off: NOT ENFORCED but for memory limits";
        }
        match serde_json::to_string(&summary) {
            Ok(line) if context.json => printer::talk(line),
            _ => printer::talk(text(&summary, gpu, &tenant.budget)),
        }
    }
}

fn summarize<'a>(
    tenant: &'a TenantStats,
    gpu: &'a TenantGpuStats,
    created: &Created,
    elapsed: Duration,
) -> Summary<'a> {
    Summary {
        schema: crate::control::schema::SCHEMA,
        tenant: &tenant.name,
        gpu: &gpu.uuid,
        simulated: created.simulated,
        elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        tenant_age_ns: tenant.age_ns,
        joined: created.joined,
        request_percent: tenant.budget.request.as_percent(),
        limit_percent: tenant.budget.limit.as_percent(),
        used_percent: gpu.total.charged_ns as f64 / tenant.age_ns.max(1) as f64 * 100.0,
        memory_limit_bytes: gpu.memory_limit_bytes,
        budget_at_start: tenant.budget_at_start,
        state: match (gpu.total.faults, tenant.processes_ever) {
            (1.., _) => "degraded",
            (0, 0) => "starting", // nobody came on whom to enforce anything
            (0, _) => "enforced",
        },
        processes: tenant.processes_ever,
        counters: &gpu.total,
    }
}

fn text(summary: &Summary<'_>, gpu: &TenantGpuStats, budget: &Budget) -> String {
    let c = summary.counters;
    let simulated = if summary.simulated { ", simulated" } else { "" };
    let whose = if summary.joined {
        format!("; what follows is the whole tenant's, over its {}", Nanos(summary.tenant_age_ns))
    } else {
        String::new()
    };
    let head = format!(
        "weir: {} on GPU {} ({}{simulated}), {}{whose}",
        summary.tenant,
        gpu.index,
        summary.gpu,
        Nanos(summary.elapsed_ns)
    );
    // No program uses more of a GPU than there is.
    let too_high = summary.used_percent > 100.0;
    let doubt = if too_high { "; charges are estimates, and were too high here" } else { "" };
    let time = format!(
        "  GPU time   {} charged: {:.1} % (request {}, limit {}){doubt}",
        Nanos(c.charged_ns),
        summary.used_percent,
        budget.request,
        budget.limit
    );
    let waited = match c.throttled {
        0 => "none".to_owned(),
        count => format!("{count}, {} in all", Nanos(c.waited_ns)),
    };
    let refused = match c.refused {
        0 => "none".to_owned(),
        count => counted(count, "allocation"),
    };
    let part = if summary.processes > 1 { " in one process," } else { "" };
    let memory = format!(
        "  memory     peak {}{part} of {}; refused: {refused}",
        Bytes(c.memory_peak_bytes),
        Bytes(summary.memory_limit_bytes)
    );
    let end = format!("  state      {}; {}", summary.state, counted(summary.processes, "process"));
    let launches = format!("  launches   {}; waited: {waited}", c.launches);
    let changed = changes(&summary.budget_at_start, budget);
    let copied = copied(c, budget);
    [Some(head), Some(time), Some(launches), copied, Some(memory), changed, Some(end)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

/// What went between host and device.
fn copied(counters: &crate::registry::Counters, budget: &Budget) -> Option<String> {
    let bytes = |way: CopyWay| counters.copies.get(way.name()).map_or(0, |copied| copied.bytes);
    let (to, from) = (bytes(CopyWay::HostToDevice), bytes(CopyWay::DeviceToHost));
    (to + from > 0).then(|| {
        let limit = budget.copy_limit;
        format!("  copies     {} to the GPU, {} back (limit {limit})", Bytes(to), Bytes(from))
    })
}

/// What `weir set` has made of the budget since the tenant was made.
fn changes(start: &Budget, end: &Budget) -> Option<String> {
    let changed = [
        (start.request != end.request).then(|| format!("request {} -> {}", start.request, end.request)),
        (start.limit != end.limit).then(|| format!("limit {} -> {}", start.limit, end.limit)),
        (start.memory != end.memory).then(|| format!("memory {} -> {}", start.memory, end.memory)),
        (start.copy_limit != end.copy_limit)
            .then(|| format!("copy limit {} -> {}", start.copy_limit, end.copy_limit)),
    ];
    let changed: Vec<_> = changed.into_iter().flatten().collect();
    (!changed.is_empty()).then(|| format!("  budget     changed meanwhile: {}", changed.join(", ")))
}

/// `1 process`, `2 processes`.
fn counted(count: u64, what: &str) -> String {
    let end = match (count, what.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {what}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_protocol::units::{Bandwidth, SmShare};

    #[test]
    fn numbers_of_things_read_as_people_say_them() {
        let read = [
            counted(1, "process"),
            counted(2, "process"),
            counted(1, "allocation"),
            counted(3, "allocation"),
        ];
        assert_eq!(read, ["1 process", "2 processes", "1 allocation", "3 allocations"]);
    }

    #[test]
    fn a_budget_that_changed_on_the_way_is_told_and_one_that_did_not_is_not() {
        let (request, copy_limit) = (SmShare::percent(30), Bandwidth::UNLIMITED);
        let start = Budget { request, limit: SmShare::FULL, memory: Bytes::gib(2), copy_limit, slo: None };
        let end = Budget { limit: SmShare::percent(40), ..start };
        assert_eq!(changes(&start, &start), None);
        let told = changes(&start, &end).unwrap();
        assert_eq!(told, "  budget     changed meanwhile: limit 100 % -> 40 %");
    }
}
