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

/// Tries for what happens in real time, until the machine is on time all through one.
const TRIES: usize = 5;

/// Measures what happens in real time. A while in which the machine took the processors away says nothing of it: then it is the
/// next one, or the one after.
pub fn in_time<T>(mut measure: impl FnMut() -> T) -> T {
    for _ in 1..TRIES {
        if let (measured, true) = with_pacer(&mut measure) {
            return measured;
        }
    }
    measure()
}

/// Beside what is measured, sleeps a millisecond at a time, and says whether the machine let it: one sleep in fifty may be a
/// millisecond late. Where more are, the processors were taken away from the programs of the story as well.
fn with_pacer<T>(measure: impl FnOnce() -> T) -> (T, bool) {
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
            late * 50 <= steps
        });
        let measured = catch_unwind(AssertUnwindSafe(measure));
        over.store(true, Ordering::Relaxed); // whatever came of it
        let on_time = pacer.join().expect("it only sleeps");
        (measured.unwrap_or_else(|panic| resume_unwind(panic)), on_time)
    })
}
