//! Pieces in a stream: which of them it waits for, and what is in flight once they are let go ([`crate::piece`]).

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Driver, Due, Flight};
use weir_protocol::units::Nanos;

/// A mark before a wait, if there is anything that has none.
const BEFORE: Due = Due { work: Nanos(1), time: Nanos(0), spare: 16 };

/// A mark behind one.
const BEHIND: Due = Due { work: Nanos(0), time: Nanos(0), spare: 32 };

/// Each costs the GPU two microseconds: one in a millisecond of work or time, but for those that end what is measured.
const EVERY: Nanos = Nanos::from_millis(1);

/// Pieces of which it is known when they were let go: as many as are under way at once, and some more.
const KNOWN: usize = 16;

/// When pieces were let go: nothing behind their waits was reached before.
#[derive(Debug, Default)]
pub(super) struct LetGo([Known; KNOWN]);

#[derive(Debug, Default)]
struct Known {
    number: AtomicU64,
    at: AtomicU64,
}

impl LetGo {
    fn place(&self, number: u64) -> &Known {
        &self.0[usize::try_from(number).unwrap_or(0) % KNOWN]
    }

    fn note(&self, number: u64, now: Nanos) {
        let known = self.place(number);
        known.at.store(now.0, Ordering::Relaxed);
        known.number.store(number, Ordering::Release); // last: who finds it finds the time that belongs to it, or a later one
    }

    /// When; nothing if that is not known any more.
    pub fn at(&self, number: u64) -> Nanos {
        let known = self.place(number);
        let is_it = known.number.load(Ordering::Acquire) == number;
        Nanos(if is_it { known.at.load(Ordering::Relaxed) } else { 0 })
    }
}

impl Flight {
    /// Lets all pieces up to this number go.
    pub fn let_go(&self, number: u64, now: Nanos) {
        self.let_go.note(number, now);
        self.open_gate(number);
    }

    /// Whether streams of the context can wait for pieces, as far as is known.
    pub fn can_wait(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// They can, or the driver has refused.
    pub fn set_can_wait(&self, can: bool) {
        self.waits.store(can, Ordering::Release); // behind the words: who finds it finds these
    }

    /// The number of the piece for which a stream waits, or waited last.
    pub fn behind(&self, stream: u64) -> u64 {
        // Of streams that share a book each launch gets a wait of its own.
        let own = self.find(stream).map(|index| &self.books[index]);
        let own = own.filter(|book| book.stream.load(Ordering::Relaxed) == stream);
        own.map_or(0, |book| book.behind.load(Ordering::Relaxed))
    }

    /// Has `stream` wait for a piece: what is measured ends before the wait, and begins behind it. Says whether the driver agreed.
    /// Where all is seen to be done nothing comes before the wait: the GPU would switch to the context for it, and back.
    pub fn wait_for_piece(&self, stream: u64, number: u64, driver: &mut impl Driver) -> bool {
        let Some(address) = self.gate_address() else { return false };
        let book = &self.books[self.claim(stream)];
        let is_own = book.stream.load(Ordering::Relaxed) == stream;
        if book.done() < book.given() {
            let time = if book.held.load(Ordering::Relaxed) { EVERY } else { Nanos(0) };
            self.mark(stream, Due { time, ..BEFORE }, driver);
            self.word(stream, Nanos(1), driver); // the end of the piece before it
        }
        if !driver.wait(address, number) {
            self.set_can_wait(false);
            return false;
        }
        if is_own {
            book.behind.store(number, Ordering::Relaxed);
        }
        book.held.store(true, Ordering::Relaxed);
        if book.is_worth_measuring(driver.now(), EVERY) {
            self.mark(stream, BEHIND, driver);
        }
        true
    }

    /// Counts a launch on `stream` that waits for a piece: it is in flight when that is let go.
    pub fn joined(&self, stream: u64, ns: u64) {
        let Some(index) = self.find(stream) else { return };
        self.books[index].launched.fetch_add(1, Ordering::Relaxed);
        self.books[index].submitted.fetch_add(ns, Ordering::Relaxed);
    }
}
