//! The thread's own way from a signature to its estimate: direct-mapped, no lock, no allocation. It counts the launches
//! of each signature on the way, for the meter.

use std::cell::Cell;
use std::ptr::null_mut;

use super::{Estimate, Parts, Signature};
use crate::ones::Ones;

/// Signatures that a thread keeps at hand. A training step of a large model has a few hundred.
const SLOTS: usize = 512;

/// A direct-mapped cache; two signatures that fall on the same slot take turns there.
///
/// It gets its slots with its first entry: a thread's own storage is cleared when the thread begins, in every program. And it
/// has no destructor: the owner [`Self::release`]s it.
pub struct Cache {
    slots: Cell<*mut Slots>, // null, or of a box
    disturbed: Cell<bool>,   // a count was lost: two signatures took turns
}

struct Slots {
    slots: [Slot; SLOTS],
    used: [Cell<u64>; SLOTS / 64], // bit per slot that ever had a signature: most programs have a few dozen
}

struct Slot {
    signature: Cell<Signature>,
    estimate: Cell<Option<&'static Estimate>>,
    count: Cell<u32>, // launches since the last `take`
}

impl Slot {
    const fn empty() -> Self {
        Self { signature: Cell::new(Signature::NONE), estimate: Cell::new(None), count: Cell::new(0) }
    }
}

impl Slots {
    const fn empty() -> Self {
        Self { slots: [const { Slot::empty() }; SLOTS], used: [const { Cell::new(0) }; SLOTS / 64] }
    }

    /// The slot of this signature has it, or one like it.
    fn use_for(&self, signature: &Signature) {
        let place = place(signature);
        if let Some(word) = self.used.get(place / 64) {
            word.set(word.get() | 1 << (place % 64));
        }
    }

    /// Slots that ever had a signature.
    fn used(&self) -> impl Iterator<Item = &Slot> {
        self.slots
            .chunks(64)
            .zip(&self.used)
            .flat_map(|(slots, used)| Ones(used.get()).filter_map(|at| slots.get(at)))
    }
}

/// Where a signature lies.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "a few low bits are all that is wanted")]
fn place(signature: &Signature) -> usize {
    signature.hash() as usize % SLOTS
}

/// A signature at hand.
#[derive(Clone, Copy)]
pub struct Hit<'a> {
    /// Its estimate.
    pub estimate: &'static Estimate,
    slot: &'a Slot,
}

impl Hit<'_> {
    /// Counts a launch of it.
    #[inline]
    pub fn count(&self) {
        self.slot.count.set(self.slot.count.get().wrapping_add(1));
    }
}

impl Cache {
    /// An empty cache.
    pub const fn new() -> Self {
        Self { slots: Cell::new(null_mut()), disturbed: Cell::new(false) }
    }

    /// Whether it has slots, to be released some day.
    pub fn has_slots(&self) -> bool {
        !self.slots.get().is_null()
    }

    /// Gives the slots back.
    ///
    /// # Safety
    /// No [`Hit`] of this cache is in use.
    pub unsafe fn release(&self) {
        let slots = self.slots.replace(null_mut());
        if !slots.is_null() {
            // SAFETY: of a box that `put` has made; by the caller's promise nobody looks at it any more.
            drop(unsafe { Box::from_raw(slots) });
        }
    }

    /// The signature, if this thread has it at hand.
    #[inline]
    pub fn get(&self, signature: &Signature) -> Option<Hit<'_>> {
        let slot = self.slot(signature)?;
        if slot.signature.get() != *signature {
            return None;
        }
        slot.estimate.get().map(|estimate| Hit { estimate, slot })
    }

    /// Keeps an estimate at hand.
    pub fn put(&self, signature: &Signature, estimate: &'static Estimate) {
        if !self.has_slots() {
            self.slots.set(Box::into_raw(Box::new(Slots::empty())));
        }
        if let Some(slot) = self.slot(signature) {
            slot.signature.set(*signature);
            slot.estimate.set(Some(estimate));
            self.slots().into_iter().for_each(|slots| slots.use_for(signature));
            self.disturbed.set(self.disturbed.get() || slot.count.replace(0) > 0);
        }
    }

    /// A launch was counted that did not happen: the counts say nothing.
    pub fn disturb(&self) {
        self.disturbed.set(true);
    }

    /// Takes the launches counted since the last call; empty if they are not all of them.
    pub fn take(&self, parts: &mut Parts) {
        parts.clear();
        let mut whole = !self.disturbed.replace(false);
        for slot in self.slots().into_iter().flat_map(Slots::used).filter(|slot| slot.count.get() > 0) {
            let count = slot.count.replace(0);
            whole = whole && slot.estimate.get().is_some_and(|estimate| parts.add(estimate, count));
        }
        if !whole {
            parts.clear();
        }
    }

    /// Forgets everything: a handle may have been reused.
    pub fn clear(&self) {
        for slot in self.slots().into_iter().flat_map(Slots::used) {
            slot.estimate.set(None);
            slot.count.set(0);
        }
        self.disturbed.set(false);
    }

    #[inline]
    fn slot(&self, signature: &Signature) -> Option<&Slot> {
        self.slots()?.slots.get(place(signature)) // always in range; `get` keeps panics off this path
    }

    #[inline]
    fn slots(&self) -> Option<&Slots> {
        // SAFETY: null, or of a box that `release` alone takes back.
        unsafe { self.slots.get().as_ref() }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate() -> &'static Estimate {
        Box::leak(Box::new(Estimate::guess(1)))
    }

    fn signature(grid: u32) -> Signature {
        Signature::of_kernel(1, [grid, 1, 1], [1, 1, 1], 0)
    }

    #[test]
    fn launches_are_counted_by_signature_and_taken_once() {
        let (cache, mut parts) = (Cache::new(), Parts::with_room());
        let (cheap, dear) = (signature(1), signature(2));
        cache.put(&cheap, Box::leak(Box::new(Estimate::told(10))));
        cache.put(&dear, Box::leak(Box::new(Estimate::told(1_000))));
        (0..3).for_each(|_| cache.get(&cheap).unwrap().count());
        cache.get(&dear).unwrap().count();
        cache.take(&mut parts);
        assert_eq!(parts.sum(), 1_030.0);
        cache.take(&mut parts);
        assert!(parts.is_empty());
    }

    #[test]
    fn counts_that_are_not_whole_are_not_given_out() {
        let (cache, mut parts) = (Cache::new(), Parts::with_room());
        cache.put(&signature(1), estimate());
        cache.get(&signature(1)).unwrap().count();
        cache.put(&signature(1), estimate()); // as another signature in the same place would
        cache.get(&signature(1)).unwrap().count();
        cache.take(&mut parts);
        assert!(parts.is_empty());
        cache.get(&signature(1)).unwrap().count();
        cache.take(&mut parts);
        assert!(!parts.is_empty(), "from then on they are whole again");
    }
}
