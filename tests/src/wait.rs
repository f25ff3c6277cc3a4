//! Waiting for something that another process brings about: as soon as it is there, or not at all.

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

/// Sleeps for so long, a millisecond at a time, and says whether the machine let us: one sleep in fifty may be a millisecond
/// late. Where more are, its processors were taken away from the programs of the story as well.
pub fn paced(window: Duration) -> bool {
    const STEP: Duration = Duration::from_millis(1);
    let (began, mut steps, mut late) = (Instant::now(), 0u32, 0u32);
    while began.elapsed() < window {
        let before = Instant::now();
        std::thread::park_timeout(STEP);
        steps += 1;
        late += u32::from(before.elapsed() > 2 * STEP);
    }
    late * 50 <= steps
}
