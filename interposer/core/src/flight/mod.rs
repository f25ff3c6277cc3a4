//! What is in flight: predicted work handed to the driver and not known to be done.
//!
//! Every so often a *mark* (an event) follows the work into its stream; a mark that has been reached says that
//! everything before it on that stream is done. Marks are looked at when the gate is asked, never waited for. The
//! return of the application's own synchronize calls says the same for nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_protocol::pages::ProcessSlot;
use weir_protocol::units::Nanos;

use crate::lock::Lock;

/// Streams told apart; more streams than that share books, which makes the count a little too small.
const BOOKS: usize = 64;

/// Marks outstanding at most: a stream that runs far ahead gets no more of them until some were reached.
const MARKS: usize = 256;

/// A stream as the driver's calls name it; [`Self::NOWHERE`] if nobody but its own launches may put a mark there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u64);

impl Place {
    /// A default stream (a mark in the legacy one would join all others), or a stream that is gone.
    pub const NOWHERE: Self = Self(u64::MAX);
}

/// One stream's (or a few streams') work, as ever-growing sums in nanoseconds.
#[derive(Debug)]
struct StreamBook {
    place: AtomicU64,
    submitted: AtomicU64,
    marked: AtomicU64,
    completed: AtomicU64,
}

/// A mark under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    event: u64,
    book: usize,
    value: u64,
}

/// The work of one process on one GPU. Events are the driver's handles, here mere numbers.
#[derive(Debug)]
pub struct Flight {
    books: [StreamBook; BOOKS],
    marks: Lock<Marks>,
}

#[derive(Debug, Default)]
struct Marks {
    under_way: VecDeque<Mark>,
    spare: Vec<u64>,
}

impl Default for Flight {
    fn default() -> Self {
        let closed = || StreamBook {
            place: AtomicU64::new(Place::NOWHERE.0),
            submitted: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            completed: AtomicU64::new(0),
        };
        Self { books: std::array::from_fn(|_| closed()), marks: Lock::default() }
    }
}

impl Flight {
    /// Adds events to the pool, from which marks are made.
    pub fn add_events(&self, events: impl IntoIterator<Item = u64>) {
        let mut marks = self.marks.lock();
        marks.spare.extend(events);
        let spare = marks.spare.len();
        marks.under_way.reserve(spare); // so that a mark never allocates
    }

    /// Forgets all events and all work: their context is gone.
    pub fn reset(&self, slot: &ProcessSlot) {
        let mut marks = self.marks.lock();
        *marks = Marks::default();
        (0..BOOKS)
            .for_each(|book| self.complete(book, self.books[book].submitted.load(Ordering::Relaxed), slot));
    }

    /// A run of launches begins on `stream`, a key that tells streams apart, which lies at `place`: it is alive now.
    pub fn opens(&self, stream: u64, place: Place) {
        self.books[Self::book(stream)].place.store(place.0, Ordering::Relaxed);
    }

