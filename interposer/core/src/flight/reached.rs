//! How far work has come that several look at: threads of the program and the helper read the same words of the GPU.

use weir_protocol::sync::{AtomicU64, Ordering};

/// A sum that only grows.
#[derive(Debug, Default)]
pub struct Reached(AtomicU64);

// Relaxed: a sum for a decision that tolerates being a moment late; nothing hangs on it.
impl Reached {
    /// How far it has come.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// It has come to `to`, as one of them has seen; says how much of that is news: each part is told once.
    pub fn raise(&self, to: u64) -> u64 {
        // Looked at first: most of what is said to be done was known, and a locked instruction costs as much as a launch.
        if to <= self.get() { 0 } else { to.saturating_sub(self.0.fetch_max(to, Ordering::Relaxed)) }
    }
}
