//! Tenants that stay: made from the configuration when the manager starts, and kept by it whoever comes and goes.
//!
//! A manager that starts again finds them in the journal, with what an operator has set since and what their processes did.
//! Of a row that gives another budget than the one before the operator has decided anew: the file wins.

use weir_protocol::units::Nanos;

use super::admission::Plan;
use super::{Cell, Holder, Latency, Registry};
use crate::codes;
use crate::config::Persistent;
use crate::control::schema::Budget;
use crate::events::{About, What};
use crate::fault::Fault;

/// Who keeps them: a number that no connection has, and nobody whose end could be watched.
pub const PERSISTENT: Holder = Holder { id: 0, pid: 0, birth: 0 };

impl Registry {
    /// Makes the tenants of `rows`, keeps those that are there, and lets go of those that have no row any more. Says their
    /// numbers. To be called before a journal is kept: what it begins with says all of this.
    ///
    /// # Errors
    /// Whatever [`codes`] has for budgets, with file and line.
    pub fn persist(&mut self, rows: &[Persistent], now: Nanos) -> Result<Vec<u64>, Fault> {
        self.let_go_of_others(rows);
        let is_there = |known: &Self, row: &Persistent| known.named(&row.wanted.name).is_ok();
        let (known, new): (Vec<_>, Vec<_>) = rows.iter().partition(|row| is_there(self, row));
        // All of them before any is checked: of two rows one may have been given what the other had.
        let read = known.iter().map(|row| self.read_again(row).map_err(|fault| fault.at(row.at.clone())));
        let changed = read.collect::<Result<Vec<bool>, _>>()?;
        for (row, _) in known.iter().zip(changed).filter(|(_, changed)| *changed) {
            self.check_row(row).map_err(|fault| fault.at(row.at.clone()))?;
        }
        for row in new {
            let made = self.create(&row.wanted, row.owner, PERSISTENT, now);
            let (id, _) = made.map_err(|fault| fault.at(row.at.clone()))?;
            let made = self.tenants.iter_mut().find(|tenant| tenant.id == id);
            made.into_iter().for_each(|tenant| tenant.configured = Some(tenant.budget));
        }
        self.reorder();
        rows.iter().map(|row| self.named(&row.wanted.name).map(|tenant| tenant.id)).collect()
    }

    /// Whoever stood in the configuration and does no longer stays for as long as somebody else keeps it.
    fn let_go_of_others(&mut self, rows: &[Persistent]) {
        let is_gone = |name: &str| rows.iter().all(|row| row.wanted.name != name);
        for tenant in self.tenants.iter_mut().filter(|tenant| is_gone(&tenant.name)) {
            tenant.holders.retain(|holder| *holder != PERSISTENT);
            tenant.configured = None;
        }
        self.sweep();
    }

    /// The row of a tenant that is there, read again. Says whether that has changed anything.
    fn read_again(&mut self, row: &Persistent) -> Result<bool, Fault> {
        let Plan { budget, gpus } = self.plan(&row.wanted)?;
        let Some(at) = self.tenants.iter().position(|known| known.name == row.wanted.name) else {
            return Ok(false);
        };
        let tenant = &mut self.tenants[at];
        if !tenant.holders.contains(&PERSISTENT) {
            tenant.holders.push(PERSISTENT);
        }
        let is_new = tenant.configured.replace(budget) != Some(budget);
        if is_new {
            self.take_budget(at, budget);
        }
        Ok(self.take_rest(at, row, &gpus)? || is_new)
    }

    fn take_budget(&mut self, at: usize, new: Budget) {
        let tenant = &mut self.tenants[at];
        let old = std::mem::replace(&mut tenant.budget, new);
        if !tenant.has_somebody() {
            tenant.budget_at_start = new; // whoever comes has never had another one
        }
        if old != new {
            self.events.push(About::tenant(&tenant.name, tenant.owner), What::BudgetSet { old, new });
        }
    }

    /// What else the row says. Programs are told of it when they start, so that it waits until none is there.
    fn take_rest(&mut self, at: usize, row: &Persistent, gpus: &[usize]) -> Result<bool, Fault> {
        let Persistent { wanted, owner, at: line } = row;
        let tenant = &self.tenants[at];
        let source = tenant.latency.as_ref().map(|latency| &latency.source);
        let same_gpus = tenant.cells.iter().map(|cell| cell.gpu).eq(gpus.iter().copied());
        let same_rules = tenant.class == wanted.class && tenant.oversubscribe == wanted.oversubscribe;
        if same_gpus && same_rules && tenant.owner == *owner && source == wanted.latency_from.as_ref() {
            return Ok(false);
        }
        if tenant.has_somebody() {
            tracing::warn!(
                tenant = tenant.name,
                line,
                "the row has changed in more than its budget, which programs of the tenant that run cannot be told: class, \
                 GPUs, owner, oversubscribe and latency_from stay. help: end them, and start the node manager again"
            );
            return Ok(false);
        }
        if !same_gpus {
            self.mps.check_alike(gpus)?;
            self.move_to(at, gpus)?;
        }
        let tenant = &mut self.tenants[at];
        (tenant.class, tenant.oversubscribe, tenant.owner) = (wanted.class, wanted.oversubscribe, *owner);
        tenant.latency = wanted.latency_from.clone().map(Latency::of);
        Ok(true)
    }

    /// Nobody is there: it has its pages on these GPUs from here on, and on those that it had, what its processes did there.
    fn move_to(&mut self, at: usize, gpus: &[usize]) -> Result<(), Fault> {
        let tenant = &mut self.tenants[at];
        let mut before = std::mem::take(&mut tenant.cells);
        for gpu in gpus {
            let known = before.iter().position(|cell| cell.gpu == *gpu);
            let cell = known.map_or_else(
                || Cell::create(*gpu, tenant.id, &tenant.budget),
                |known| Ok(before.swap_remove(known)),
            );
            tenant.cells.push(cell.map_err(|error| {
                Fault::system(&codes::SYSTEM, "make the pages", error, "look at the memory limits")
            })?);
        }
        Ok(())
    }

    /// Whether what the row asks for is there, beside all others.
    fn check_row(&self, row: &Persistent) -> Result<(), Fault> {
        let tenant = self.named(&row.wanted.name)?;
        let gpus: Vec<_> = tenant.cells.iter().map(|cell| cell.gpu).collect();
        self.check_room(&tenant.budget, &gpus, Some(tenant.id))
    }
}
