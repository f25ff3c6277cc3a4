//! Waiting for something that another process brings about: as soon as it is there, or not at all.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest that anything may take. Generous: machines that run tests are slow and busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks at what gives no sign of itself.
const LOOK: Duration = Duration::from_millis(5);

/// What `look` returns, once it returns something.
///
/// # Panics
/// When [`PATIENCE`] is over; `what` says for what in vain.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain for {PATIENCE:?}: {what}");
        std::thread::park_timeout(LOOK);
    }
}

/// Lets so much time pass: all of it. (One park may be over at once: whoever was unparked before, as a scope of threads leaves its
/// thread, does not stay.)
pub fn pass(time: Duration) {
    let start = Instant::now();
    while let Some(rest) = time.checked_sub(start.elapsed()) {
        std::thread::park_timeout(rest);
    }
}

/// For so long the machine is tried until it is on time all through one try.
const TRIED: Duration = Duration::from_secs(30);

/// Measures what happens in real time. A while in which the machine took the processors away says nothing of it: then it is the
/// next one, or the one after; and if there is none, the one in which it took them least.
pub fn in_time<T>(mut measure: impl FnMut() -> T) -> T {
    let (began, mut best) = (Instant::now(), with_pacer(&mut measure));
    while best.1 > ON_TIME && began.elapsed() < TRIED {
        let next = with_pacer(&mut measure);
        if next.1 < best.1 {
            best = next;
        }
    }
    best.0
}

/// One sleep in fifty may be late.
const ON_TIME: f64 = 0.02;

/// Beside what is measured, sleeps a millisecond at a time, and says what part of these sleeps were more than a millisecond late: the
/// processors were taken away from the programs of the story as well.
fn with_pacer<T>(measure: impl FnOnce() -> T) -> (T, f64) {
    const STEP: Duration = Duration::from_millis(1);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pacer = scope.spawn(|| {
            let (mut steps, mut late) = (0u32, 0u32);
            while !over.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::park_timeout(STEP);
                steps += 1;
                late += u32::from(before.elapsed() > 2 * STEP);
            }
            f64::from(late) / f64::from(steps)
        });
        let measured = catch_unwind(AssertUnwindSafe(measure));
        over.store(true, Ordering::Relaxed); // whatever came of it
        let late = pacer.join().expect("it only sleeps");
        (measured.unwrap_or_else(|panic| resume_unwind(panic)), late)
    })
}
