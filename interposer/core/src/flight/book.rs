//! One stream's book: what it has been given, as ever-growing sums.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_protocol::pages::CopyWay;
use weir_protocol::units::Nanos;

use super::reached::Reached;
use super::{FREE, Place};
use crate::copy::{ENGINES, Tally, units};

/// No launch takes the GPU less than this, in nanoseconds.
const SHORTEST_NS: u64 = 1_000;

/// One stream's (or a few streams') work, in nanoseconds.
#[derive(Debug)]
pub(super) struct StreamBook {
    pub stream: AtomicU64,
    pub place: AtomicU64,
    pub fed_by: AtomicU64, // the thread that has launched there last
    pub submitted: AtomicU64,
    pub marked: AtomicU64, // with copies
    pub completed: Reached,
    communicated: AtomicU64, // part of `submitted`
    calls: [AtomicU64; ENGINES],
    units: [AtomicU64; ENGINES],
    predicted: [AtomicU64; ENGINES],
    copied: AtomicU64,        // known to be done, of what was predicted for copies
    waited: [AtomicU64; 2],   // a wait has told that so much work and copies were done, and when
    pub worded: AtomicU64,    // the GPU will write so much of `submitted`
    pub launched: AtomicU64,  // so many launches and copies it has been given, ...
    pub passed: AtomicU64,    // ... and so many of them lie before the last mark that was reached
    pub behind: AtomicU64,    // the piece for which it waits, or waited last
    pub held: AtomicBool,     // that wait stands behind its last mark
    measured: [AtomicU64; 2], // a mark was put behind a wait: what had been submitted by then, and when
    recording: AtomicBool,    // a mark is being put there
}

/// A mark is being put into a book's stream, until this is dropped.
pub(super) struct Recording<'a>(&'a AtomicBool);

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// How far a book has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Value {
    /// Work on the SMs, predicted.
    pub work: u64,
    /// Part of it that exchanges data with other GPUs.
    pub communicated: u64,
    /// Copies.
    pub copies: Tally,
}

impl Value {
    /// Work and copies.
    pub fn total(&self) -> u64 {
        self.work.saturating_add(self.copies.total_ns())
    }
}

// Relaxed throughout: sums for a decision that tolerates being a moment late; nothing hangs on them.
impl StreamBook {
    /// Nobody's.
    pub fn closed() -> Self {
        let zeroes = || std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            stream: AtomicU64::new(FREE),
            place: AtomicU64::new(Place::NOWHERE.0),
            fed_by: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            completed: Reached::default(),
            communicated: AtomicU64::new(0),
            calls: zeroes(),
            units: zeroes(),
            predicted: zeroes(),
            copied: AtomicU64::new(0),
            waited: [const { AtomicU64::new(0) }; 2],
            worded: AtomicU64::new(0),
            launched: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            behind: AtomicU64::new(0),
            held: AtomicBool::new(false),
            measured: [const { AtomicU64::new(0) }; 2],
            recording: AtomicBool::new(false),
        }
    }

    /// The one who puts a mark there now; `None`: somebody else does.
    pub fn record(&self) -> Option<Recording<'_>> {
        // Acquire, Release: a stream's marks come in the order in which they were recorded.
        (!self.recording.swap(true, Ordering::Acquire)).then(|| Recording(&self.recording))
    }

    /// What it has been given so far.
    pub fn value(&self) -> Value {
        let load = |words: &[AtomicU64; ENGINES]| std::array::from_fn(|n| words[n].load(Ordering::Relaxed));
        Value {
            work: self.submitted.load(Ordering::Relaxed),
            communicated: self.communicated.load(Ordering::Relaxed),
            copies: Tally {
                calls: load(&self.calls),
                units: load(&self.units),
                predicted_ns: load(&self.predicted),
            },
        }
    }

    /// Work, and copies, that it has been given.
    pub fn both(&self) -> (u64, u64) {
        let copies = self.predicted.iter().map(|word| word.load(Ordering::Relaxed));
        (self.submitted.load(Ordering::Relaxed), copies.fold(0, u64::saturating_add))
    }

    /// The sum of both.
    pub fn given(&self) -> u64 {
        let (work, copies) = self.both();
        work.saturating_add(copies)
    }

    /// Part of that behind which no mark stands.
    pub fn unmarked(&self) -> u64 {
        self.given().saturating_sub(self.marked.load(Ordering::Relaxed))
    }

    /// Work and copies that are known to be done.
    pub fn done(&self) -> u64 {
        self.completed.get().saturating_add(self.copied.load(Ordering::Relaxed))
    }

    /// How many launches and copies its queue holds at most.
    pub fn queued(&self) -> u64 {
        let passed = self.passed.load(Ordering::Relaxed);
        let queued = self.launched.load(Ordering::Relaxed).saturating_sub(passed);
        queued.min(self.given().saturating_sub(self.done()) / SHORTEST_NS)
    }

    /// Counts copies that are expected to take `ns`.
    pub fn add_copies(&self, way: CopyWay, calls: u64, bytes: u64, ns: u64) {
        self.launched.fetch_add(calls, Ordering::Relaxed);
        let way = way as usize;
        if way < ENGINES {
            self.calls[way].fetch_add(calls, Ordering::Relaxed);
            self.units[way].fetch_add(units(bytes), Ordering::Relaxed);
            self.predicted[way].fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// Part of what was submitted exchanges data with other GPUs.
    pub fn communicates(&self, ns: u64) {
        self.communicated.fetch_add(ns, Ordering::Relaxed);
    }

    /// Whether `every` of work was submitted, or of time went by, since this was last so.
    pub fn is_worth_measuring(&self, now: Nanos, every: Nanos) -> bool {
        let [work, at] = &self.measured;
        let submitted = self.submitted.load(Ordering::Relaxed);
        let is_worth = submitted.wrapping_sub(work.load(Ordering::Relaxed)) >= every.0
            || now.since(Nanos(at.load(Ordering::Relaxed))) >= every;
        if is_worth {
            work.store(submitted, Ordering::Relaxed);
            at.store(now.0, Ordering::Relaxed);
        }
        is_worth
    }

    /// The program has waited until now for so much work and copies, if any.
    pub fn waited_for(&self, given: u64, now: Nanos) {
        let [upto, at] = &self.waited;
        if given > upto.load(Ordering::Relaxed) {
            at.store(now.0, Ordering::Relaxed);
            upto.store(given, Ordering::Relaxed);
        }
    }

    /// By when so much was done, if that is what the program has waited for.
    pub fn ended_by(&self, given: u64) -> Option<Nanos> {
        let [upto, at] = &self.waited;
        (upto.load(Ordering::Relaxed) == given).then(|| Nanos(at.load(Ordering::Relaxed)))
    }

    /// Copies up to so much predicted time are done.
    pub fn copies_done(&self, ns: u64) {
        self.copied.fetch_max(ns, Ordering::Relaxed);
    }
}
