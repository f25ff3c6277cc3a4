//! The statistics as Prometheus text. Names and units as in `docs/api.md`; labels are few, and never a process's number.

mod guard;
mod power;

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::control::{GpuStats, Stats, TenantGpuStats, TenantStats};

/// What the text is, by the format's own name.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// States that a tenant can have: each is a metric of 0 or 1, so that a query for one finds it before it ever holds.
const STATES: [&str; 13] = [
    "starting",
    "enforced",
    "stale",
    "degraded",
    "beside_mps",
    "unreached",
    "stopped",
    "unmanaged",
    "off",
    "parking",
    "parked",
    "unparking",
    "checkpointed",
];

/// Parts of a GPU, 1 for all of it.
fn ratio() -> Option<Unit> {
    Some(Unit::Other("ratio".into()))
}

type Labels = Vec<(&'static str, String)>;

/// One metric's rows.
type Rows = Vec<(Labels, f64)>;

/// The page.
///
/// # Errors
/// None that can happen: it is written into memory.
pub fn page(stats: &Stats) -> Result<String, fmt::Error> {
    let mut page = Page(Registry::default());
    node(&mut page, stats);
    gpus(&mut page, stats);
    tenants(&mut page, stats);
    time(&mut page, stats);
    memory(&mut page, stats);
    guard::guard(&mut page, stats);
    power::power(&mut page, stats);
    let mut text = String::new();
    encode(&mut text, &page.0)?;
    Ok(text)
}

struct Page(Registry);

impl Page {
    fn gauge(&mut self, name: &str, unit: Option<Unit>, help: &str, rows: Rows) {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).set(value);
        }
        match unit {
            Some(unit) => self.0.register_with_unit(name, help, unit, family),
            None => self.0.register(name, help, family),
        }
    }

    /// The name gets `_total` at its end, behind the unit.
    fn counter(&mut self, name: &str, unit: Option<Unit>, help: &str, rows: Rows) {
        let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).inc_by(value);
        }
        match unit {
            Some(unit) => self.0.register_with_unit(name, help, unit, family),
            None => self.0.register(name, help, family),
        }
    }
}

fn node(page: &mut Page, stats: &Stats) {
    let node = &stats.node;
    let labels = vec![
        ("version", node.version.clone()),
        ("schema", stats.schema.to_string()),
        ("simulated", node.simulated.to_string()),
    ];
    page.gauge("weir_build_info", None, "The node manager; always 1", vec![(labels, 1.0)]);
    let off = Gauge::<i64>::default();
    off.set(i64::from(node.off));
    page.0.register("weir_off", "1 while the operator has switched off everything but memory limits", off);
    let signals = stats.signals.iter();
    let rows = signals
        .map(|signal| (vec![("signal", signal.name.clone())], f64::from(signal.best_effort_permille) / 1e3));
    page.gauge("weir_best_effort", ratio(), "Part of each GPU left by a signal", rows.collect());
}

fn of_gpu(gpu: &GpuStats) -> Labels {
    vec![("gpu", gpu.index.to_string()), ("UUID", gpu.uuid.clone())]
}

fn gpus(page: &mut Page, stats: &Stats) {
    let rows = |value: fn(&GpuStats) -> Option<f64>| -> Rows {
        stats.gpus.iter().filter_map(|gpu| Some((of_gpu(gpu), value(gpu)?))).collect()
    };
    let bytes = || Some(Unit::Bytes);
    page.gauge("weir_gpu_memory", bytes(), "The card's memory", rows(|g| Some(g.memory_total_bytes as f64)));
    let used = rows(|g| g.memory_used_bytes.map(|bytes| bytes as f64));
    page.gauge("weir_gpu_memory_used", bytes(), "Memory in use by NVML's account", used);
    let requested = rows(|g| Some(f64::from(g.requested_permille) / 1e3));
    page.gauge("weir_gpu_requested", ratio(), "Sum of the requests on a GPU", requested);
}

/// A row for each tenant and GPU, with further labels.
fn pairs(stats: &Stats, row: impl Fn(&TenantStats, &TenantGpuStats) -> Vec<(Labels, f64)>) -> Rows {
    let pairs = stats.tenants.iter().flat_map(|tenant| tenant.gpus.iter().map(move |gpu| (tenant, gpu)));
    let labelled = pairs.flat_map(|(tenant, gpu)| {
        let of_pair =
            vec![("gpu", gpu.index.to_string()), ("UUID", gpu.uuid.clone()), ("tenant", tenant.name.clone())];
        let more = row(tenant, gpu).into_iter();
        more.map(|(labels, value)| ([of_pair.clone(), labels].concat(), value)).collect::<Vec<_>>()
    });
    labelled.collect()
}

fn one(value: f64) -> Vec<(Labels, f64)> {
    vec![(Vec::new(), value)]
}

