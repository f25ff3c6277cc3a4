//! What is in flight: predicted work handed to the driver and not known to be done.
//!
//! Every so often a *mark* (an event) follows the work into its stream; a mark that has been reached says that
//! everything before it on that stream is done, and when. Marks are looked at when the gate is asked, never waited for.
//! The return of the application's own synchronize calls says the same for nothing. What the marks say of the time that
//! work took goes to the meter (`marks`).

mod book;
mod horizon;
mod marks;

use std::sync::atomic::{AtomicU64, Ordering};

use weir_protocol::pages::{CopyWay, ProcessSlot};
use weir_protocol::units::Nanos;

use self::book::StreamBook;
use self::marks::{Look, Marks};
use crate::copy::{CopyPrices, ENGINES};
use crate::lock::Lock;
use crate::price::Parts;
use crate::stall::Span;

/// Streams told apart; more streams than that share books, which makes the count a little too small.
const BOOKS: usize = 64;

/// Places in which a stream's book is looked for.
const PROBES: usize = 8;

/// The book is nobody's. No stream has this key: it would be an address beyond user space.
const FREE: u64 = u64::MAX;

/// The driver and the clock, as the marks need them. Events are the driver's handles, here mere numbers.
pub trait Driver {
    /// Puts an event into the stream at `place`; says whether the driver agreed.
    fn record(&mut self, event: u64, place: Place) -> bool;
    /// Whether an event was reached.
    fn reached(&mut self, event: u64) -> bool;
    /// Nanoseconds from one event to another, both reached; negative if they were the other way round.
    fn elapsed(&mut self, from: u64, to: u64) -> Option<f64>;
    /// The processor's clock.
    fn now(&mut self) -> Nanos;
    /// What the neighbours on the GPU have been up to: the same number twice means that none of them had work there in
    /// between. `None`: one has work there now, or nobody can tell.
    fn neighbours(&mut self) -> Option<u64>;
    /// The launches for which `charged` nanoseconds were charged on `stream` since its last mark, if they are known.
    fn launches(&mut self, stream: u64, charged: u64, parts: &mut Parts);
    /// The processor's time went to this, as far as the GPU goes.
    fn spent(&mut self, span: Span);
}

/// When a mark is worth its cost.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// So much work has gone by unmarked ...
    pub work: Nanos,
    /// ... and so much time since the stream's last mark.
    pub time: Nanos,
    /// Events that are left to marks of more weight.
    pub spare: usize,
}

/// What marks that were reached came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settled {
    /// To be charged on top of what was charged for the work; negative: to be given back.
    pub correction_ns: i64,
    /// Part of the work that was measured: what it took.
    pub measured_ns: u64,
    /// To be added to the time of copies, by way, on top of what was predicted for them.
    pub copies_ns: [i64; ENGINES],
}

/// A stream as the driver's calls name it; [`Self::NOWHERE`] if nobody but its own launches may put a mark there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u64);

impl Place {
    /// A default stream (a mark in the legacy one would join all others), or a stream that is gone.
    pub const NOWHERE: Self = Self(u64::MAX);
    /// The stream of the launch at hand, whatever it is.
    pub const HERE: Self = Self(u64::MAX - 1);
}

/// The work of one process on one GPU, in one context.
#[derive(Debug)]
pub struct Flight {
    books: [StreamBook; BOOKS],
    used: AtomicU64, // bit per book that ever was somebody's
    marks: Lock<Marks>,
    copies: &'static CopyPrices,
}

impl Default for Flight {
    fn default() -> Self {
        let copies = CopyPrices::leak();
        let books = std::array::from_fn(|_| StreamBook::closed());
        Self { books, used: AtomicU64::new(0), marks: Lock::new(Marks::new(copies)), copies }
    }
}

impl Flight {
    /// Adds timing events to the pool, from which marks are made.
    pub fn add_events(&self, events: impl IntoIterator<Item = u64>) {
        self.marks.lock().add_events(events);
    }

    /// Forgets all events and all work: their context is gone.
    pub fn reset(&self, slot: &ProcessSlot) {
        let mut marks = self.marks.lock();
        *marks = Marks::new(self.copies);
        self.in_use().for_each(|book| self.complete(book, self.books[book].both(), slot));
    }

