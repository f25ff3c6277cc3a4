//! A lock for what is held for tens of nanoseconds, such as the place in the ring. Its release is a plain store,
//! not a second locked instruction as a mutex needs to learn of sleepers: whoever finds the lock held looks
//! again, at first at once and later in short sleeps, and so needs nobody to wake him.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Looks without a sleep in between: longer than any holder takes that is not interrupted.
const LOOKS: u32 = 100;
/// Sleep between two looks once the holder must have been interrupted.
const STEP: Duration = Duration::from_micros(50);

/// A value behind a lock. Hold it briefly and never wait while you do.
pub struct Brief<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a `Held` alone, of which there is one at a time.
unsafe impl<T: Send> Sync for Brief<T> {}

/// The right to the value; given up when dropped.
pub struct Held<'a, T>(&'a Brief<T>);

impl<T> Brief<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> Held<'_, T> {
        if !self.take() {
            self.wait();
        }
        Held(self)
    }

    #[inline]
    fn take(&self) -> bool {
        // Acquire: what the last holder did is seen by this one.
        !self.held.swap(true, Ordering::Acquire)
    }

    #[cold]
    fn wait(&self) {
        for look in 0_u32.. {
            // Relaxed: a look that costs the holder nothing; `take` decides.
            if !self.held.load(Ordering::Relaxed) && self.take() {
                return;
            }
            if look < LOOKS { std::hint::spin_loop() } else { std::thread::sleep(STEP) }
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so nobody else reaches the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this borrow is the only one of the `Held`.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // Release: what this holder did is seen by the next one.
        self.0.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_threads_hold_it_at_once() {
        let count = Brief::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *count.lock() += 1));
            }
        });
        assert_eq!(*count.lock(), 40_000);
    }
}
