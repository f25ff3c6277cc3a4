//! A small lock for what stays off the launch path.
//!
//! Not `std::sync::Mutex`: after a `fork` in a threaded program a mutex held by another thread stays locked for
//! ever in the child. A forked child drops its whole client state before it could meet a lock in it, opens the one
//! that is not part of it (see the interposer's `client`), and [`Lock::try_lock`] serves those who may never wait.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Spins before the holder is given the processor.
const SPINS: u32 = 100;

/// A value behind a lock that is held for a few hundred nanoseconds, and where the driver is asked meanwhile for as long as it
/// takes to answer.
#[derive(Debug, Default)]
pub struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `Guard` is the only way to the value, and at most one exists at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// An open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, now or never: one atomic exchange.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Acquire: what the last holder wrote is seen; pairs with the release in `Guard::drop`.
        if self.held.swap(true, Ordering::Acquire) { None } else { Some(Guard { lock: self }) }
    }

    /// Opens a lock without looking at who holds it: in a forked child the holder may be a thread that was not copied.
    /// Only for a lock around nothing that could be half written.
    pub fn open_in_forked_child(&self)
    where
        T: Copy,
    {
        // Release: as in `Guard::drop`; there is no other thread yet.
        self.held.store(false, Ordering::Release);
    }

    /// The value, as soon as its holder is done.
    pub fn lock(&self) -> Guard<'_, T> {
        let mut spins = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            spins += 1;
            if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

/// The value of a [`Lock`], until dropped.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, so no other reference to the value exists.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // Release: publishes what the holder wrote.
        self.lock.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_increment_is_lost_between_threads() {
        let lock = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 40_000);
    }

    #[test]
    fn whoever_may_not_wait_is_told_at_once() {
        let lock = Lock::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
