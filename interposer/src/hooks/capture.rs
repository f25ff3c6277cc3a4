//! Capture: how many streams of this process capture now.

use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::CUDA_SUCCESS;

use crate::driver::Stream;
use crate::guard::guard;
use crate::link::{CAPTURE_TURN, CAPTURES};

/// A capture begins, if the driver agrees. Meanwhile nobody puts a mark anywhere: it could end up in the graph.
pub fn begin(call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |_| {
            let turn = CAPTURE_TURN.lock();
            // Counted before the call: a launch right behind it, on another thread, must ask its stream already.
            CAPTURES.fetch_add(1, Ordering::SeqCst);
            Ok(turn)
        },
        call,
        |_, _turn, result| {
            if result != CUDA_SUCCESS {
                leave();
            }
        },
    )
}

/// A capture ends, also one that was invalidated meanwhile; but not if the call fails and leaves the stream as it was.
pub fn end(stream: Stream, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |_| Ok(stream.is_capturing()),
        call,
        |_, before, _| {
            if before && !stream.is_capturing() {
                leave();
            }
        },
    )
}

/// A stream goes, and a capture in it too.
pub fn stream_gone(stream: Stream) {
    if CAPTURES.load(Ordering::SeqCst) > 0 && stream.is_capturing() {
        leave();
    }
}

/// Never below zero: an `EndCapture` without a beginning must not hide a later capture.
fn leave() {
    let _ = CAPTURES.try_update(Ordering::SeqCst, Ordering::SeqCst, |live| (live > 0).then_some(live - 1));
}
