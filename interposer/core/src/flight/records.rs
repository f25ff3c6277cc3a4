//! Events of the application's own: each says, once it was reached, that what lay before its last record is done.
//!
//! A program that waits for an event (vLLM does, after each step) tells us for nothing that its work is done, as one does
//! that waits for a stream.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_protocol::pages::ProcessSlot;

use super::Flight;

/// Events remembered. Of two that fall on one place the younger record stays.
const PLACES: usize = 256;

/// One event's last record. A reader that meets a writer may mix two records: the sequence tells.
#[derive(Debug, Default)]
struct Place {
    sequence: AtomicU64, // odd while it is being written
    event: AtomicU64,
    book: AtomicU64,
    work: AtomicU64,
    copies: AtomicU64,
}

/// The last records of the application's events.
#[derive(Debug)]
pub(super) struct Records([Place; PLACES]);

impl Default for Records {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Place::default()))
    }
}

impl Records {
    /// `event` was recorded in the stream of `book` behind so much work and copies.
    pub fn note(&self, event: u64, book: usize, (work, copies): (u64, u64)) {
        let place = &self.0[place(event)];
        let sequence = place.sequence.load(Ordering::Relaxed);
        let taken = sequence.is_multiple_of(2)
            && place
                .sequence
                .compare_exchange(sequence, sequence + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !taken {
            return; // another thread is writing here: this record is not remembered
        }
        // Release throughout: a reader that sees one of them sees the odd sequence before it.
        place.event.store(event, Ordering::Release);
        place.book.store(book as u64, Ordering::Release);
        place.work.store(work, Ordering::Release);
        place.copies.store(copies, Ordering::Release);
        place.sequence.store(sequence + 2, Ordering::Release);
    }

    /// `event` stands for nothing any more.
    pub fn forget(&self, event: u64) {
        if self.of(event).is_some() {
            self.note(event, 0, (0, 0));
        }
    }

    /// The book of an event's last record, and the work and copies before it.
    pub fn of(&self, event: u64) -> Option<(usize, (u64, u64))> {
        let place = &self.0[place(event)];
        let before = place.sequence.load(Ordering::Acquire);
        let [known, book, work, copies] =
            [&place.event, &place.book, &place.work, &place.copies].map(|word| word.load(Ordering::Acquire));
        let whole = before.is_multiple_of(2) && place.sequence.load(Ordering::Relaxed) == before;
        (whole && before > 0 && known == event).then(|| (usize::try_from(book).unwrap_or(0), (work, copies)))
    }
}

impl Flight {
    /// The application records an event of its own in `stream`, behind what that has been given so far.
    pub fn recorded(&self, event: u64, stream: u64) {
        let book = self.find(stream);
        let given = book.map_or((0, 0), |index| self.books[index].both());
        self.records.note(event, book.unwrap_or(0), given);
    }

    /// An event of the application's is gone.
    pub fn event_gone(&self, event: u64) {
        self.records.forget(event);
    }

    /// An event of the application's was reached: what had been given to its stream by then is done.
    pub fn event_reached(&self, event: u64, slot: &ProcessSlot) {
        if let Some((book, (work, copies))) = self.records.of(event) {
            let given = self.books[book].both();
            self.complete(book, (work.min(given.0), copies.min(given.1)), slot);
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a few low bits are all that is wanted")]
fn place(event: u64) -> usize {
    (event >> 4 ^ event >> 12) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stands_for_its_last_record() {
        let records = Records::default();
        assert_eq!(records.of(0), None);
        records.note(0x10, 3, (100, 7));
        records.note(0x20, 4, (200, 7));
        records.note(0x10, 5, (300, 7));
        assert_eq!(
            (records.of(0x10), records.of(0x20), records.of(0x30)),
            (Some((5, (300, 7))), Some((4, (200, 7))), None)
        );
    }

    #[test]
    fn an_event_that_is_gone_says_nothing_is_done() {
        let records = Records::default();
        records.note(0x10, 3, (100, 7));
        records.forget(0x10);
        assert_eq!(records.of(0x10), Some((0, (0, 0))));
    }

    #[test]
    fn two_events_on_one_place_are_not_taken_for_each_other() {
        let records = Records::default();
        let twin = (0x20..).step_by(0x10).find(|event| place(*event) == place(0x10)).unwrap();
        records.note(0x10, 3, (100, 7));
        records.note(twin, 4, (200, 7));
        assert_eq!((records.of(0x10), records.of(twin)), (None, Some((4, (200, 7)))));
    }
}