    /// A run of launches begins on `stream`, a key that tells streams apart, which lies at `place`: it is alive now.
    pub fn opens(&self, stream: u64, place: Place) {
        let index = self.claim(stream);
        self.used.fetch_or(1 << index, Ordering::Relaxed);
        let book = &self.books[index];
        book.place.store(place.0, Ordering::Relaxed);
    }

    /// Counts `ns` of predicted work on `stream`. If the stream is gone by now, nobody will see its end.
    pub fn submitted(&self, stream: u64, ns: u64, slot: &ProcessSlot) {
        let Some(index) = self.find(stream) else { return };
        // Relaxed throughout: sums for a decision that tolerates being a moment late; nothing hangs on them.
        self.books[index].submitted.fetch_add(ns, Ordering::Relaxed);
        slot.submitted_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts copies by an engine on `stream`, which has been opened; returns what they are expected to take, in
    /// nanoseconds. Nothing of it is SM time: they keep their stream busy, not the GPU.
    pub fn copied(&self, stream: u64, way: CopyWay, calls: u64, bytes: u64) -> u64 {
        let ns = self.copies.predict(way, calls, bytes);
        if let Some(index) = self.find(stream) {
            self.books[index].add_copies(way, calls, bytes, ns);
        }
        ns
    }

    /// What copies are expected to take.
    pub fn copy_prices(&self) -> &'static CopyPrices {
        self.copies
    }

    /// Of what was submitted on `stream`, `ns` exchange data with other GPUs.
    pub fn communicates(&self, stream: u64, ns: u64) {
        if let Some(index) = self.find(stream) {
            self.books[index].communicates(ns);
        }
    }

    /// Whether anything on `stream` is not known to be done.
    pub fn is_busy(&self, stream: u64) -> bool {
        self.find(stream).is_some_and(|index| self.books[index].done() < self.books[index].given())
    }

    /// Whether anything at all is not known to be done.
    pub fn is_any_busy(&self) -> bool {
        self.in_use().any(|book| self.books[book].done() < self.books[book].given())
    }

    /// Whether a stretch is under way on `stream` that began when the stream was idle: its end is worth a mark.
    pub fn wants_end(&self, stream: u64) -> bool {
        let index = self.find(stream);
        index.is_some_and(|index| self.marks.try_lock().is_some_and(|marks| marks.began_idle(index)))
    }

    /// Puts a mark behind the work on `stream` if one is due. Never waits: if another thread is at the marks, the next
    /// launch sees to it.
    pub fn mark(&self, stream: u64, due: Due, driver: &mut impl Driver) -> bool {
        let index = self.claim(stream);
        let book = &self.books[index];
        let value = book.given();
        if value.saturating_sub(book.marked.load(Ordering::Relaxed)) < due.work.0 {
            return false;
        }
        let Some(mut marks) = self.marks.try_lock() else { return false };
        let young = marks.recorded_at(index).is_some_and(|at| driver.now().since(at) < due.time);
        if young || marks.spare() <= due.spare {
            return false;
        }
        let value = book.value();
        let put = marks.put((index, stream, Place::HERE), value, driver);
        if put {
            book.marked.store(value.total(), Ordering::Relaxed);
        }
        put
    }

    /// Puts a mark behind all work that has none, on whatever stream: a launch is about to wait for what is in flight, so
    /// that must be seen to complete.
    pub fn mark_all(&self, driver: &mut impl Driver) {
        let Some(mut marks) = self.marks.try_lock() else { return };
        for (index, book) in self.books.iter().enumerate() {
            let seen = book.marked.load(Ordering::Relaxed).max(book.done());
            let place = Place(book.place.load(Ordering::Relaxed));
            if book.given() <= seen || place == Place::NOWHERE {
                continue;
            }
            let value = book.value();
            if marks.put((index, book.stream.load(Ordering::Relaxed), place), value, driver) {
                book.marked.store(value.total(), Ordering::Relaxed);
            }
        }
    }

    /// The launch behind a mark on an idle stream goes out now.
    pub fn launches(&self, stream: u64, now: Nanos) {
        if let (Some(index), Some(mut marks)) = (self.find(stream), self.marks.try_lock()) {
            marks.launches(index, now);
        }
    }

