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
