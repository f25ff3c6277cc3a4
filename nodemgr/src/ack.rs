//! Waiting for the first launch under a new grant: each process stores the generation that it launched under, and
//! wakes whoever sleeps on that word.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::ClockId;
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::Timespec;

use crate::registry::Published;
use crate::shared::now;

/// Words that one call can wait for (the kernel's limit).
const MAX_WORDS: usize = 128;

/// Sleeps until one of the processes of `published` launches under its new grant; says how long after `since`
/// that was, or nothing if it takes longer than `patience`.
pub fn first_launch(published: &[Published], since: Instant, patience: Duration) -> Option<Duration> {
    while since.elapsed() < patience {
        let mut words = Vec::new();
        for one in published {
            for slot in one.slots.iter().filter_map(|slot| one.pages.usage.slots.get(*slot)) {
                // Acquire: pairs with the tenant's store, so that what it counted before is seen.
                let seen = slot.acked_generation.load(Ordering::Acquire);
                if reached(seen, one.generation) {
                    return Some(since.elapsed());
                }
                words.push((&slot.acked_generation, seen));
            }
        }
        if words.is_empty() || !sleep(&words, patience.saturating_sub(since.elapsed())) {
            return None;
        }
    }
    None
}

/// Whether generation `seen` is `wanted` or a later one. A slot that has never launched shows 0.
fn reached(seen: u32, wanted: u32) -> bool {
    seen != 0 && seen.wrapping_sub(wanted) < u32::MAX / 2
}

/// Until one of the words changes. False: this cannot be waited for any longer.
fn sleep(words: &[(&AtomicU32, u32)], left: Duration) -> bool {
    let waiters: Vec<_> = words.iter().take(MAX_WORDS).map(|(word, seen)| waiter(word, *seen)).collect();
    let end = now().0.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
    let end = timespec(Duration::from_nanos(end)); // this call takes an instant, not a duration
    match futex::waitv(&waiters, WaitvFlags::empty(), Some(&end), ClockId::Monotonic) {
        Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => true,
        // A kernel before 5.16: one word is better than none.
        Err(rustix::io::Errno::NOSYS) => {
            let (word, seen) = words[0];
            !matches!(
                futex::wait(word, futex::Flags::empty(), seen, Some(&timespec(left))),
                Err(rustix::io::Errno::TIMEDOUT)
            )
        }
        Err(_) => false,
    }
}

fn waiter(word: &AtomicU32, seen: u32) -> Wait {
    let mut wait = Wait::new();
    wait.val = u64::from(seen);
    wait.uaddr = WaitPtr::new(word.as_ptr().cast());
    wait.flags = WaitFlags::SIZE_U32;
    wait
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_wrap_around() {
        assert!(reached(5, 5) && reached(6, 5) && !reached(4, 5));
        assert!(reached(2, u32::MAX) && !reached(u32::MAX, 2) && !reached(0, u32::MAX));
    }
}
