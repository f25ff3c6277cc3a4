//! Words that the GPU writes: how far it has come in each stream, without asking the driver.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_protocol::pages::ProcessSlot;
use weir_protocol::units::Nanos;

use super::{BOOKS, Driver, Flight};

/// Words in host memory that the GPU writes when it has come so far in a stream: what was submitted there by then. They
/// are read without asking the driver (gpu-truths, rule 6), and say nothing of time.
#[derive(Debug)]
pub struct Words {
    host: &'static WordPage,
    device: u64,
}

/// What the GPU writes, and what it waits for.
#[derive(Debug)]
#[repr(C)]
pub struct WordPage {
    pub(super) reached: [AtomicU64; BOOKS],
    let_go: AtomicU64, // pieces up to this one; written by the process alone
    opens: AtomicU64,  // for a test: what a stream waits for, ...
    passed: AtomicU64, // ... and what it writes behind that
}

impl Default for WordPage {
    fn default() -> Self {
        Self {
            reached: [const { AtomicU64::new(0) }; BOOKS],
            let_go: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            passed: AtomicU64::new(0),
        }
    }
}

impl Words {
    /// Bytes that they take.
    pub const BYTES: usize = size_of::<WordPage>();

    /// Tries out whether a stream waits for a word of these, and goes on once it is there. `put` puts the wait for the first of two
    /// addresses, and behind it a write to the second, into a stream of its own; `holds` says how long a wait holds for sure, `patience`
    /// waits a moment and says whether there is any time left.
    pub fn hold(
        &self,
        put: impl FnOnce(u64, u64) -> bool,
        holds: impl FnOnce(),
        mut patience: impl FnMut() -> bool,
    ) -> bool {
        let at = |offset: usize| self.device + offset as u64;
        let page = self.host;
        if !put(at(offset_of!(WordPage, opens)), at(offset_of!(WordPage, passed))) {
            return false;
        }
        holds();
        let held = page.passed.load(Ordering::Acquire) == 0;
        page.opens.store(1, Ordering::Release);
        while page.passed.load(Ordering::Acquire) == 0 && patience() {}
        held && page.passed.load(Ordering::Acquire) != 0
    }

    /// At this place, which the GPU sees at the address `device`.
    pub fn new(host: &'static WordPage, device: u64) -> Self {
        Self { host, device }
    }
}

impl Flight {
    /// The GPU can write words for this context.
    pub fn set_words(&self, words: Words) {
        // Release: whoever finds them finds them whole.
        self.words.store(Box::into_raw(Box::new(words)), Ordering::Release);
    }

    fn words(&self) -> Option<&Words> {
        // SAFETY: null, or leaked by `set_words`.
        unsafe { self.words.load(Ordering::Acquire).as_ref() }
    }

    /// Whether [`Self::word`] can do anything.
    pub fn has_words(&self) -> bool {
        self.words().is_some()
    }

    /// Has the GPU write behind the launch at hand how far it has come, if so much `work` has gone by untold. Says whether
    /// it will.
    pub fn word(&self, stream: u64, work: Nanos, driver: &mut impl Driver) -> bool {
        let (Some(words), index) = (self.words(), self.claim(stream)) else { return false };
        let book = &self.books[index];
        let value = book.submitted.load(Ordering::Relaxed);
        if value.saturating_sub(book.worded.load(Ordering::Relaxed)) < work.0 {
            return false;
        }
        let Some(_recording) = book.record() else { return false };
        let put = driver.write(words.device + 8 * index as u64, value);
        if put {
            book.worded.store(value, Ordering::Relaxed);
        }
        put
    }

    /// Where streams wait for pieces to be let go; `None`: they cannot.
    pub(super) fn gate_address(&self) -> Option<u64> {
        self.words().map(|words| words.device + offset_of!(WordPage, let_go) as u64)
    }

    /// Lets the GPU go on behind all waits for numbers up to this one.
    pub(super) fn open_gate(&self, number: u64) {
        if let Some(words) = self.words() {
            // Release: who sees them end finds what was counted before. The greatest counts, whichever thread stores it.
            words.host.let_go.fetch_max(number, Ordering::Release);
        }
    }

    /// Takes in what the GPU has written, on a thread that calls no driver.
    pub fn see_words(&self, slot: &ProcessSlot) {
        self.read_words(slot);
    }

    /// Takes in what the GPU has written.
    pub(super) fn read_words(&self, slot: &ProcessSlot) {
        let Some(words) = self.words() else { return };
        for index in self.in_use() {
            let word = &words.host.reached[index];
            // Of two streams that share a book the word of one may be the older: the greatest counts. Nonsense that somebody
            // wrote there is no more than was submitted.
            let value = word.load(Ordering::Acquire).min(self.books[index].submitted.load(Ordering::Relaxed));
            self.complete(index, (value, 0), slot);
        }
    }
}
