//! What is in flight: predicted work handed to the driver and not known to be done.
//!
//! Every so often a *mark* (an event) follows the work into its stream; a mark that has been reached says that
//! everything before it on that stream is done, and when. Marks are looked at when the gate is asked, never waited for.
//! The return of the application's own synchronize calls says the same for nothing. What the marks say of the time that
//! work took goes to the meter (`marks`).

mod book;
mod burst;
mod clock;
mod driver;
mod horizon;
mod marks;
mod pieces;
mod reached;
mod records;
mod streams;
mod stretch;
mod words;

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use weir_protocol::pages::{CopyWay, Held, ProcessSlot};
use weir_protocol::units::Nanos;

use self::book::StreamBook;
pub use self::driver::{Driver, Neighbours, Place};
use self::marks::{Look, Marks, Record};
use self::pieces::LetGo;
use self::records::Records;
use self::stretch::Bill;
pub use self::words::{WordPage, Words};
use crate::copy::{CopyPrices, ENGINES};
use crate::lock::{Guard, Lock};
use crate::solo::Missing;

/// Streams told apart; more streams than that share books, which makes the count a little too small.
const BOOKS: usize = 64;

/// So many launches may be queued in a stream that gets a mark from elsewhere: drivers take about 1,024 before the next
/// one waits.
const FULL: u64 = 512;

/// Behind the first launch of a burst so much work is worth a mark of its own, however young the last one is.
const SECOND: Nanos = Nanos::from_micros(200);

/// Where a thread waits, so much work beside that of other streams is worth a mark, however young the last one is.
const REST: Nanos = Nanos::from_micros(50);

/// The book is nobody's. No stream has this key: it would be an address beyond user space.
const FREE: u64 = u64::MAX;

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
    /// How much of the GPU this work held, ...
    pub held: Held,
    /// ... up to this moment, at which the last of these marks was reached.
    pub until: Nanos,
    /// Nothing behind that mark is known to be done.
    pub is_last: bool,
    /// To be added to the time of copies, by way, on top of what was predicted for them.
    pub copies_ns: [i64; ENGINES],
    /// What siblings that were there kept from being measured.
    pub missing: Option<Missing>,
    /// Whether prices were learnt from work that ran alone.
    pub taught: bool,
}

/// The work of one process on one GPU, in one context.
#[derive(Debug)]
pub struct Flight {
    words: AtomicPtr<Words>,
    records: Records,
    books: [StreamBook; BOOKS],
    used: AtomicU64, // bit per book that ever was somebody's
    marks: Lock<Marks>,
    copies: &'static CopyPrices,
    let_go: LetGo,
    waits: AtomicBool, // streams can wait for words
}

impl Default for Flight {
    fn default() -> Self {
        let copies = CopyPrices::leak();
        let books = std::array::from_fn(|_| StreamBook::closed());
        Self {
            words: AtomicPtr::default(),
            records: Records::default(),
            books,
            used: AtomicU64::new(0),
            marks: Lock::new(Marks::new(copies)),
            copies,
            let_go: LetGo::default(),
            waits: AtomicBool::new(false),
        }
    }
}

impl Flight {
    /// Adds timing events to the pool, from which marks are made.
    pub fn add_events(&self, events: impl IntoIterator<Item = u64>) {
        self.marks.lock().add_events(events);
    }

    /// Forgets all events and all work: their context is gone.
    pub fn reset(&self, slot: &ProcessSlot) {
        self.words.store(std::ptr::null_mut(), Ordering::Relaxed); // leaked: another thread may be reading them
        self.marks.lock().reset();
        self.in_use().for_each(|book| self.complete(book, self.books[book].both(), slot));
    }

    /// One of its events, if it has any: what the driver says of it, it says of the context.
    pub fn any_event(&self) -> Option<u64> {
        self.marks.lock().any_event()
    }

