//! The clock: nanoseconds since some moment, steady, read without a system call (vDSO).

use rustix::time::{ClockId, clock_gettime};
use weir_protocol::units::Nanos;

/// Now. Compared only with other stamps of this tenant: time namespaces differ between containers.
#[inline]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    // The monotonic clock is never negative.
    Nanos((time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}
