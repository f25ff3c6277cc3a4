//! The rule of liveness, step by step: launches that wait at one gate and look at the same watch, each step between any two of
//! the others'. Run by `RUSTFLAGS="--cfg loom"`; without it there is nothing here.

#![cfg(loom)]

#[path = "../src/gate/standstill.rs"]
#[allow(dead_code, reason = "siblings are watched by the same code")]
mod standstill;

use loom::sync::Arc;

use standstill::{Patient, Watch};
use weir_protocol::sync::{AtomicU64, Ordering};
use weir_protocol::units::Nanos;

/// Work is queued that spins for one of the launches.
const QUEUED: u64 = 1_000;

/// How far apart a launch looks, in nanoseconds: longer than a standstill of 5 ms.
const STEP: u64 = 6_000_000;

/// Looks until it passes, `looks` times at most; says when it did.
fn passes(watch: &Watch, completed: &AtomicU64, looks: u64) -> Option<Nanos> {
    (1..=looks).map(|look| Nanos(look * STEP)).find(|now| {
        let done = completed.load(Ordering::Relaxed);
        watch.stands((QUEUED, done), Patient::Always, Nanos(0), Nanos(1), *now)
    })
}

#[test]
fn of_launches_that_wait_while_nothing_completes_one_passes() {
    loom::model(|| {
        let shared = Arc::new((Watch::default(), AtomicU64::new(0)));
        let other = shared.clone();
        let thread = loom::thread::spawn(move || passes(&other.0, &other.1, 2).is_some());
        let here = passes(&shared.0, &shared.1, 2).is_some();
        assert!(thread.join().unwrap() || here, "a kernel spins for one of them");
    });
}

#[test]
fn work_that_completes_meanwhile_puts_it_off_and_does_not_lose_it() {
    loom::model(|| {
        let shared = Arc::new((Watch::default(), AtomicU64::new(0)));
        let gpu = shared.clone();
        let thread = loom::thread::spawn(move || gpu.1.store(QUEUED / 2, Ordering::Relaxed));
        let (watch, completed) = (&shared.0, &shared.1);
        assert!(passes(watch, completed, 4).is_some(), "it has moved once and stands still again");
        thread.join().unwrap();
    });
}

#[test]
fn two_that_see_work_complete_at_different_times_do_not_keep_each_other_waiting() {
    loom::model(|| {
        let shared = Arc::new((Watch::default(), AtomicU64::new(0)));
        let other = shared.clone();
        let thread = loom::thread::spawn(move || {
            other.1.store(QUEUED / 2, Ordering::Relaxed);
            passes(&other.0, &other.1, 4).is_some()
        });
        let here = passes(&shared.0, &shared.1, 4).is_some();
        assert!(thread.join().unwrap() || here);
    });
}
