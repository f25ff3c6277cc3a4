//! The end of a thread: what it has on the heap is given back.
//!
//! Seen by a key of the C library's and not by a value with a destructor: of those each runs once, and a launch from a later one
//! would leave behind what it made. A key's destructor runs again.

use std::ffi::c_void;
use std::ptr::without_provenance;
use std::sync::atomic::{AtomicU32, Ordering};

/// The key and one; zero before it is made.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The calling thread has something to give back when it ends.
pub(super) fn expect() {
    let Some(key) = key() else { return };
    // SAFETY: the key is never deleted; its destructor does not look at the value, which only must not be null.
    unsafe { libc::pthread_setspecific(key, without_provenance(1)) };
}

/// The key; `None` if the process has used up all that there are: then its threads give nothing back.
fn key() -> Option<libc::pthread_key_t> {
    if let Some(known) = KEY.load(Ordering::Relaxed).checked_sub(1) {
        return Some(known);
    }
    let mut ours = 0;
    // SAFETY: a place for the key, and a destructor that stays as the library does.
    if unsafe { libc::pthread_key_create(&raw mut ours, Some(ends)) } != 0 {
        return None;
    }
    // Relaxed: a key is a number and nothing else.
    match KEY.compare_exchange(0, ours + 1, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Some(ours),
        Err(first) => {
            // SAFETY: made above, and nobody else's; another thread was faster.
            unsafe { libc::pthread_key_delete(ours) };
            Some(first - 1)
        }
    }
}

unsafe extern "C" fn ends(_: *mut c_void) {
    // SAFETY: a thread that ends is in none of our hooks, or does not come back to it.
    super::with(|thread| unsafe { thread.cache.release() });
}
