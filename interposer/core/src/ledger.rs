//! The ledger: which handle holds how much memory, of which kind, on which GPU.
//!
//! The sums stand on the usage page, where other processes see them; the ledger remembers what each handle
//! contributed, so that a free gives back exactly that, and the free of a stranger's pointer gives back nothing.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::Ordering;

use weir_protocol::pages::{MemoryKind, ProcessSlot, UsagePage};
use weir_protocol::units::Bytes;

use crate::lock::Lock;
use crate::pool::Pool;

/// What a handle belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A context, by its handle: it dies with it.
    Context(u64),
    /// A pool, which is charged for it.
    Pool(&'static Pool),
}

/// What a handle holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How much.
    pub bytes: Bytes,
    /// Of which kind.
    pub kind: MemoryKind,
    /// On which GPU, as an index into the tenant's GPUs.
    pub gpu: usize,
    /// What it belongs to.
    pub owner: Owner,
}

const SHARDS: usize = 16;

/// Handles are addresses or pointers: their low bits say little, so the hash takes the high half of a product
/// with 2^64 / golden ratio (Fibonacci hashing).
#[derive(Clone, Copy, Debug, Default)]
pub struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte) ^ self.0);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_right(32);
    }
}

type Shard = Lock<HashMap<u64, Entry, BuildHasherDefault<HandleHasher>>>;

/// All handles of one process.
#[derive(Debug, Default)]
pub struct Ledger {
    shards: [Shard; SHARDS],
}

impl Ledger {
    /// Remembers what `handle` holds, and returns what it held before: the driver has handed it out anew, so that is
    /// gone.
    pub fn insert(&self, handle: u64, entry: Entry) -> Option<Entry> {
        self.shard(handle).lock().insert(handle, entry)
    }

    /// Forgets `handle` and says what it held; `None` for a handle that was never charged.
    pub fn remove(&self, handle: u64) -> Option<Entry> {
        self.shard(handle).lock().remove(&handle)
    }

    /// Forgets all that dies with `context` and hands it out.
    pub fn remove_of_context(&self, context: u64) -> Vec<(u64, Entry)> {
        let mut gone = Vec::new();
        for shard in &self.shards {
            gone.extend(shard.lock().extract_if(|_, entry| entry.owner == Owner::Context(context)));
        }
        gone
    }

    /// What `handle` holds.
    pub fn get(&self, handle: u64) -> Option<Entry> {
        self.shard(handle).lock().get(&handle).copied()
    }

    #[allow(clippy::cast_possible_truncation, reason = "the remainder is below 16")]
    fn shard(&self, handle: u64) -> &Shard {
        let mut hasher = HandleHasher::default();
        hasher.write_u64(handle);
        // In range: the remainder of a division by the number of shards.
        &self.shards[(hasher.finish() % SHARDS as u64) as usize]
    }
}

/// A reservation: charged, and not yet confirmed by the driver. Dropped, it gives everything back; a panic or a
/// refusal between reserve and commit can leave nothing charged.
pub struct Reservation<'a> {
    slot: &'a ProcessSlot,
    bytes: Bytes,
    kind: MemoryKind,
}

impl<'a> Reservation<'a> {
    /// Charges `bytes` to the process in `slot` if the tenant stays within `limit`.
    pub fn take(
        usage: &'a UsagePage,
        slot: usize,
        kind: MemoryKind,
        bytes: Bytes,
        limit: Bytes,
    ) -> Option<Self> {
        let own = usage.slots.get(slot)?;
        if !usage.reserve(slot, bytes, limit) {
            return None;
        }
        // Relaxed: the words by kind are for people to read; the limit binds on the sum alone.
        own.by_kind[kind as usize].fetch_add(bytes.0, Ordering::Relaxed);
        Some(Self { slot: own, bytes, kind })
    }

    /// The driver said yes: the charge stays until the handle is freed.
    pub fn commit(self) -> Bytes {
        let bytes = self.bytes;
        std::mem::forget(self);
        bytes
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        give_back(self.slot, self.kind, self.bytes);
    }
}

/// Charges what is held already and can be refused no more, whatever the limit.
pub fn book(slot: &ProcessSlot, kind: MemoryKind, bytes: Bytes) {
    slot.by_kind[kind as usize].fetch_add(bytes.0, Ordering::Relaxed);
    slot.book(bytes);
}

/// Gives back what a freed handle held.
pub fn give_back(slot: &ProcessSlot, kind: MemoryKind, bytes: Bytes) {
    slot.by_kind[kind as usize].fetch_sub(bytes.0, Ordering::Relaxed);
    slot.release(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Bytes = Bytes(100);

    fn usage() -> Box<UsagePage> {
        Box::new(zerocopy::FromZeros::new_zeroed())
    }

    #[test]
    fn a_reservation_that_is_not_committed_leaves_no_trace() {
        let usage = usage();
        drop(Reservation::take(&usage, 0, MemoryKind::Plain, Bytes(70), LIMIT));
        assert_eq!(usage.held(), Bytes(0));
        assert_eq!(usage.slots[0].by_kind[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_refusal_charges_nothing() {
        let usage = usage();
        Reservation::take(&usage, 0, MemoryKind::Plain, Bytes(70), LIMIT).map(Reservation::commit).unwrap();
        assert!(Reservation::take(&usage, 1, MemoryKind::Array, Bytes(31), LIMIT).is_none());
        assert_eq!(usage.held(), Bytes(70));
    }

    #[test]
    fn what_is_held_already_is_charged_whatever_the_limit() {
        let usage = usage();
        book(&usage.slots[0], MemoryKind::Context, Bytes(400));
        assert_eq!(usage.held(), Bytes(400));
        assert!(Reservation::take(&usage, 0, MemoryKind::Plain, Bytes(1), LIMIT).is_none());
        give_back(&usage.slots[0], MemoryKind::Context, Bytes(400));
        assert_eq!(usage.held(), Bytes(0));
    }

    #[test]
    fn a_free_gives_back_what_the_handle_held_and_a_strangers_free_nothing() {
        let (usage, ledger) = (usage(), Ledger::default());
        let bytes = Reservation::take(&usage, 0, MemoryKind::Plain, Bytes(40), LIMIT)
            .map(Reservation::commit)
            .unwrap();
        ledger.insert(0x7000, Entry { bytes, kind: MemoryKind::Plain, gpu: 0, owner: Owner::Context(1) });
        assert_eq!(ledger.remove(0x8000), None);
        let entry = ledger.remove(0x7000).unwrap();
        give_back(&usage.slots[0], entry.kind, entry.bytes);
        assert_eq!(usage.held(), Bytes(0));
        assert_eq!(ledger.remove(0x7000), None, "a second free of the same pointer gives nothing back");
    }

    #[test]
    fn what_dies_with_a_context_is_forgotten_and_the_rest_stays() {
        let ledger = Ledger::default();
        for handle in 1..=4 {
            let owner = Owner::Context(handle % 2);
            let entry = Entry { bytes: Bytes(handle), kind: MemoryKind::Plain, gpu: 0, owner };
            ledger.insert(handle, entry);
        }
        let gone: u64 = ledger.remove_of_context(1).iter().map(|(_, entry)| entry.bytes.0).sum();
        assert_eq!(gone, 1 + 3);
        assert!(ledger.get(2).is_some() && ledger.get(3).is_none());
    }
}