    /// A run of launches `by` a thread begins on `stream`, a key that tells streams apart, which lies at `place`: it is alive
    /// now.
    pub fn opens(&self, stream: u64, place: Place, by: u64) {
        let known =
            self.find(stream).filter(|index| self.books[*index].stream.load(Ordering::Relaxed) == stream);
        let index = known.unwrap_or_else(|| self.claim(stream));
        if self.used.load(Ordering::Relaxed) & (1 << index) == 0 {
            self.used.fetch_or(1 << index, Ordering::Relaxed);
        }
        let book = &self.books[index];
        if known.is_none() {
            book.passed.store(book.launched.load(Ordering::Relaxed), Ordering::Relaxed);
            book.behind.store(0, Ordering::Relaxed);
            book.held.store(false, Ordering::Relaxed);
        }
        book.place.store(place.0, Ordering::Relaxed);
        book.fed_by.store(by, Ordering::Relaxed);
    }

    /// Counts so many launches on `stream`, predicted to take `ns`. If the stream is gone by now, nobody will see their end.
    pub fn submitted(&self, stream: u64, launches: u64, ns: u64, slot: &ProcessSlot) {
        let Some(index) = self.find(stream) else { return };
        // Relaxed throughout: sums for a decision that tolerates being a moment late; nothing hangs on them.
        self.books[index].launched.fetch_add(launches, Ordering::Relaxed);
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
        self.queued_ns(stream) > 0
    }

    /// Work on `stream` that is not known to be done, in nanoseconds.
    pub fn queued_ns(&self, stream: u64) -> u64 {
        self.find(stream)
            .map_or(0, |index| self.books[index].given().saturating_sub(self.books[index].done()))
    }

    /// Whether the context has had more than one stream.
    pub fn has_streams(&self) -> bool {
        self.used.load(Ordering::Relaxed).count_ones() > 1
    }

    /// Whether anything at all is not known to be done.
    pub fn is_any_busy(&self) -> bool {
        self.in_use().any(|book| self.books[book].done() < self.books[book].given())
    }

    /// Whether the end of what is under way on `stream` is worth a mark: it began when the stream was idle, or it is a rest beside
    /// other streams.
    pub fn wants_end(&self, stream: u64) -> bool {
        let began_idle =
            |index| self.marks.try_lock().is_some_and(|marks: Guard<'_, Marks>| marks.began_idle(index));
        self.find(stream).is_some_and(|index| began_idle(index) || self.is_rest_beside_others(index))
    }

    /// Whether what has no mark in a book's stream may run while other streams are at work: without one its price is charged, though
    /// the marks of these cover its time.
    fn is_rest_beside_others(&self, index: usize) -> bool {
        self.books[index].unmarked() >= REST.0 && !self.elsewhere(index).1
    }

    /// Puts a mark behind the work on `stream` if one is due. Never waits: if another thread is at the marks, the next
    /// launch sees to it.
    pub fn mark(&self, stream: u64, due: Due, driver: &mut impl Driver) -> bool {
        self.mark_with(|| self.marks.try_lock(), stream, due, driver)
    }

    /// As [`Self::mark`], where no next launch will see to it: the program waits for what it has launched.
    pub fn mark_last(&self, stream: u64, due: Due, driver: &mut impl Driver) -> bool {
        self.mark_with(|| Some(self.marks.lock()), stream, due, driver)
    }

    fn mark_with<'a>(
        &'a self,
        marks: impl FnOnce() -> Option<Guard<'a, Marks>>,
        stream: u64,
        due: Due,
        driver: &mut impl Driver,
    ) -> bool {
        let index = self.claim(stream);
        let book = &self.books[index];
        if book.unmarked() < due.work.0 {
            return false; // without the lock
        }
        let worth = |marks: &Marks, driver: &mut _| self.is_due(index, &due, marks, Driver::now(driver));
        self.put((index, stream, Place::HERE), (marks, worth), driver)
    }

    fn is_due(&self, index: usize, due: &Due, marks: &Marks, now: Nanos) -> bool {
        let (at, unmarked) = (marks.recorded_at(index), self.books[index].unmarked());
        unmarked >= due.work.0
            && marks.spare() > due.spare
            && (at.is_none_or(|at| now.since(at) >= due.time)
                || (unmarked >= SECOND.0 && marks.is_first(index)))
    }

