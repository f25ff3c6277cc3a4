//! The registry as the journal says it, and the registry as it is after the pages of an earlier manager were found.

use weir_protocol::mapping::MapError;
use weir_protocol::pages::PROCESS_SLOTS;

use super::{Cell, Holder, Latency, Pages, Process, Registry, Store, Tenant};
use crate::gpus::parse_uuid;
use crate::journal::{CellRow, Hold, Journal, ProcessRow, Record, State, TenantRow};
use weir_protocol::units::Nanos;

/// A tenant of an earlier manager, as far as it was found.
pub struct Found {
    /// What it was.
    pub row: TenantRow,
    /// Its pages on each GPU; absent where no living process has them, or they cannot be had.
    pub pages: Option<Vec<Pages>>,
    /// Its living processes: with the pages, or those that have pages that cannot be had.
    pub living: Vec<Process>,
    /// Its dead ones.
    pub dead: Vec<Process>,
    /// Living processes that keep it, and the configuration.
    pub holders: Vec<Holder>,
}

impl Registry {
    /// From here on changes are noted in `journal`.
    pub fn keep(&mut self, journal: Journal) {
        self.journal = journal;
    }

    /// From here on the pages are kept in `store` too.
    pub fn keep_pages(&mut self, store: Store) {
        self.store = store;
    }

    /// How the journal is doing.
    pub fn journal(&self) -> State {
        self.journal.state()
    }

    /// Everything, as a journal would say it.
    pub fn records(&self) -> Vec<Record> {
        let mut records = vec![Record::begin(&self.gpus.devices)];
        records.extend(self.policy_rows().map(Record::Policy));
        for tenant in &self.tenants {
            records.push(Record::Tenant(Box::new(self.tenant_row(tenant))));
            records.extend(tenant.holders.iter().map(|holder| hold(tenant.id, holder)));
            let processes = tenant.processes.iter().chain(&tenant.unreached);
            records.extend(processes.map(|process| process_row(tenant.id, process)));
        }
        records
    }

    /// A tenant's line.
    pub(super) fn tenant_row(&self, tenant: &Tenant) -> TenantRow {
        let uuid =
            |gpu: usize| self.gpus.devices.get(gpu).map(crate::gpus::Device::uuid_text).unwrap_or_default();
        let cell = |(at, cell): (usize, &Cell)| CellRow {
            gpu: uuid(cell.gpu),
            pages: tenant.out_of_reach.get(at).copied().unwrap_or_else(|| cell.pages.inodes()),
            dead: cell.dead.clone(),
        };
        let there = (tenant.processes.len() + tenant.unreached.len()) as u64;
        TenantRow {
            id: tenant.id,
            name: tenant.name.clone(),
            owner: tenant.owner,
            class: tenant.class,
            oversubscribe: tenant.oversubscribe,
            budget: tenant.budget,
            budget_at_start: tenant.budget_at_start,
            configured: tenant.configured,
            latency_from: tenant.latency.as_ref().map(|latency| latency.source.clone()),
            park: tenant.park.clone(),
            made_at_ns: tenant.made_at.0,
            registered: tenant.registered.saturating_sub(there), // they have lines of their own
            cells: tenant.cells.iter().enumerate().map(cell).collect(),
        }
    }

    /// Takes over what was found. Numbers up to `last_id` were given out.
    ///
    /// # Errors
    /// New pages for a tenant whose old ones were not found could not be made; that tenant is left out.
    pub fn restore(&mut self, found: Vec<Found>, last_id: u64) -> Vec<(String, MapError)> {
        self.last_id = self.last_id.max(last_id);
        let mut failed = Vec::new();
        let mut dead = Vec::new();
        for mut found in found {
            let id = found.row.id;
            dead.extend(found.dead.drain(..).map(|process| (id, process)));
            let name = found.row.name.clone();
            match self.tenant_of(found) {
                Ok(tenant) => self.tenants.push(tenant),
                Err(error) => failed.push((name, error)),
            }
        }
        for (tenant, process) in dead {
            self.bury_dead(tenant, process);
        }
        self.clear_remains();
        self.take_over_parks();
        self.reorder();
        failed
    }

