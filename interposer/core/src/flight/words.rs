//! Words that the GPU writes: how far it has come in each stream, without asking the driver.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_protocol::pages::ProcessSlot;
use weir_protocol::units::Nanos;

use super::{BOOKS, Driver, Flight};

/// Words in host memory that the GPU writes when it has come so far in a stream: what was submitted there by then. They
/// are read without asking the driver (gpu-truths, rule 6), and say nothing of time.
#[derive(Debug)]
pub struct Words {
    host: &'static [AtomicU64; BOOKS],
    device: u64,
}

impl Words {
    /// Bytes that they take.
    pub const BYTES: usize = size_of::<[AtomicU64; BOOKS]>();

    /// At this place, which the GPU sees at the address `device`.
    pub fn new(host: &'static [AtomicU64; BOOKS], device: u64) -> Self {
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

    /// Takes in what the GPU has written, on a thread that calls no driver.
    pub fn see_words(&self, slot: &ProcessSlot) {
        self.read_words(slot);
    }

    /// Takes in what the GPU has written.
    pub(super) fn read_words(&self, slot: &ProcessSlot) {
        let Some(words) = self.words() else { return };
        for index in self.in_use() {
            let word = &words.host[index];
            // Of two streams that share a book the word of one may be the older: the greatest counts. Nonsense that somebody
            // wrote there is no more than was submitted.
            let value = word.load(Ordering::Acquire).min(self.books[index].submitted.load(Ordering::Relaxed));
            self.complete(index, (value, 0), slot);
        }
    }
}
