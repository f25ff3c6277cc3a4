//! What the machine can do by itself: a thread stores a word right after it has slept, as a latency tenant that wakes does on the
//! board, and another one, on the filler's processor, does nothing but look.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::cores::Cores;
use super::now;
use super::player::sleeps;
use crate::sample::Spread;

/// Until each word was seen, in microseconds.
pub struct Words(Vec<f64>);

/// Stores a word after each of the latency tenant's sleeps.
pub fn words(cores: Cores) -> io::Result<Words> {
    let (word, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let look = scope.spawn(|| cores.apart(|| Ok(look(&word, &over))));
        for sleep in sleeps() {
            std::thread::sleep(sleep);
            word.store(now(), Ordering::Release);
        }
        over.store(true, Ordering::Release);
        let seen = look.join().map_err(|_| io::Error::other("who looks has died"))??;
        Ok(Words(seen.into_iter().map(|(stored, at)| at.saturating_sub(stored) as f64 / 1e3).collect()))
    })
}

/// Each word, and when it was seen.
fn look(word: &AtomicU64, over: &AtomicBool) -> Vec<(u64, u64)> {
    let (mut seen, mut before) = (Vec::new(), 0);
    while !over.load(Ordering::Acquire) {
        let stored = word.load(Ordering::Acquire);
        if stored != before {
            seen.push((stored, now()));
            before = stored;
        }
    }
    seen
}

impl Words {
    /// For the document, with what a gate may take at which `more` is allowed beyond the machine's part.
    pub fn figures(&self, more: f64) -> serde_json::Value {
        let spread = Spread::of(&self.0);
        serde_json::json!({ "counted": self.0.len(), "seen_us": spread, "limit_by_this_us": more + spread.p99 })
    }
}