    /// Counts `ns` of predicted work on `stream`; the stream may be gone by now.
    pub fn submitted(&self, stream: u64, ns: u64, slot: &ProcessSlot) {
        let book = &self.books[Self::book(stream)];
        // Relaxed throughout: sums for a decision that tolerates being a moment late; nothing hangs on them.
        book.submitted.fetch_add(ns, Ordering::Relaxed);
        slot.submitted_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Lets `record` put an event behind the work on `stream` if `interval` of it has gone by unmarked. Never
    /// waits: if another thread is at the marks, the next launch sees to it.
    pub fn mark(&self, stream: u64, interval: Nanos, record: impl FnOnce(u64) -> bool) {
        let index = Self::book(stream);
        let book = &self.books[index];
        let value = book.submitted.load(Ordering::Relaxed);
        if value.saturating_sub(book.marked.load(Ordering::Relaxed)) < interval.0.max(1) {
            return;
        }
        let Some(mut marks) = self.marks.try_lock() else { return };
        if marks.under_way.len() >= MARKS {
            return;
        }
        let Some(event) = marks.spare.pop() else { return };
        if record(event) {
            book.marked.store(value, Ordering::Relaxed);
            marks.under_way.push_back(Mark { event, book: index, value });
        } else {
            marks.spare.push(event);
        }
    }

    /// Lets `record` put an event behind all work that has none, on whatever stream: a launch is about to wait for
    /// what is in flight, so that must be seen to complete.
    pub fn mark_all(&self, mut record: impl FnMut(u64, Place) -> bool) {
        let Some(mut marks) = self.marks.try_lock() else { return };
        for (index, book) in self.books.iter().enumerate() {
            let value = book.submitted.load(Ordering::Relaxed);
            let seen = book.marked.load(Ordering::Relaxed).max(book.completed.load(Ordering::Relaxed));
            let place = Place(book.place.load(Ordering::Relaxed));
            if value <= seen || place == Place::NOWHERE || marks.under_way.len() >= MARKS {
                continue;
            }
            let Some(event) = marks.spare.pop() else { return };
            if record(event, place) {
                book.marked.store(value, Ordering::Relaxed);
                marks.under_way.push_back(Mark { event, book: index, value });
            } else {
                marks.spare.push(event);
            }
        }
    }

    /// The application is about to destroy `stream`: nothing of ours may go there any more. Its work is no longer
    /// waited for.
    pub fn stream_gone(&self, stream: u64, slot: &ProcessSlot) {
        let index = Self::book(stream);
        let _marks = self.marks.lock(); // nobody is putting a mark there now, and nobody will
        if self.books[index].place.load(Ordering::Relaxed) == stream {
            self.books[index].place.store(Place::NOWHERE.0, Ordering::Relaxed);
            self.complete(index, self.books[index].submitted.load(Ordering::Relaxed), slot);
        }
    }

    /// Asks `reached` about marks, oldest first, and counts the work before those that were reached as done. One
    /// slow stream does not hide the others: each is asked until its first mark that was not reached.
    pub fn harvest(&self, slot: &ProcessSlot, mut reached: impl FnMut(u64) -> bool) {
        let Some(mut marks) = self.marks.try_lock() else { return };
        let mut busy = 0u64; // bit per book: its oldest mark was not reached
        let mut at = 0;
        while let Some(&mark) = marks.under_way.get(at) {
            if busy & (1 << mark.book) != 0 || !reached(mark.event) {
                busy |= 1 << mark.book;
                at += 1;
                continue;
            }
            marks.under_way.remove(at);
            marks.spare.push(mark.event);
            self.complete(mark.book, mark.value, slot);
        }
    }

    /// Work submitted so far on `stream`, or on all streams: taken before the application synchronizes ...
    pub fn snapshot(&self, stream: Option<u64>) -> Snapshot {
        let mut values = [0; BOOKS];
        for (index, value) in values.iter_mut().enumerate() {
            if stream.is_none_or(|stream| Self::book(stream) == index) {
                *value = self.books[index].submitted.load(Ordering::Relaxed);
            }
        }
        Snapshot(values)
    }

    /// ... and known to be done once the call has returned.
    pub fn drained(&self, snapshot: &Snapshot, slot: &ProcessSlot) {
        for (index, value) in snapshot.0.iter().enumerate() {
            self.complete(index, *value, slot);
        }
    }

    fn complete(&self, book: usize, value: u64, slot: &ProcessSlot) {
        let before = self.books[book].completed.fetch_max(value, Ordering::Relaxed);
        if value > before {
            slot.completed_ns.fetch_add(value - before, Ordering::Relaxed);
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "a few low bits are all that is wanted")]
    fn book(stream: u64) -> usize {
        // Handles are addresses: the bits above the allocator's alignment tell streams apart.
        usize::from((stream >> 4) as u8 ^ (stream >> 12) as u8) % BOOKS
    }
}

/// What each stream had been given at one moment.
#[derive(Debug)]
pub struct Snapshot([u64; BOOKS]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::in_flight;

    const STREAM: u64 = 0x7f00_0000_1230;

    struct Process {
        flight: Flight,
        slot: Box<ProcessSlot>,
    }

    fn process() -> Process {
        let process =
            Process { flight: Flight::default(), slot: Box::new(zerocopy::FromZeros::new_zeroed()) };
        process.flight.add_events(1..=8);
        process.flight.opens(STREAM, Place(STREAM));
        process
    }

    impl Process {
        fn in_flight(&self) -> u64 {
            in_flight(&self.slot).0
        }
    }

    #[test]
    fn a_mark_that_was_reached_says_that_the_work_before_it_is_done() {
        let Process { flight, slot } = &process();
        flight.submitted(STREAM, 100, slot);
        flight.mark(STREAM, Nanos(100), |_| true);
        flight.submitted(STREAM, 50, slot);
        flight.mark(STREAM, Nanos(100), |_| panic!("50 ns are not worth a mark"));
        flight.harvest(slot, |_| false);
        assert_eq!(in_flight(slot), Nanos(150));
        flight.harvest(slot, |_| true);
        assert_eq!(in_flight(slot), Nanos(50));
        flight.mark_all(|_, place| place == Place(STREAM));
        flight.mark_all(|_, _| panic!("all work has its mark"));
        flight.harvest(slot, |_| true);
        assert_eq!(in_flight(slot), Nanos(0));
    }

    #[test]
    fn a_slow_stream_does_not_hide_a_drained_one() {
        let process = process();
        let other = STREAM + 0x40;
        for stream in [STREAM, other] {
            process.flight.submitted(stream, 100, &process.slot);
            process.flight.mark(stream, Nanos(1), |_| true);
        }
        let slow = std::cell::Cell::new(None);
        process.flight.harvest(&process.slot, |event| {
            let first = slow.get().is_none();
            slow.set(slow.get().or(Some(event)));
            !first
        });
        assert_eq!(process.in_flight(), 100);
    }

    #[test]
    fn the_applications_own_synchronize_drains_what_was_submitted_before_it() {
        let process = process();
        process.flight.submitted(STREAM, 100, &process.slot);
        let before = process.flight.snapshot(None);
        process.flight.submitted(STREAM, 30, &process.slot);
        process.flight.drained(&before, &process.slot);
        assert_eq!(process.in_flight(), 30);
        process.flight.drained(&before, &process.slot);
        assert_eq!(process.in_flight(), 30, "the same news twice counts once");
    }

    #[test]
    fn without_spare_events_work_goes_unmarked_and_a_failed_record_gives_its_event_back() {
        let process = process();
        for _ in 0..20 {
            process.flight.submitted(STREAM, 100, &process.slot);
            process.flight.mark(STREAM, Nanos(1), |_| true);
        }
        let mut asked = 0;
        process.flight.harvest(&process.slot, |_| {
            asked += 1;
            true
        });
        assert_eq!((asked, process.in_flight()), (8, 1_200));
        process.flight.mark(STREAM, Nanos(1), |_| false);
        process.flight.mark(STREAM, Nanos(1), |_| true);
        process.flight.reset(&process.slot);
        assert_eq!(process.in_flight(), 0);
        process.flight.submitted(STREAM, 100, &process.slot);
        process.flight.mark_all(|_, _| panic!("an event of a context that is gone"));
    }

    #[test]
    fn nothing_is_put_into_a_stream_that_is_gone() {
        let process = process();
        process.flight.submitted(STREAM, 100, &process.slot);
        process.flight.stream_gone(STREAM, &process.slot);
        assert_eq!(process.in_flight(), 0);
        process.flight.submitted(STREAM, 100, &process.slot); // launched before, booked only now
        process.flight.mark_all(|_, _| panic!("a mark in a destroyed stream"));
    }
}