    /// Puts a mark behind all work that has none, on whatever stream: a launch is about to wait for what is in flight, so
    /// that must be seen to complete.
    pub fn mark_all(&self, driver: &mut impl Driver) {
        let unseen = |book: &StreamBook| book.given() > book.marked.load(Ordering::Relaxed).max(book.done());
        self.mark_each(unseen, |_, _, _| true, driver);
    }

    /// Puts a mark behind the work of one thread on `stream`, or on all streams, where one of these is due, a stretch that
    /// began on an idle stream is to end, or it is a rest beside other streams: the thread waits, and no launch will see to it. What
    /// has none at the end of a burst is measured together with the pause behind it, which is as good as not at all. Other threads go
    /// on, and put their own.
    pub fn mark_ends(&self, stream: Option<u64>, by: u64, due: &[Due], driver: &mut impl Driver) {
        let is = |word: &AtomicU64, value: u64| word.load(Ordering::Relaxed) == value;
        let has_any = |book: &StreamBook| {
            is(&book.fed_by, by) && stream.is_none_or(|one| is(&book.stream, one)) && book.unmarked() > 0
        };
        let worth = |index: usize, marks: &Marks, now: Nanos| {
            marks.began_idle(index)
                || self.is_rest_beside_others(index)
                || due.iter().any(|due| self.is_due(index, due, marks, now))
        };
        self.mark_each(has_any, worth, driver);
    }

    /// Puts a mark into each stream of one thread where one is due. Marks are put where a launch takes the long way, and of streams
    /// that are fed in turn one may be passed over by that each time: its work would be told of all at once, long after.
    pub fn mark_overdue(&self, by: u64, due: Due, driver: &mut impl Driver) {
        let has =
            |book: &StreamBook| book.fed_by.load(Ordering::Relaxed) == by && book.unmarked() >= due.work.0;
        let worth = |index: usize, marks: &Marks, now: Nanos| self.is_due(index, &due, marks, now);
        self.mark_each(has, worth, driver);
    }

    /// Puts a mark into each stream that `wants` one and is `worth` it. Never into a stream whose queue may be full: the
    /// record would wait, and who knows for whom.
    fn mark_each<D: Driver>(
        &self,
        wants: impl Fn(&StreamBook) -> bool,
        worth: impl Fn(usize, &Marks, Nanos) -> bool,
        driver: &mut D,
    ) {
        for index in self.in_use() {
            let book = &self.books[index];
            let place = Place(book.place.load(Ordering::Relaxed));
            if place != Place::NOWHERE && book.queued() < FULL && wants(book) {
                let place = (index, book.stream.load(Ordering::Relaxed), place);
                let worth = |marks: &Marks, driver: &mut D| worth(index, marks, driver.now());
                self.put(place, (|| self.marks.try_lock(), worth), driver);
            }
        }
    }

    /// Puts a mark if it is `worth` it. Nothing is held while the driver records it but the book's own flag.
    fn put<'a, D: Driver>(
        &'a self,
        (index, stream, place): (usize, u64, Place),
        (marks, worth): (impl FnOnce() -> Option<Guard<'a, Marks>>, impl FnOnce(&Marks, &mut D) -> bool),
        driver: &mut D,
    ) -> bool {
        let book = &self.books[index];
        let Some(_recording) = book.record() else { return false };
        let is = |word: &AtomicU64, value: u64| word.load(Ordering::Relaxed) == value;
        if place != Place::HERE && !(is(&book.place, place.0) && is(&book.stream, stream)) {
            return false; // the stream is gone since it was looked at
        }
        let (launched, value) = (book.launched.load(Ordering::Relaxed), book.value());
        let blank = marks().filter(|marks| worth(marks, driver)).and_then(|mut marks| marks.take());
        blank.is_some_and(|blank| {
            let (from, done, by) = (driver.now(), driver.record(blank.event, place), driver.now());
            let mut marks = self.marks.lock();
            if !done {
                marks.give_back(&blank);
                return false;
            }
            let (elsewhere, idle) = self.elsewhere(index);
            let begins = idle && book.done() >= book.given();
            let elsewhere = idle.then_some(elsewhere);
            let ended = book.ended_by(value.total());
            let held = book.held.swap(false, Ordering::Relaxed);
            let behind = book.behind.load(Ordering::Relaxed);
            let record = Record { blank, from, by, launched, elsewhere, ended, begins, held, behind };
            marks.put((index, stream), value, &record, driver);
            book.marked.store(value.total(), Ordering::Relaxed);
            true
        })
    }

