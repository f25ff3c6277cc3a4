//! Capture: how many streams of this process capture now.

use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::CUDA_SUCCESS;
use weir_core::lock::Lock;

use crate::driver::Stream;
use crate::link::{CAPTURE_TURN, CAPTURES};
use crate::thread;

/// Which streams capture, and which thread began each: the stream's key, the thread's address.
static BEGUN: Lock<Vec<(u64, u64)>> = Lock::new(Vec::new());

/// Whether the calling thread has begun a capture that has not ended. Nothing waits then: others may be kept from
/// their work by the capture, and the capture from its end by the wait (gpu-truths, rule 8).
pub fn by_this_thread() -> bool {
    let me = thread::address();
    CAPTURES.load(Ordering::Relaxed) != 0 && BEGUN.lock().iter().any(|(_, thread)| *thread == me)
}

/// A capture begins, if the driver agrees. Meanwhile nobody puts a mark anywhere: it could end up in the graph.
pub fn begin(stream: Stream, call: impl FnOnce() -> CUresult) -> CUresult {
    let _turn = CAPTURE_TURN.lock();
    // Counted before the call: a launch right behind it, on another thread, must ask its stream already.
    CAPTURES.fetch_add(1, Ordering::SeqCst);
    let result = call();
    if result == CUDA_SUCCESS {
        BEGUN.lock().push((stream.key(), thread::address()));
    } else {
        count_out();
    }
    result
}

/// A capture ends, also one that was invalidated meanwhile; but not if the call fails and leaves the stream as it was.
pub fn end(stream: Stream, call: impl FnOnce() -> CUresult) -> CUresult {
    let before = stream.is_capturing();
    let result = call();
    if before && !stream.is_capturing() {
        leave(stream);
    }
    result
}

/// A stream goes, and a capture in it too.
pub fn stream_gone(stream: Stream) {
    if CAPTURES.load(Ordering::SeqCst) > 0 && stream.is_capturing() {
        leave(stream);
    }
}

fn leave(stream: Stream) {
    BEGUN.lock().retain(|(key, _)| *key != stream.key());
    count_out();
}

/// Never below zero: an `EndCapture` without a beginning must not hide a later capture.
fn count_out() {
    let _ = CAPTURES.try_update(Ordering::SeqCst, Ordering::SeqCst, |live| (live > 0).then_some(live - 1));
}
