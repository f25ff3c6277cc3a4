//! Waiting: a thread says on the page what it waits for, and sleeps on a futex of its own; the broker wakes
//! exactly who has what he waits for. A slot is claimed by setting its bit in `armed`, last; a broker that
//! reads half-written words can only wake somebody early, who then looks again.
#![allow(clippy::cast_possible_truncation, reason = "the upper half of a word, shifted down")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::futex;

use crate::page::{Page, WAITS};

/// What ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The stream's commands up to this sequence number are complete.
    Completed {
        /// The stream's slot.
        stream: u32,
        /// The sequence number.
        sequence: u64,
    },
    /// The broker has taken this many commands from the ring.
    Taken(u64),
}

impl Target {
    fn encode(self) -> (u64, u64) {
        match self {
            Target::Completed { stream, sequence } => (1 | u64::from(stream) << 32, sequence),
            Target::Taken(count) => (2, count),
        }
    }

    fn decode(target: u64, until: u64) -> Option<Self> {
        match target & u64::from(u32::MAX) {
            1 => Some(Target::Completed { stream: (target >> 32) as u32, sequence: until }),
            2 => Some(Target::Taken(until)),
            _ => None,
        }
    }
}

/// Longest sleep without a slot of one's own.
const STEP: Duration = Duration::from_micros(200);

impl Page {
    /// Whether the target is reached. A stream out of range never is.
    pub fn reached(&self, target: Target) -> bool {
        // Acquire: who sees the completion sees what was written before it.
        match target {
            Target::Completed { stream, sequence } => self
                .completed
                .get(stream as usize)
                .is_some_and(|word| word.load(Ordering::Acquire) >= sequence),
            Target::Taken(count) => self.head.0.load(Ordering::Acquire) >= count,
        }
    }

    /// Client: waits for `target`, for `limit` at most. `ring` is called once the wait is armed, if the broker
    /// must be woken for it. Returns whether the target is reached.
    pub fn wait(&self, target: Target, limit: Duration, ring: impl FnOnce()) -> bool {
        let Some(slot) = (0..WAITS).find(|slot| self.claim(*slot)) else {
            ring();
            std::thread::sleep(STEP.min(limit));
            return self.reached(target);
        };
        let wait = &self.waits[slot];
        let (word, until) = target.encode();
        // Relaxed: published by `until`'s release, and harmless if read torn (see the module's text).
        wait.woken.store(0, Ordering::Relaxed);
        wait.target.store(word, Ordering::Relaxed);
        wait.until.store(until, Ordering::Release);
        ring();
        if !self.reached(target) {
            let limit = rustix::time::Timespec {
                tv_sec: limit.as_secs().cast_signed(),
                tv_nsec: limit.subsec_nanos().into(),
            };
            // Woken, interrupted, timed out: the caller looks at the target in each case.
            let _ = futex::wait(&wait.woken, futex::Flags::empty(), 0, Some(&limit));
        }
        wait.target.store(0, Ordering::Relaxed);
        // Release: the slot's words are done with before the next thread claims it.
        self.armed.0.fetch_and(!(1 << slot), Ordering::Release);
        self.reached(target)
    }

    fn claim(&self, slot: usize) -> bool {
        // Acquire: pairs with the release that freed it. SeqCst is not needed: `must_ring` fences.
        let claim = |word: &AtomicU64| word.fetch_or(1 << slot, Ordering::Acquire) & (1 << slot) == 0;
        self.armed.0.load(Ordering::Relaxed) & (1 << slot) == 0 && claim(&self.armed.0)
    }

    /// Broker: every armed wait, with its slot. Costs one load when nobody waits.
    pub fn armed_waits(&self) -> impl Iterator<Item = (usize, Target)> + '_ {
        // Acquire: the words of an armed slot.
        let mut bits = self.armed.0.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            let slot = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            Some(slot)
        })
        .filter_map(|slot| {
            let wait = &self.waits[slot];
            let until = wait.until.load(Ordering::Acquire);
            // Woken already: it only has not run yet.
            let pending = wait.woken.load(Ordering::Relaxed) == 0;
            let target = Target::decode(wait.target.load(Ordering::Relaxed), until);
            target.filter(|_| pending).map(|target| (slot, target))
        })
    }

    /// Broker: wakes the thread that waits in `slot`.
    pub fn wake(&self, slot: usize) {
        let Some(wait) = self.waits.get(slot) else { return };
        // Release: completions stored before are seen by the woken thread.
        wait.woken.store(1, Ordering::Release);
        // It can only fail for a bad address.
        let _ = futex::wake(&wait.woken, futex::Flags::empty(), 1);
    }
}
