//! What a tenant's pages tell of it: what it holds, whether it has called, and why no checkpoint can be taken of it.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use weir_protocol::pages::{MemoryKind, ProcessSlot};
use weir_protocol::units::Bytes;

use super::{Calls, Stand};
use crate::control::schema::ClassName;
use crate::park::Member;
use crate::registry::{Cell, Process, Tenant};

impl Tenant {
    /// Whether its memory is on the host.
    pub fn is_parked(&self) -> bool {
        self.park.stand == Stand::Parked
    }

    /// Its memory on all its GPUs, wherever it is now.
    pub(super) fn memory(&self) -> Bytes {
        Bytes(self.cells.iter().fold(0, |sum: u64, cell| sum.saturating_add(cell.held().0)))
    }

    /// Whether nothing of it has moved for a while.
    pub(super) fn is_asleep(&self) -> bool {
        self.cells.iter().all(Cell::is_asleep)
    }

    /// What its processes have called so far.
    pub(super) fn calls(&self) -> Vec<Calls> {
        self.processes.iter().map(|process| self.calls_of(process)).collect()
    }

    fn calls_of(&self, process: &Process) -> Calls {
        let calls = self.slots_of(process).map(ProcessSlot::calls).fold(0, u64::wrapping_add);
        Calls { process: process.id, knocks: self.knocks_of(process), calls }
    }

    fn knocks_of(&self, process: &Process) -> u32 {
        self.slots_of(process).next().map_or(0, |slot| slot.knocks.load(Acquire))
    }

    fn slots_of(&self, process: &Process) -> impl Iterator<Item = &ProcessSlot> {
        self.cells.iter().filter_map(|cell| cell.pages.usage.slots.get(process.slot))
    }

    /// Whether a process of it has knocked since it was parked, or is new: one load for each.
    pub(super) fn has_knocked(&self) -> bool {
        let same = |process: &Process| {
            let known = self.park.calls.iter().find(|known| known.process == process.id);
            known.is_some_and(|known| known.knocks == self.knocks_of(process))
        };
        !self.processes.iter().all(same)
    }

    /// Whether a process of it has called in any way since it was parked: some cache misses for each.
    pub(super) fn has_called(&self) -> bool {
        !self.processes.iter().all(|process| self.park.calls.contains(&self.calls_of(process)))
    }

    /// Its processes, as the driver knows them.
    pub(super) fn members(&self) -> Vec<Member> {
        self.processes.iter().map(|process| Member { pid: process.pid, birth: process.birth }).collect()
    }

    /// Why no checkpoint can be taken of it, as far as its pages tell, and what to do (gpu-truths, rule 15).
    pub(super) fn obstacle(&self) -> Option<(&'static str, &'static str)> {
        let pages = || self.cells.iter().map(|cell| &cell.pages.usage);
        let slots = || pages().flat_map(|page| self.slots.iter().filter_map(|slot| page.slots.get(*slot)));
        // Relaxed: figures, each whole by itself.
        let holds = |kind: MemoryKind| slots().any(|slot| slot.by_kind[kind as usize].load(Relaxed) > 0);
        let crosses = || slots().any(|slot| slot.shares.iter().any(|share| share.read().is_some()));
        Some(match () {
            () if self.class == ClassName::Primary => {
                ("is a primary, and those are never parked", "start it with another --class")
            }
            () if self.park.held => {
                ("is held by somebody else's checkpoint", "let it be restored and unlocked first")
            }
            () if self.processes.is_empty() => ("has no process", "there is nothing to be parked"),
            () if !self.unreached.is_empty() => {
                ("has processes that could not be taken over", "end those first")
            }
            () if holds(MemoryKind::Managed) => {
                ("holds managed memory", "no driver takes a checkpoint of that")
            }
            () if crosses() => {
                ("has memory that crosses processes", "drivers before 610 take no checkpoint of that")
            }
            () if self.cells.len() > 1 && holds(MemoryKind::Virtual) => (
                "has several GPUs and virtual memory, which may be a multicast object",
                "a driver may hang in a checkpoint of that",
            ),
            () => return None,
        })
    }
}
