//! The tenants' pages in the keeping of a supervisor, who hands them to the next manager (sd_notify(3), `FDSTORE`). With them
//! that one needs no look into the programs, and has also what the last process of a tenant has left.
//!
//! Said beside the tick: a supervisor who does not listen holds nobody up, and hears it at the next look.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Tenant;
use crate::notify::Supervisor;

/// What a tenant's descriptors are called there, before its number.
const NAME: &str = "tenant-";

/// What a supervisor keeps.
#[derive(Default)]
pub struct Store {
    supervisor: Arc<Supervisor>,
    kept: BTreeSet<u64>, // tenants
}

impl Store {
    /// Kept by `supervisor`, who has handed over what bears `names`; `tenants` are those that have been taken over.
    pub fn new(supervisor: Arc<Supervisor>, names: &[String], tenants: &[Tenant]) -> Self {
        let numbers = names.iter().filter_map(|name| name.strip_prefix(NAME)?.parse().ok());
        // Who has been taken over is said again: the pages may be others, and the same ones are not kept twice.
        let over = numbers.filter(|id| tenants.iter().all(|tenant| tenant.id != *id));
        Self { supervisor, kept: over.collect() }
    }

    /// Has the pages of all `tenants` kept, and no others.
    pub fn settle(&mut self, tenants: &[Tenant]) {
        if !self.supervisor.is_there() {
            return;
        }
        let Self { supervisor, kept } = self;
        let is_over = |id: &u64| tenants.iter().all(|tenant| tenant.id != *id);
        kept.retain(|id| !(is_over(id) && supervisor.forget(&format!("{NAME}{id}"))));
        for tenant in tenants.iter().filter(|tenant| !kept.contains(&tenant.id)).collect::<Vec<_>>() {
            let fds: Vec<_> = tenant.cells.iter().flat_map(|cell| cell.pages.fds()).collect();
            if !supervisor.keep(&format!("{NAME}{}", tenant.id), &fds) {
                return; // it is busy
            }
            kept.insert(tenant.id);
        }
    }
}
