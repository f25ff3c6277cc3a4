//! Which book is a stream's: a table with open addressing, whose keys are claimed and given up without a lock.

use std::sync::atomic::Ordering;

use super::{BOOKS, FREE, Flight};
use crate::ones::Ones;

/// Places in which a stream's book is looked for.
pub(super) const PROBES: usize = 8;

impl Flight {
    /// Whether `stream` has a book of its own here.
    pub fn knows(&self, stream: u64) -> bool {
        probes(stream).any(|index| self.books[index].stream.load(Ordering::Relaxed) == stream)
    }

    /// Books that ever were somebody's: most programs have a few streams.
    pub(super) fn in_use(&self) -> impl Iterator<Item = usize> + use<> {
        Ones(self.used.load(Ordering::Relaxed))
    }

    /// The stream's book, if it has one.
    pub(super) fn find(&self, stream: u64) -> Option<usize> {
        let key = |index: &usize| self.books[*index].stream.load(Ordering::Relaxed);
        if let Some(own) = probes(stream).find(|index| key(index) == stream) {
            return Some(own);
        }
        // All places taken: it shares the first one.
        let crowded = probes(stream).all(|index| key(&index) != FREE);
        if crowded { probes(stream).next() } else { None }
    }

    /// The stream's book; a free one becomes its own.
    pub(super) fn claim(&self, stream: u64) -> usize {
        let (free, own) = (FREE, |index: &usize| {
            let key = &self.books[*index].stream;
            key.load(Ordering::Relaxed) == stream
        });
        if let Some(index) = probes(stream).find(own) {
            return index;
        }
        let take = |index: &usize| {
            let key = &self.books[*index].stream;
            key.compare_exchange(free, stream, Ordering::Relaxed, Ordering::Relaxed).is_ok() || own(index)
        };
        probes(stream).find(take).or_else(|| probes(stream).next()).unwrap_or(0)
    }
}

/// Where a stream's book may be. Handles are addresses: the bits above the allocator's alignment tell them apart.
#[allow(clippy::cast_possible_truncation, reason = "a few low bits are all that is wanted")]
fn probes(stream: u64) -> impl Iterator<Item = usize> {
    let first = usize::from((stream >> 4) as u8 ^ (stream >> 12) as u8);
    (0..PROBES).map(move |n| (first + n) % BOOKS)
}
