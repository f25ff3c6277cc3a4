//! The command ring: one producer (the client, under its own lock), one consumer (the broker).
//!
//! `tail` and `head` count commands from the beginning and never wrap in practice (2^64); a command lies at
//! its number modulo [`RING`]. The producer stays at most `RING` ahead. A client that breaks this harms only
//! itself: the consumer takes at most `RING` commands at a time and checks every word.
//!
//! The broker sleeps in two depths. *Nap* (at most a millisecond, the GPU is busy): commands need not wake
//! it, since each carries its submission time and the model is advanced to that time before it takes the
//! command; only who waits for something rings. *Sleep* (nothing to do): any command rings.
#![allow(
    clippy::cast_possible_truncation,
    reason = "places in the ring, reduced modulo its length first; the project is for 64-bit machines"
)]

use std::sync::atomic::{Ordering, fence};

use crate::command::Command;
use crate::page::{Page, RING};

/// The broker is at work and will look at the ring again before it sleeps.
pub const AWAKE: u32 = 0;
/// The broker wakes by itself within a millisecond.
pub const NAP: u32 = 1;
/// The broker wakes for the bell alone.
pub const SLEEP: u32 = 2;

impl Page {
    /// Client: whether the ring has a free place. Call under the producer's lock.
    pub fn has_room(&self) -> bool {
        // Acquire: the broker has read a slot before it moved `head` past it, so writing there is safe.
        let head = self.head.0.load(Ordering::Acquire);
        // Relaxed: only this side writes `tail`.
        self.tail.0.load(Ordering::Relaxed).wrapping_sub(head) < RING as u64
    }

    /// Client: appends a command. Call under the producer's lock, after [`Page::has_room`].
    #[inline]
    pub fn push(&self, command: &Command) {
        // Relaxed: only this side writes `tail`, and the words are published by it below.
        let tail = self.tail.0.load(Ordering::Relaxed);
        let slot = &self.ring[(tail % RING as u64) as usize];
        for (place, word) in slot.iter().zip(command.encode()) {
            place.store(word, Ordering::Relaxed);
        }
        // SeqCst: who sees the new tail sees the words, and for everybody it stands before this thread's next look
        // at `sleep`. A swap is both at half the price of a store and a fence.
        self.tail.0.swap(tail.wrapping_add(1), Ordering::SeqCst);
    }

    /// Client: whether the bell must be rung for what was just pushed: only in its sleep does the broker need it.
    #[must_use]
    pub fn must_ring_for_push(&self) -> bool {
        // SeqCst: behind the swap in `push`, as the broker's look at `tail` stands behind the store of its depth,
        // with a fence between them: one of the two sees the other.
        self.sleep.0.load(Ordering::SeqCst) >= SLEEP && self.take_bell(SLEEP)
    }

    /// Client: whether the bell must be rung for somebody who waits: out of a nap, too.
    #[must_use]
    pub fn must_ring_for_wait(&self) -> bool {
        // SeqCst: the store of the wait stands before this load for everybody, as above.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        self.sleep.0.load(Ordering::Relaxed) >= NAP && self.take_bell(NAP)
    }

    /// Lets one of many callers ring.
    #[cold]
    fn take_bell(&self, depth: u32) -> bool {
        self.sleep.0.swap(AWAKE, Ordering::Relaxed) >= depth
    }

    /// Broker: takes up to `most` commands, `None` for words that are no command.
    pub fn take(&self, most: usize, mut each: impl FnMut(Option<Command>)) -> usize {
        // Acquire: pairs with the release in `push`.
        let tail = self.tail.0.load(Ordering::Acquire);
        // Relaxed: only this side ought to write it; a client that does only loses its own commands.
        let head = self.head.0.load(Ordering::Relaxed);
        // A tail out of range is a hostile one: at most one ring of commands is read all the same.
        let count = tail.wrapping_sub(head).min(RING as u64).min(most as u64);
        for number in 0..count {
            let slot = &self.ring[(head.wrapping_add(number) % RING as u64) as usize];
            // Relaxed: published by `tail`.
            each(Command::decode(std::array::from_fn(|word| slot[word].load(Ordering::Relaxed))));
        }
        // Release: the slots have been read before the client sees them free.
        self.head.0.store(head.wrapping_add(count), Ordering::Release);
        count as usize
    }

    /// Broker: whether commands lie in the ring.
    pub fn has_commands(&self) -> bool {
        // Acquire: as in `take`. Equality alone: a tail that went backwards is a hostile one and reads as "yes".
        self.tail.0.load(Ordering::Acquire) != self.head.0.load(Ordering::Relaxed)
    }

    /// Broker: says how deep it is about to sleep. It looks once more at rings and waits before it does.
    pub fn fall_asleep(&self, depth: u32) {
        // Relaxed: the broker fences (SeqCst) after it has stored all depths and before its last look.
        self.sleep.0.store(depth, Ordering::Relaxed);
    }

    /// Broker: commands of this stream up to `sequence` are complete.
    pub fn complete(&self, stream: usize, sequence: u64) {
        let Some(word) = self.completed.get(stream) else { return };
        // Relaxed load: only the broker writes it. Two streams may follow each other in one slot and the later
        // one's first completion come earlier: the word never goes back.
        if word.load(Ordering::Relaxed) < sequence {
            // Release: event stamps stored before are seen by who sees the completion.
            word.store(sequence, Ordering::Release);
        }
    }

    /// Broker: an event's record was reached at `ns`.
    pub fn stamp(&self, slot: usize, record: u32, ns: u64) {
        let Some(stamp) = self.stamps.get(slot) else { return };
        // Relaxed, then release: who sees the record sees its time (or that of a later record, as on a GPU).
        stamp.ns.store(ns, Ordering::Relaxed);
        stamp.record.store(u64::from(record), Ordering::Release);
    }
}
