//! Counters of calls. Before `cuInit` they stand here; with the session the counts move to the page that the
//! broker reads, where they outlive this process.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use weir_abi::types::CUresult;
use weir_simgpu_link::page::{CALLS as COUNT, Page};

/// Counters of one kind, one per row of the table.
type Counters = [AtomicU64; COUNT];

static EARLY_CALLS: Counters = [const { AtomicU64::new(0) }; COUNT];
static EARLY_REFUSED: Counters = [const { AtomicU64::new(0) }; COUNT];
static CALLS: AtomicPtr<Counters> = AtomicPtr::new((&raw const EARLY_CALLS).cast_mut());
static REFUSED: AtomicPtr<Counters> = AtomicPtr::new((&raw const EARLY_REFUSED).cast_mut());

/// Counts a call.
#[inline]
pub fn count(index: usize) {
    bump(&CALLS, index);
}

/// Counts a call that was answered with an error, and passes the code on.
#[cold]
pub fn refused(index: usize, code: CUresult) -> CUresult {
    bump(&REFUSED, index);
    code
}

#[inline]
fn bump(counters: &AtomicPtr<Counters>, index: usize) {
    // SAFETY: either the static above or the page of the session, which is never unmapped.
    let counters = unsafe { &*counters.load(Ordering::Relaxed) };
    // Relaxed: a count orders nothing.
    counters[index].fetch_add(1, Ordering::Relaxed);
}

/// Moves the counts so far to the page of a session, where all further ones go.
pub fn move_to(page: &'static Page) {
    let moves = [(&CALLS, &EARLY_CALLS, &page.calls), (&REFUSED, &EARLY_REFUSED, &page.refused)];
    for (counters, early, shared) in moves {
        counters.store(std::ptr::from_ref(shared).cast_mut(), Ordering::Release);
        for (from, to) in early.iter().zip(shared) {
            to.fetch_add(from.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Counts here again: a forked child's calls are not its parent's.
pub fn start_again() {
    CALLS.store((&raw const EARLY_CALLS).cast_mut(), Ordering::Relaxed);
    REFUSED.store((&raw const EARLY_REFUSED).cast_mut(), Ordering::Relaxed);
}
