//! Capture: how many streams of this process capture now.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::CUresult;
use weir_abi::types::CUDA_SUCCESS;

use crate::driver::Stream;
use crate::guard::guard;
use crate::link::{CAPTURE_TURN, CAPTURES};
use crate::thread;

/// Captures told apart; a thread that began one beyond these may wait in it.
const CAPTURES_KNOWN: usize = 32;

/// A capture under way. Atomics and no lock: a fork may come at any moment.
struct Begun {
    stream: AtomicU64,
    thread: AtomicU64, // the address of the one that began it; 0: nobody
}

static BEGUN: [Begun; CAPTURES_KNOWN] =
    [const { Begun { stream: AtomicU64::new(0), thread: AtomicU64::new(0) } }; CAPTURES_KNOWN];

/// Whether the calling thread has begun a capture that has not ended. Nothing waits then: others may be kept from
/// their work by the capture, and the capture from its end by the wait (gpu-truths, rule 8).
pub fn by_this_thread() -> bool {
    // Relaxed: what this thread wrote, or somebody else for another thread.
    if CAPTURES.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let me = thread::address();
    BEGUN.iter().any(|b| b.thread.load(Ordering::Relaxed) == me)
}

/// A forked child has none of its parent's captures.
pub fn forget_all() {
    CAPTURES.store(0, Ordering::Relaxed);
    BEGUN.iter().for_each(|begun| begun.thread.store(0, Ordering::Relaxed));
}

fn remember(stream: Stream) {
    let me = thread::address();
    let mine =
        |begun: &&Begun| begun.thread.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if let Some(begun) = BEGUN.iter().find(mine) {
        begun.stream.store(stream.key(), Ordering::Relaxed);
    }
}

/// A capture begins, if the driver agrees. Meanwhile nobody puts a mark anywhere: it could end up in the graph.
pub fn begin(stream: Stream, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |_| {
            let turn = CAPTURE_TURN.lock();
            // Counted before the call: a launch right behind it, on another thread, must ask its stream already.
            CAPTURES.fetch_add(1, Ordering::SeqCst);
            Ok(turn)
        },
        call,
        |_, _turn, result| {
            if result == CUDA_SUCCESS {
                remember(stream);
            } else {
                count_out();
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
                leave(stream);
            }
        },
    )
}

/// A stream goes, and a capture in it too.
pub fn stream_gone(stream: Stream) {
    if CAPTURES.load(Ordering::SeqCst) > 0 && stream.is_capturing() {
        leave(stream);
    }
}

fn leave(stream: Stream) {
    let ended = |begun: &&Begun| {
        begun.thread.load(Ordering::Relaxed) != 0 && begun.stream.load(Ordering::Relaxed) == stream.key()
    };
    BEGUN.iter().filter(ended).for_each(|begun| begun.thread.store(0, Ordering::Relaxed));
    count_out();
}

/// Never below zero: an `EndCapture` without a beginning must not hide a later capture.
fn count_out() {
    let _ = CAPTURES.try_update(Ordering::SeqCst, Ordering::SeqCst, |live| (live > 0).then_some(live - 1));
}