    /// The launch behind a mark on an idle stream goes out now.
    pub fn launches(&self, stream: u64, now: Nanos) {
        if let (Some(index), Some(mut marks)) = (self.find(stream), self.marks.try_lock()) {
            marks.launches(index, now);
        }
    }

    /// It has gone out by now: the call may have taken long, where it loads code.
    pub fn launched(&self, stream: u64, now: Nanos) {
        if let (Some(index), Some(mut marks)) = (self.find(stream), self.marks.try_lock()) {
            marks.launched(index, now);
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
        let Some(index) = self.find(stream) else { return };
        let book = &self.books[index];
        let _recording = loop {
            match book.record() {
                Some(turn) => break turn, // nobody is putting a mark there now, and nobody will
                None => std::thread::yield_now(),
            }
        };
        let mut marks = self.marks.lock();
        if book.stream.load(Ordering::Relaxed) == stream {
            book.place.store(Place::NOWHERE.0, Ordering::Relaxed);
            marks.forget(index);
            self.complete(index, book.both(), slot);
            book.stream.store(FREE, Ordering::Relaxed);
        }
    }

    /// Looks which marks were reached, counts the work before them as done, and says what it came to.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times; a float beyond the range saturates"
    )]
    pub fn harvest(&self, slot: &ProcessSlot, driver: &mut impl Driver) -> Settled {
        self.read_words(slot);
        let mut settled = Settled::default();
        let Some(mut marks) = self.marks.try_lock() else { return settled };
        let mut look = Look::begin(&self.let_go, driver);
        while let Some(reached) = marks.next_reached(&mut look, &|book| self.elsewhere(book).0, driver) {
            self.complete(reached.book, (reached.value.work, reached.value.copies.total_ns()), slot);
            self.books[reached.book].passed.store(reached.launched, Ordering::Relaxed);
            settled.add(reached.bill.as_ref());
            if reached.at >= settled.until {
                settled.until = reached.at;
                let done = self.books[reached.book].completed.get();
                settled.is_last = done == reached.value.work;
            }
        }
        settled.held = marks.take_held();
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
    pub fn drained(&self, snapshot: &Snapshot, slot: &ProcessSlot, now: Nanos) {
        for (index, value) in snapshot.0.iter().enumerate() {
            self.books[index].waited_for(value.0.saturating_add(value.1), now);
            self.complete(index, *value, slot);
        }
    }

    fn complete(&self, book: usize, (work, copies): (u64, u64), slot: &ProcessSlot) {
        let more = self.books[book].completed.raise(work);
        if more > 0 {
            slot.completed_ns.fetch_add(more, Ordering::Relaxed);
        }
        if copies > 0 {
            self.books[book].copies_done(copies);
        }
    }

    /// What all streams but that of `book` have been given, and whether that is known to be done.
    fn elsewhere(&self, book: usize) -> (u64, bool) {
        let others = self.in_use().filter(|other| *other != book).map(|other| &self.books[other]);
        others.fold((0, true), |(sum, idle), other| {
            let (given, done) = (other.both().0, other.completed.get());
            (sum.wrapping_add(given), idle && done >= given)
        })
    }
}

impl Settled {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float beyond the range saturates"
    )]
    fn add(&mut self, bill: Option<&Bill>) {
        let Some(Bill { charged, took, measured, copies, missing, taught }) = bill else { return };
        self.missing = self.missing.max(*missing);
        self.taught |= taught;
        self.correction_ns = self.correction_ns.saturating_add((took - charged) as i64);
        self.measured_ns = self.measured_ns.saturating_add(if *measured { *took as u64 } else { 0 });
        self.copies_ns.iter_mut().zip(copies).for_each(|(sum, ns)| *sum = sum.saturating_add(*ns as i64));
    }
}

/// What each stream had been given at one moment.
#[derive(Debug)]
pub struct Snapshot([(u64, u64); BOOKS]); // work and copies

#[cfg(test)]
mod tests;
