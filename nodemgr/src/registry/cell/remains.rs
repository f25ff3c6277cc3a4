//! What processes leave behind on one GPU: counters, slots, and memory that others have open.

use std::sync::atomic::Ordering;

use super::{Cell, add_work};
use crate::registry::Counters;
use crate::registry::heirs::{self, Orphan};

impl Cell {
    /// Keeps what a dead process did. Says what it was charged for and others may still have open.
    pub fn bury(&mut self, slot: usize) -> Vec<Orphan> {
        self.pages.activity.forget(slot);
        self.pages.activity.turn.reset();
        let Some(slot) = self.pages.usage.slots.get(slot) else { return Vec::new() };
        let counters = Counters::of(slot);
        self.dead_charged_ns = self.dead_charged_ns.saturating_add(counters.charged_ns);
        self.dead.add(&counters);
        self.dead_work = add_work(self.dead_work, slot);
        heirs::orphans(self.gpu, slot)
    }

    /// Frees the slot of a process that was buried.
    pub fn clear(&self, slot: usize) {
        if let Some(slot) = self.pages.usage.slots.get(slot) {
            slot.clear();
        }
    }

    /// What stands in a slot that is nobody's: an earlier manager died before it had cleared it. Says what others may still
    /// have open of it.
    pub fn remains(&self, slot: usize) -> Option<Vec<Orphan>> {
        let page = self.pages.usage.slots.get(slot)?;
        let words = [&page.held_bytes, &page.tentative_bytes];
        let left = words.iter().any(|word| word.load(Ordering::SeqCst) != 0)
            || page.pid.load(Ordering::Relaxed) != 0;
        left.then(|| heirs::orphans(self.gpu, page))
    }

    /// What its living processes have left since the last call to whoever else has it open; nothing if they have neither
    /// left nor opened any memory.
    pub fn take_left(&mut self) -> Option<Vec<Orphan>> {
        let now = self.pages.usage.left.load(Ordering::Acquire); // behind the entries that it counts
        let before = std::mem::replace(&mut self.left, now);
        (before != now).then(|| heirs::left(self.gpu, &self.pages.usage))
    }
}