    /// Work stands still, perhaps a kernel that spins for a launch at the gate. How long it takes says what the gate did:
    /// learnt as its price it would make the gate more patient, and the next one still dearer.
    pub fn stood_still(&self) {
        if let Some(mut marks) = self.marks.try_lock() {
            marks.stood_still();
        }
    }

    /// The application is about to destroy `stream`: nothing of ours may go there any more. Its work is no longer
    /// waited for.
    pub fn stream_gone(&self, stream: u64, slot: &ProcessSlot) {
        let mut marks = self.marks.lock(); // nobody is putting a mark there now, and nobody will
        let Some(index) = self.find(stream) else { return };
        let book = &self.books[index];
        if book.stream.load(Ordering::Relaxed) == stream {
            book.place.store(Place::NOWHERE.0, Ordering::Relaxed);
            marks.forget(index);
            self.complete(index, book.both(), slot);
            book.stream.store(FREE, Ordering::Relaxed);
        }
    }

    /// Looks which marks were reached, counts the work before them as done, and says what it came to.
    pub fn harvest(&self, slot: &ProcessSlot, driver: &mut impl Driver) -> Settled {
        let mut settled = Settled::default();
        let Some(mut marks) = self.marks.try_lock() else { return settled };
        let mut look = Look::begin(driver);
        while let Some(reached) = marks.next_reached(&mut look, driver) {
            self.complete(reached.book, (reached.value.work, reached.value.copies.total_ns()), slot);
            settled.add(reached.stretch, reached.measured);
            settled.add_copies(reached.copies_ns);
        }
        settled
    }

    /// Work submitted so far on `stream`, or on all streams: taken before the application synchronizes ...
    pub fn snapshot(&self, stream: Option<u64>) -> Snapshot {
        let mut values = [(0, 0); BOOKS];
        let only = stream.map(|stream| self.find(stream));
        for (index, value) in values.iter_mut().enumerate() {
            if only.is_none_or(|only| only == Some(index)) {
                *value = self.books[index].both();
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

    fn complete(&self, book: usize, (work, copies): (u64, u64), slot: &ProcessSlot) {
        let before = self.books[book].completed.fetch_max(work, Ordering::Relaxed);
        if work > before {
            slot.completed_ns.fetch_add(work - before, Ordering::Relaxed);
        }
        if copies > 0 {
            self.books[book].copies_done(copies);
        }
    }

    /// Books that ever were somebody's: most programs have a few streams.
    fn in_use(&self) -> impl Iterator<Item = usize> {
        let used = self.used.load(Ordering::Relaxed);
        (0..BOOKS).filter(move |book| used & (1 << book) != 0)
    }

    /// The stream's book, if it has one.
    fn find(&self, stream: u64) -> Option<usize> {
        let key = |index: &usize| self.books[*index].stream.load(Ordering::Relaxed);
        if let Some(own) = probes(stream).find(|index| key(index) == stream) {
            return Some(own);
        }
        // All places taken: it shares the first one.
        let crowded = probes(stream).all(|index| key(&index) != FREE);
        if crowded { probes(stream).next() } else { None }
    }

    /// The stream's book; a free one becomes its own.
    fn claim(&self, stream: u64) -> usize {
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

impl Settled {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float beyond the range saturates"
    )]
    fn add(&mut self, stretch: Option<(f64, f64)>, measured: bool) {
        let Some((charged, took)) = stretch else { return };
        self.correction_ns = self.correction_ns.saturating_add((took - charged) as i64);
        self.measured_ns = self.measured_ns.saturating_add(if measured { took as u64 } else { 0 });
    }

    #[allow(clippy::cast_possible_truncation, reason = "a float beyond the range saturates")]
    fn add_copies(&mut self, ns: [f64; ENGINES]) {
        self.copies_ns.iter_mut().zip(ns).for_each(|(sum, ns)| *sum = sum.saturating_add(ns as i64));
    }
}

/// What each stream had been given at one moment.
#[derive(Debug)]
pub struct Snapshot([(u64, u64); BOOKS]); // work and copies

#[cfg(test)]
mod tests;
