//! The clock: nanoseconds since some moment, steady, read without a system call (vDSO).

use std::sync::atomic::{AtomicU8, Ordering};

use rustix::time::{ClockId, clock_gettime};
use weir_protocol::units::Nanos;

/// Whether the process has a vDSO: not asked yet, yes, no.
static VDSO: AtomicU8 = AtomicU8::new(0);

/// Now. Compared only with other stamps of this tenant: time namespaces differ between containers.
#[inline]
pub fn now() -> Nanos {
    // Relaxed: whoever finds zero asks, and comes to the same answer.
    let (seconds, nanos) = match VDSO.load(Ordering::Relaxed) {
        1 => {
            let time = clock_gettime(ClockId::Monotonic);
            (time.tv_sec, time.tv_nsec)
        }
        2 => by_the_c_library(),
        _ => return first(),
    };
    // The monotonic clock is never negative.
    Nanos((seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanos as u64))
}

/// The kernel has told of a vDSO, which rustix then calls, but valgrind unmaps it, and takes it off the list that the C
/// library goes by.
#[cold]
fn first() -> Nanos {
    // SAFETY: takes a number and returns one.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } != 0;
    VDSO.store(if vdso { 1 } else { 2 }, Ordering::Relaxed);
    now()
}

#[cold]
fn by_the_c_library() -> (i64, i64) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer; this clock is always there, so `errno` is left alone.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec, time.tv_nsec)
}
