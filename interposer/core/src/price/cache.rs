//! The thread's own way from a signature to its estimate: direct-mapped, no lock, no allocation.

use std::cell::Cell;

use super::{Estimate, Signature};

/// Signatures that a thread keeps at hand. A training step of a large model has a few hundred.
const SLOTS: usize = 512;

/// A direct-mapped cache; two signatures that fall on the same slot take turns there.
pub struct Cache {
    slots: [Cell<Option<(Signature, &'static Estimate)>>; SLOTS],
}

impl Cache {
    /// An empty cache.
    pub const fn new() -> Self {
        Self { slots: [const { Cell::new(None) }; SLOTS] }
    }

    /// The estimate, if this thread has it at hand.
    #[inline]
    pub fn get(&self, signature: &Signature) -> Option<&'static Estimate> {
        match self.slot(signature)?.get() {
            Some((known, estimate)) if known == *signature => Some(estimate),
            _ => None,
        }
    }

    /// Keeps an estimate at hand.
    pub fn put(&self, signature: &Signature, estimate: &'static Estimate) {
        if let Some(slot) = self.slot(signature) {
            slot.set(Some((*signature, estimate)));
        }
    }

    /// Forgets everything: a handle may have been reused.
    pub fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.set(None));
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a few low bits are all that is wanted")]
    fn slot(&self, signature: &Signature) -> Option<&Cell<Option<(Signature, &'static Estimate)>>> {
        self.slots.get(signature.hash() as usize % SLOTS) // always in range; `get` keeps panics off this path
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}
