//! The thread's own way from a signature to its estimate: a few places for each, no lock, no allocation. It counts the launches
//! of each signature on the way, for the meter.

use std::cell::Cell;
use std::ptr::null_mut;

use super::{Estimate, Parts, Signature};
use crate::ones::Ones;

/// Sets of signatures, by their hash, and places in each: a training step of a large model has a few hundred signatures, of which three in
/// a thousand find their set full. With half of the sets it is three in a hundred, which then go the long way.
const SETS: usize = 512;
const WAYS: usize = 4;

/// A set-associative cache; of more signatures than a set has places one makes room for another.
///
/// It gets its slots with its first entry: a thread's own storage is cleared when the thread begins, in every program. And it
/// has no destructor: the owner [`Self::release`]s it.
pub struct Cache {
    slots: Cell<*mut Slots>, // null, or of a box
    disturbed: Cell<bool>,   // a count was lost: a signature made room for another
}

struct Slots {
    sets: [[Slot; WAYS]; SETS],
    used: [Cell<u64>; SETS / 64], // bit per set that ever had a signature: most programs have a few dozen
    next: Cell<usize>,            // which way makes room next, in whichever set
}

struct Slot {
    signature: Cell<Signature>,
    estimate: Cell<Option<&'static Estimate>>,
    count: Cell<u32>, // launches since the last `take`
}

impl Slots {
    /// None, in memory that is cleared where it lies: a fiber's stack may be smaller than they are.
    fn none() -> Box<Self> {
        // SAFETY: all zeroes are `Signature::NONE`, no estimate and no count.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// A place for this signature: its own, or one that is free, or one that has to make room.
    fn place_for(&self, signature: &Signature) -> Option<&Slot> {
        let at = set_of(signature);
        let (set, word) = (self.sets.get(at)?, self.used.get(at / 64)?);
        word.set(word.get() | 1 << (at % 64));
        let own = set.iter().find(|slot| slot.signature.get() == *signature);
        let free = || set.iter().find(|slot| slot.estimate.get().is_none());
        own.or_else(free).or_else(|| {
            self.next.set((self.next.get() + 1) % WAYS);
            set.get(self.next.get())
        })
    }

    /// Slots of sets that ever had a signature.
    fn used(&self) -> impl Iterator<Item = &Slot> {
        let of_word = |(sets, used): (_, &Cell<u64>)| -> (&[[Slot; WAYS]], u64) { (sets, used.get()) };
        let words = self.sets.chunks(64).zip(&self.used).map(of_word);
        words.flat_map(|(sets, used)| Ones(used).filter_map(|at| sets.get(at))).flatten()
    }
}

/// The set of a signature.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "a few low bits are all that is wanted")]
fn set_of(signature: &Signature) -> usize {
    signature.hash() as usize % SETS
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
        let set = self.slots()?.sets.get(set_of(signature))?; // always in range: this keeps panics off this path
        let slot = set.iter().find(|slot| slot.signature.get() == *signature)?;
        slot.estimate.get().map(|estimate| Hit { estimate, slot })
    }

    /// Keeps an estimate at hand.
    pub fn put(&self, signature: &Signature, estimate: &'static Estimate) {
        if !self.has_slots() {
            self.slots.set(Box::into_raw(Slots::none()));
        }
        if let Some(slot) = self.slots().and_then(|slots| slots.place_for(signature)) {
            slot.signature.set(*signature);
            slot.estimate.set(Some(estimate));
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
    fn a_few_hundred_signatures_stay_at_hand_and_more_than_there_are_places_make_room() {
        let cache = Cache::new();
        let at_hand = |of: u32| (1..=of).filter(|grid| cache.get(&signature(*grid)).is_some()).count();
        (1..=300).for_each(|grid| cache.put(&signature(grid), estimate()));
        assert_eq!(at_hand(300), 300);
        (1..=10_000).for_each(|grid| cache.put(&signature(grid), estimate()));
        assert!((1_900..=SETS * WAYS).contains(&at_hand(10_000)), "{}", at_hand(10_000));
        assert!(cache.get(&signature(10_000)).is_some(), "the last one has its place");
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
