//! What statements divide: one number of a run, or none where there is nothing of the kind.

use weir_nodemgr::control::schema::ClassName;
use weir_nodemgr::sim::{Outcome, TenantOutcome};

fn work<'a>(tenants: impl Iterator<Item = &'a TenantOutcome>) -> Option<f64> {
    Some(tenants.map(|tenant| tenant.work_ms_per_s).sum())
}

/// Work of the fillers, ms in a second.
pub fn fillers(outcome: &Outcome) -> Option<f64> {
    work(outcome.tenants.iter().filter(|tenant| is_filler(tenant)))
}

/// Work of the others.
pub fn others(outcome: &Outcome) -> Option<f64> {
    work(outcome.tenants.iter().filter(|tenant| !is_filler(tenant)))
}

fn is_filler(tenant: &TenantOutcome) -> bool {
    tenant.class == ClassName::Filler
}

/// Requests that were served; those that came too late for the run's end are not.
pub fn served(outcome: &Outcome) -> Option<f64> {
    let served = |tenant: &TenantOutcome| tenant.requests as f64 - tenant.unserved as f64;
    Some(outcome.tenants.iter().map(served).sum())
}

/// Requests beyond their bounds, percent of all that had one.
pub fn missed(outcome: &Outcome) -> Option<f64> {
    let promised = || outcome.tenants.iter().filter(|tenant| tenant.slo_violations_percent.is_some());
    let late: f64 = promised().filter_map(|t| Some(t.slo_violations_percent? * t.requests as f64)).sum();
    let all: usize = promised().map(|tenant| tenant.requests).sum();
    (all > 0).then(|| late / all as f64)
}

/// p95 of the first that serves requests, ms.
pub fn p95(outcome: &Outcome) -> Option<f64> {
    outcome.tenants.iter().find_map(|tenant| Some(tenant.request?.p95_ms))
}

/// Its p99.
pub fn p99(outcome: &Outcome) -> Option<f64> {
    outcome.tenants.iter().find_map(|tenant| Some(tenant.request?.p99_ms))
}
