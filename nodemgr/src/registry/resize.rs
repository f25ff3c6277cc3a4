//! A tenant's budget is changed while it runs.

use std::sync::Arc;

use weir_protocol::units::Nanos;

use super::{Pages, Registry, Tenant};
use crate::codes;
use crate::control::schema::{Budget, SetBudget};
use crate::events::{About, What};
use crate::failpoint;
use crate::fault::Fault;
use crate::journal::Record;

/// A grant that `weir set` has published, to be watched for the first launch under it.
pub struct Published {
    /// Pages of one cell.
    pub pages: Arc<Pages>,
    /// Slots of the tenant's processes.
    pub slots: Vec<usize>,
    /// The generation to be acknowledged.
    pub generation: u32,
}

impl Registry {
    /// The budget that a change would lead to, checked against everything: (tenant, old, new).
    ///
    /// # Errors
    /// Whatever [`codes`] has for budgets.
    pub fn consider(&self, change: &SetBudget) -> Result<(u64, Budget, Budget), Fault> {
        if change.request_permille.is_none()
            && change.limit_permille.is_none()
            && change.memory_bytes.is_none()
            && change.copy_limit_bytes_per_s.is_none()
            && change.slo.is_none()
        {
            let help = "add --request, --limit, --memory, --copy-limit or --slo";
            return Err(Fault::new(&codes::NOTHING_TO_SET, "there is nothing to set", help));
        }
        let tenant = self.named(&change.tenant)?;
        let new = self.changed(&tenant.budget, change)?;
        if change.slo.is_some() && tenant.latency.is_none() {
            let message = format!("nobody would tell whether `{}` keeps the SLO", tenant.name);
            let help = "start it anew, with --latency-from URL METRIC (or hint METRIC)";
            return Err(Fault::new(&codes::SLO, message, help));
        }
        let gpus: Vec<_> = tenant.cells.iter().map(|cell| cell.gpu).collect();
        self.check_budget(&new, tenant.class, &gpus)?;
        self.check_room(&new, &gpus, Some(tenant.id))?;
        Ok((tenant.id, tenant.budget, new))
    }

    /// Changes a tenant's budget and publishes what follows from it at once; says which of its grants changed.
    pub fn apply(&mut self, tenant: u64, budget: Budget, now: Nanos) -> Vec<Published> {
        let Some(at) = self.tenants.iter().position(|t| t.id == tenant) else { return Vec::new() };
        self.journal.note(&Record::Budget { tenant, budget });
        failpoint::at("resize.noted");
        let Tenant { name, owner, budget: held, .. } = &mut self.tenants[at];
        let old = std::mem::replace(held, budget);
        self.anew = true;
        if old != budget {
            self.events.push(About::tenant(name, *owner), What::BudgetSet { old, new: budget });
        }
        if old.slo != budget.slo {
            let gpus: Vec<_> = self.tenants[at].cells.iter().map(|cell| cell.gpu).collect();
            gpus.into_iter().for_each(|gpu| self.standings_changed(gpu)); // the tighter bound goes first
        }
        let before: Vec<_> =
            self.tenants[at].cells.iter().map(|cell| cell.pages.grant.generation()).collect();
        self.tick(now);
        failpoint::at("resize.published");
        let tenant = &self.tenants[at];
        let published = tenant.cells.iter().zip(before).filter_map(|(cell, before)| {
            let generation = cell.pages.grant.generation();
            let (pages, slots) = (cell.pages.clone(), tenant.slots.clone());
            (generation != before).then_some(Published { pages, slots, generation })
        });
        published.collect()
    }
}
