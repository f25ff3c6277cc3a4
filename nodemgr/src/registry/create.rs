//! Tenants are made, joined, kept by whoever started them, and ended.

use weir_protocol::pages::PROCESS_SLOTS;
use weir_protocol::units::Nanos;

use super::{Cell, Holder, Latency, Park, Registry, Tenant, admission, restore};
use crate::codes;
use crate::control::schema::CreateTenant;
use crate::events::{About, What};
use crate::failpoint;
use crate::fault::Fault;
use crate::journal::Record;

impl Registry {
    /// Makes the tenant, or joins the one of this name and budget; says its number and whether it was there.
    ///
    /// # Errors
    /// Whatever [`codes`] has for budgets; nothing has changed then.
    pub fn create(
        &mut self,
        wanted: &CreateTenant,
        owner: u32,
        holder: Holder,
        now: Nanos,
    ) -> Result<(u64, bool), Fault> {
        if let Some(tenant) = self.tenants.iter_mut().find(|tenant| is_meant_as_it_is(tenant, wanted)) {
            may_be_joined(tenant, owner)?;
            tenant.holders.push(holder);
            return Ok((tenant.id, true));
        }
        let plan = self.plan(wanted)?;
        let name = if wanted.unique { self.unique(&wanted.name) } else { wanted.name.clone() };
        if let Some(tenant) = self.tenants.iter_mut().find(|tenant| tenant.name == name) {
            join(tenant, &plan, wanted, owner)?;
            self.journal.note(&restore::hold(tenant.id, &holder));
            tenant.holders.push(holder);
            return Ok((tenant.id, true));
        }
        self.mps.check_alike(&plan.gpus)?;
        if let Err(full) = self.check_room(&plan.budget, &plan.gpus, None) {
            self.press(&plan.gpus, plan.budget.memory, None, now);
            return Err(full);
        }
        let id = self.next_id();
        let cells =
            plan.gpus.iter().map(|gpu| Cell::create(*gpu, id, &plan.budget)).collect::<Result<_, _>>();
        let cells = cells
            .map_err(|e| Fault::system(&codes::SYSTEM, "make the pages", e, "look at the memory limits"))?;
        let (class, budget) = (wanted.class, plan.budget);
        self.events.push(About::tenant(&name, owner), What::TenantMade { class, budget });
        let (processes, slots, holders) = (Vec::new(), Vec::with_capacity(PROCESS_SLOTS), vec![holder]);
        let tenant = Tenant {
            id,
            name,
            owner,
            class,
            oversubscribe: wanted.oversubscribe,
            budget,
            latency: wanted.latency_from.clone().map(Latency::of),
            park: Park::default(),
            cells,
            processes,
            slots,
            unreached: Vec::new(),
            out_of_reach: Vec::new(),
            holders,
            registered: 0,
            budget_at_start: budget,
            configured: None,
            made_at: now,
        };
        self.journal.note(&Record::Tenant(Box::new(self.tenant_row(&tenant))));
        self.journal.note(&restore::hold(id, &holder));
        self.catch_up();
        self.tenants.push(tenant);
        failpoint::at("create.noted");
        self.reorder();
        Ok((id, false))
    }

    fn unique(&self, base: &str) -> String {
        let taken = |name: &str| self.tenants.iter().any(|tenant| tenant.name == name);
        let numbered = (2..).map(|n| format!("{base}-{n}"));
        std::iter::once(base.to_owned()).chain(numbered).find(|name| !taken(name)).unwrap_or_default()
    }

    /// The control connection has gone.
    pub fn release(&mut self, holder: u64) {
        let mut held = false;
        for tenant in &mut self.tenants {
            let before = tenant.holders.len();
            tenant.holders.retain(|held| held.id != holder);
            held |= tenant.holders.len() != before;
        }
        if held {
            self.journal.note(&Record::Release { holder });
        }
    }

    /// Ends the tenants that nobody needs, gives their budgets back, and says which they were.
    pub fn sweep(&mut self) -> Vec<(u64, String)> {
        let over: Vec<_> =
            self.tenants.iter().filter(|t| t.is_over()).map(|t| (t.id, t.name.clone())).collect();
        if !over.is_empty() {
            for tenant in self.tenants.iter().filter(|tenant| tenant.is_over()) {
                self.events.push(About::tenant(&tenant.name, tenant.owner), What::TenantEnded);
            }
            failpoint::at("end.begun");
            self.catch_up();
            self.tenants.retain(|tenant| !tenant.is_over());
            self.count_away();
            self.reorder();
            over.iter().for_each(|(tenant, _)| self.journal.note(&Record::Ended { tenant: *tenant }));
        }
        over
    }
}

/// Whether somebody names a tenant and says nothing of its budget: then it is to be as it is.
fn is_meant_as_it_is(tenant: &Tenant, wanted: &CreateTenant) -> bool {
    let silent = wanted.request_permille.is_none()
        && wanted.limit_permille.is_none()
        && wanted.memory_bytes.is_none()
        && wanted.copy_limit_bytes_per_s == 0
        && wanted.slo.is_none()
        && wanted.latency_from.is_none()
        && !wanted.oversubscribe;
    let class = wanted.class == tenant.class || wanted.class == Default::default();
    silent && class && !wanted.unique && wanted.name == tenant.name && names_first_gpu(wanted)
}

/// Whether no other GPU is named than the one that goes without saying.
fn names_first_gpu(wanted: &CreateTenant) -> bool {
    wanted.gpus.is_empty() || wanted.gpus == ["0"]
}

fn may_be_joined(tenant: &Tenant, owner: u32) -> Result<(), Fault> {
    if tenant.owner == owner {
        return Ok(());
    }
    let message = format!("tenant `{}` belongs to user {}", tenant.name, tenant.owner);
    Err(Fault::new(&codes::NOT_ALLOWED, message, "choose another --name"))
}

/// A second `weir run` with the same name is the same tenant only if it says the same.
fn join(tenant: &Tenant, plan: &admission::Plan, wanted: &CreateTenant, owner: u32) -> Result<(), Fault> {
    may_be_joined(tenant, owner)?;
    let same_gpus = tenant.cells.iter().map(|cell| cell.gpu).eq(plan.gpus.iter().copied());
    let same_rules = tenant.class == wanted.class && tenant.oversubscribe == wanted.oversubscribe;
    let same_source = tenant.latency.as_ref().map(|latency| &latency.source) == wanted.latency_from.as_ref();
    if tenant.budget == plan.budget && same_rules && same_gpus && same_source {
        return Ok(());
    }
    let Tenant { name, budget, class, .. } = tenant;
    let message = format!("tenant `{name}` runs with another budget: {budget}, class {}", class.as_str());
    let help =
        "give the same budget to join it, another --name for a second tenant, or `weir set` to change it";
    Err(Fault::new(&codes::BUDGET_DIFFERS, message, help))
}