fn tenants(page: &mut Page, stats: &Stats) {
    let of_tenant = |tenant: &TenantStats| vec![("tenant", tenant.name.clone())];
    let states = stats.tenants.iter().flat_map(|tenant| {
        STATES.map(|state| {
            let labels = [of_tenant(tenant), vec![("state", state.to_owned())]].concat();
            (labels, f64::from(u8::from(tenant.state == state)))
        })
    });
    page.gauge("weir_tenant_state", None, "1 for the state that a tenant is in", states.collect());
    let processes = stats.tenants.iter().map(|tenant| (of_tenant(tenant), tenant.processes_ever as f64));
    page.counter("weir_processes_joined", None, "Processes that came under a budget", processes.collect());
    let policies = pairs(stats, |_, gpu| {
        let policy = stats.gpus.iter().find(|known| known.index == gpu.index);
        let policy = policy.map_or(String::new(), |known| known.policy.clone());
        vec![(vec![("policy", policy), ("state", gpu.policy_state.clone())], 1.0)]
    });
    page.gauge("weir_policy_state", None, "1 for what the policy makes of a tenant", policies);
    let promises = || stats.tenants.iter().filter_map(|tenant| Some((tenant, tenant.budget.slo?)));
    let quantile = |tenant: &TenantStats, permille: u16| {
        [of_tenant(tenant), vec![("quantile", (f64::from(permille) / 1e3).to_string())]].concat()
    };
    let targets = promises().map(|(t, slo)| (quantile(t, slo.quantile_permille), slo.target_ns as f64 / 1e9));
    page.gauge("weir_slo_target", Some(Unit::Seconds), "What a tenant has promised", targets.collect());
    let recent = promises().filter_map(|(tenant, slo)| {
        let ns = tenant.latency.as_ref()?.recent_ns?;
        Some((quantile(tenant, slo.quantile_permille), ns as f64 / 1e9))
    });
    page.gauge("weir_slo_latency", Some(Unit::Seconds), "That quantile of late", recent.collect());
}

fn time(page: &mut Page, stats: &Stats) {
    let gauge = |value: fn(&TenantStats, &TenantGpuStats) -> f64| pairs(stats, |t, gpu| one(value(t, gpu)));
    let request = gauge(|tenant, _| tenant.budget.request.as_percent() / 1e2);
    page.gauge("weir_request", ratio(), "Share guaranteed", request);
    let limit = gauge(|tenant, _| tenant.budget.limit.as_percent() / 1e2);
    page.gauge("weir_limit", ratio(), "Share never exceeded", limit);
    let granted = gauge(|_, gpu| f64::from(gpu.rate_ppm) / 1e6);
    page.gauge("weir_granted", ratio(), "Share granted now", granted);
    let achieved = gauge(|_, gpu| gpu.achieved_percent / 1e2);
    page.gauge("weir_achieved", ratio(), "Share charged during the last second", achieved);
    let counter = |value: fn(&TenantGpuStats) -> u64| pairs(stats, |_, gpu| one(value(gpu) as f64));
    let charged = pairs(stats, |_, gpu| one(gpu.total.charged_ns as f64 / 1e9));
    page.counter("weir_gpu_time", Some(Unit::Seconds), "SM time charged, of the whole GPU", charged);
    let waits = pairs(stats, |_, gpu| {
        let waits = gpu.total.stalls_ns.iter().filter(|(cause, _)| *cause != "compute");
        waits.map(|(cause, ns)| (vec![("cause", cause.clone())], *ns as f64 / 1e9)).collect()
    });
    page.counter("weir_wait", Some(Unit::Seconds), "Wall time that was not compute, by cause", waits);
    page.counter("weir_launches", None, "Launches", counter(|gpu| gpu.total.launches));
    let throttled = counter(|gpu| gpu.total.throttled);
    page.counter("weir_throttled_launches", None, "Launches that waited at the gate", throttled);
    let forced = counter(|gpu| gpu.total.forced);
    page.counter("weir_forced_launches", None, "Launches let through so that nothing stands still", forced);
    let excused = counter(|gpu| gpu.total.excused);
    page.counter(
        "weir_excused_launches",
        None,
        "Launches and copies that must not wait, gone as debt",
        excused,
    );
    page.counter("weir_faults", None, "Faults of ours that were caught", counter(|gpu| gpu.total.faults));
}

fn memory(page: &mut Page, stats: &Stats) {
    let bytes = || Some(Unit::Bytes);
    let used = pairs(stats, |_, gpu| one(gpu.memory_held_bytes as f64));
    page.gauge("weir_memory_used", bytes(), "Memory held", used);
    let parked = pairs(stats, |_, gpu| one(gpu.memory_parked_bytes as f64));
    page.gauge("weir_memory_parked", bytes(), "Memory on the host, of a parked tenant", parked);
    let limit = pairs(stats, |_, gpu| one(gpu.memory_limit_bytes as f64));
    page.gauge("weir_memory_limit", bytes(), "Memory that may be held", limit);
    let over = pairs(stats, |_, gpu| one(f64::from(u8::from(gpu.overcommitted))));
    page.gauge("weir_overcommitted", None, "1 while more is held than could be refused", over);
    let refused = pairs(stats, |_, gpu| one(gpu.total.refused as f64));
    page.counter("weir_refused_allocations", None, "Allocations refused for the limit", refused);
    let copied = pairs(stats, |_, gpu| {
        let ways = gpu.total.copies.iter();
        ways.map(|(way, copied)| (vec![("way", way.clone())], copied.bytes as f64)).collect()
    });
    page.counter("weir_copied", bytes(), "Bytes copied, by way", copied);
}