    fn tenant_of(&mut self, found: Found) -> Result<Tenant, MapError> {
        let Found { row, pages, living, dead: _, holders } = found;
        let known = |cell: &CellRow| {
            let uuid = parse_uuid(&cell.gpu);
            self.gpus.devices.iter().position(|device| Some(device.uuid) == uuid).unwrap_or(usize::MAX)
        };
        let gpus: Vec<usize> = row.cells.iter().map(known).collect();
        let places = gpus.iter().copied().zip(row.cells.iter().map(|cell| cell.dead.clone()));
        let is_taken = pages.is_some();
        let cells = match pages {
            Some(pages) => {
                places.zip(pages).map(|((gpu, dead), pages)| Cell::take_over(gpu, pages, dead)).collect()
            }
            None => {
                let create = |(gpu, dead)| {
                    let cell = Cell::create(gpu, row.id, &row.budget)?;
                    Ok(cell.with_dead(dead))
                };
                places.map(create).collect::<Result<_, MapError>>()?
            }
        };
        let mut tenant = Tenant {
            id: row.id,
            name: row.name,
            owner: row.owner,
            class: row.class,
            oversubscribe: row.oversubscribe,
            budget: row.budget,
            park: Registry::stood(row.park),
            cells,
            processes: Vec::new(),
            slots: Vec::with_capacity(PROCESS_SLOTS),
            unreached: Vec::new(),
            out_of_reach: Vec::new(),
            holders,
            registered: row.registered.saturating_sub(living.len() as u64), // counted again as they are added
            budget_at_start: row.budget_at_start,
            configured: row.configured,
            made_at: Nanos(row.made_at_ns),
            latency: row.latency_from.map(Latency::of),
        };
        if is_taken {
            living.into_iter().for_each(|process| tenant.add_again(process));
        } else {
            tenant.out_of_reach = match living.is_empty() {
                true => Vec::new(), // nobody has them
                false => row.cells.iter().map(|cell| cell.pages).collect(),
            };
            tenant.unreached = living;
            tenant.registered = row.registered;
        }
        Ok(tenant)
    }

    /// Buries a process that died while no manager was there, if its tenant's pages were found.
    fn bury_dead(&mut self, tenant: u64, process: Process) {
        let id = process.id;
        let Some(tenant) = self.tenants.iter_mut().find(|known| known.id == tenant) else { return };
        if tenant.slots.contains(&process.slot) {
            return;
        }
        tenant.slots.push(process.slot);
        tenant.processes.push(process);
        self.bury(id);
    }

    /// Clears the slots that are nobody's: the earlier manager died while it buried somebody, or before it could tell a
    /// process which slot it has.
    fn clear_remains(&mut self) {
        let mut orphans = Vec::new();
        for tenant in &self.tenants {
            let free = (0..PROCESS_SLOTS).filter(|slot| !tenant.slots.contains(slot));
            for slot in free {
                let left = tenant.cells.iter().filter_map(|cell| Some((cell, cell.remains(slot)?)));
                left.for_each(|(_, left)| orphans.extend(left));
            }
        }
        self.unclaimed.hand_on(&self.tenants, orphans);
        for tenant in &self.tenants {
            let free = (0..PROCESS_SLOTS).filter(|slot| !tenant.slots.contains(slot));
            for slot in free {
                tenant.cells.iter().filter(|cell| cell.remains(slot).is_some()).for_each(|cell| {
                    cell.pages.activity.forget(slot);
                    cell.clear(slot);
                });
            }
        }
    }

    /// The pages of processes that could not be reached are nobody's once the last of those has gone. From then on the journal
    /// must say which pages the next ones get.
    pub(super) fn forget_out_of_reach(&mut self) {
        let over = |tenant: &&mut Tenant| tenant.unreached.is_empty() && !tenant.out_of_reach.is_empty();
        let forgotten =
            self.tenants.iter_mut().filter(over).map(|tenant| tenant.out_of_reach.clear()).count();
        if forgotten > 0 {
            let records = self.records();
            self.journal.renew(&records);
        }
    }

    /// A process came back whose slot is not known here: it cannot be counted, and that is to be seen.
    pub fn strand(&mut self, tenant: u64, process: Process) {
        if let Some(tenant) = self.tenants.iter_mut().find(|known| known.id == tenant) {
            self.journal.note(&process_row(tenant.id, &process));
            tenant.unreached.push(process);
            tenant.registered += 1;
        }
    }
}

/// The line of a control connection that keeps a tenant.
pub(super) fn hold(tenant: u64, holder: &Holder) -> Record {
    Record::Hold(Hold { tenant, holder: *holder })
}

/// A process's line.
pub(super) fn process_row(tenant: u64, process: &Process) -> Record {
    Record::Process(ProcessRow { tenant, process: process.clone() })
}
