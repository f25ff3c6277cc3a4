//! Values that are made at first use, and stay for the life of the process.
//!
//! Not `std::sync::OnceLock`: a child that is forked while another thread makes the value would wait for it for ever. Here
//! nobody waits: of several threads that make it at once, the first one's stays.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is made at first use.
pub struct Made<T>(AtomicPtr<T>);

impl<T: Send + Sync + 'static> Made<T> {
    /// Not made yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value; made now if it is not there.
    pub fn get(&self, make: impl FnOnce() -> T) -> &T {
        // Acquire and Release pair with each other: whoever finds the value finds all of it.
        let mut known = self.0.load(Ordering::Acquire);
        if known.is_null() {
            let ours = Box::into_raw(Box::new(make()));
            let null = std::ptr::null_mut();
            known = match self.0.compare_exchange(null, ours, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => ours,
                Err(first) => {
                    // SAFETY: made above, and seen by nobody.
                    drop(unsafe { Box::from_raw(ours) });
                    first
                }
            };
        }
        // SAFETY: made by `Box::into_raw` here, never freed and never written again.
        unsafe { &*known }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn a_value_is_made_once_and_nobody_waits_for_a_thread_that_is_making_it() {
        let (value, under_way) = (Made::new(), Barrier::new(2));
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                *value.get(|| {
                    under_way.wait();
                    under_way.wait();
                    1
                })
            });
            under_way.wait();
            assert_eq!(*value.get(|| 2), 2, "as in a child that is forked now, where that thread is not");
            under_way.wait();
            assert_eq!(slow.join().ok(), Some(2), "the first one stays");
        });
        assert_eq!(*value.get(|| 3), 2);
    }
}
