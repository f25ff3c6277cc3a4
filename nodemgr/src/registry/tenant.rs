//! A tenant: its budget, its pages on each of its GPUs, and its processes.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use weir_policy::{Mode, Sample};
use weir_protocol::message::PAGES;
use weir_protocol::pages::PROCESS_SLOTS;
use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::cell::Cell;
use super::heirs::Orphan;
use super::outside::{Latency, kept};
use super::park::Park;
use super::persistent::PERSISTENT;
use crate::control::schema::{Budget, ClassName};

/// A process of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The manager's number for this registration; never used twice.
    pub id: u64,
    /// Process id as the manager's namespace has it.
    pub pid: i32,
    /// Its birth: the id alone may be another's one day.
    pub birth: u64,
    /// Its slot on each usage page.
    pub slot: usize,
    /// Version of its `libweir.so`, as it says.
    pub build: String,
    /// Its driver library, as it says.
    pub driver: String,
}

/// A control connection that keeps a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its number.
    #[serde(rename = "holder")]
    pub id: u64,
    /// The process at its other end.
    pub pid: i32,
    /// That process's birth.
    pub birth: u64,
}

/// Who has a budget.
pub struct Tenant {
    /// The manager's number for it; never used twice.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The user who made it.
    pub owner: u32,
    /// Its class.
    pub class: ClassName,
    /// Whether its plain allocations beyond the memory limit become managed memory.
    pub oversubscribe: bool,
    /// Its budget, the same on each GPU.
    pub budget: Budget,
    /// Its latencies, where it has promised any.
    pub latency: Option<Latency>,
    /// Whether it is parked.
    pub park: Park,
    /// One for each of its GPUs.
    pub cells: Vec<Cell>,
    /// Processes that live.
    pub processes: Vec<Process>,
    /// Slots of `processes`.
    pub slots: Vec<usize>,
    /// Processes that an earlier manager registered and whose pages could not be taken over: they keep to their last
    /// limits, and nobody can change those.
    pub unreached: Vec<Process>,
    /// While there are any: the inodes of the pages that they have, on each GPU. The next manager looks for those.
    pub out_of_reach: Vec<[u64; PAGES]>,
    /// Who keeps it.
    pub holders: Vec<Holder>,
    /// Processes that ever registered.
    pub registered: u64,
    /// The budget with which it was made.
    pub budget_at_start: Budget,
    /// The budget that the configuration gives it, as it was read last; none where it does not stand there.
    pub configured: Option<Budget>,
    /// When it was made, on the manager's clock.
    pub made_at: Nanos,
}

impl Tenant {
    /// A slot that no process has.
    pub fn free_slot(&self) -> Option<usize> {
        (0..PROCESS_SLOTS).find(|slot| !self.slots.contains(slot))
    }

    /// What a policy may know of it on one of its GPUs.
    pub fn observe(&mut self, cell: usize, mode: Mode, now: Nanos) -> Sample {
        let limit = self.gate_limit(cell, mode);
        let Self { id, class, budget, latency, cells, slots, .. } = self;
        let cell = &mut cells[cell];
        let (outstanding, idle_for) = cell.observe(now, slots);
        Sample {
            tenant: *id,
            class: (*class).into(),
            request: budget.request,
            limit,
            memory_limit: budget.memory,
            memory_held: cell.held_lately(),
            outstanding,
            idle_for,
            work: cell.work(slots),
            slo: kept(budget.slo, latency.as_ref()),
        }
    }

    /// What of the time its gate may let it have. Under MPS the partition, as large as its first limit, is there already, and
    /// who is alone in one is charged all of the time: only a lower limit is left to the gate. A process without a partition
    /// puts its whole tenant under the gate.
    fn gate_limit(&self, cell: usize, mode: Mode) -> SmShare {
        let (limit, partition) = (self.budget.limit, self.budget_at_start.limit.as_permille());
        match mode {
            Mode::TimeSlicing => limit,
            Mode::Overlap if self.cells[cell].has_one_beside_mps(&self.slots) => limit,
            Mode::Overlap if limit.as_permille() >= partition => SmShare::FULL,
            Mode::Overlap => {
                let part = u32::from(limit.as_permille()) * 1_000 / u32::from(partition.max(1));
                SmShare::permille(u16::try_from(part).unwrap_or(1_000))
            }
        }
    }

    /// Adds a process.
    pub fn add(&mut self, process: Process) {
        for slot in self.cells.iter().filter_map(|cell| cell.pages.usage.slots.get(process.slot)) {
            // Relaxed: the process learns of its slot over the socket, which orders this store before it.
            slot.pid.store(process.pid.unsigned_abs(), Ordering::Relaxed);
        }
        self.slots.push(process.slot);
        self.processes.push(process);
        self.registered += 1;
    }

    /// Adds a process that an earlier manager had.
    pub fn add_again(&mut self, process: Process) {
        if self.slots.contains(&process.slot) {
            self.registered += 1;
            self.unreached.push(process); // two cannot be counted in one slot
        } else {
            self.add(process);
        }
    }

    /// Folds the counters of the process `id` into the totals. Says which slot is to be cleared, and what others may still
    /// have open.
    pub fn bury(&mut self, id: u64) -> Option<(usize, Vec<Orphan>)> {
        self.unreached.retain(|process| process.id != id);
        let at = self.processes.iter().position(|process| process.id == id)?;
        let process = self.processes.swap_remove(at);
        self.slots.retain(|slot| *slot != process.slot);
        let orphans = self.cells.iter_mut().flat_map(|cell| cell.bury(process.slot)).collect();
        Some((process.slot, orphans))
    }

    /// Whether programs of it run, or somebody beside the configuration keeps it for some that are to come.
    pub fn has_somebody(&self) -> bool {
        let others = self.holders.iter().any(|holder| *holder != PERSISTENT);
        others || !self.processes.is_empty() || !self.unreached.is_empty()
    }

    /// Whether nobody needs it any more.
    pub fn is_over(&self) -> bool {
        self.holders.is_empty() && self.processes.is_empty() && self.unreached.is_empty()
    }

    /// Memory held beyond `limit` on the GPU where it is most.
    pub fn excess(&self, limit: Bytes) -> Bytes {
        Bytes(self.cells.iter().map(|cell| cell.held().0.saturating_sub(limit.0)).max().unwrap_or(0))
    }
}
