//! Capture: how many streams of this process capture now.

use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::CUDA_SUCCESS;

use crate::link::CAPTURES;

/// A capture begins, if the driver agrees.
pub fn begin(call: impl FnOnce() -> CUresult) -> CUresult {
    // Counted before the call: a launch right behind it, on another thread, must ask its stream already.
    CAPTURES.fetch_add(1, Ordering::SeqCst);
    let result = call();
    if result != CUDA_SUCCESS {
        leave();
    }
    result
}

/// A capture ends, also one that was invalidated meanwhile: the driver then answers with an error, and the stream
/// no longer captures.
pub fn end(call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    leave();
    result
}

/// Never below zero: an `EndCapture` without a beginning must not hide a later capture.
fn leave() {
    let _ = CAPTURES.try_update(Ordering::SeqCst, Ordering::SeqCst, |live| (live > 0).then_some(live - 1));
}
