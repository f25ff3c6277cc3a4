//! Streams that wait for each other: the legacy default stream waits for all blocking streams, and they for it (CUDA driver
//! API, stream synchronization behavior).
//!
//! A mark in one of them is a command like any other: whoever comes later waits for it, and it for what came before. Put by
//! the call that launches, it asks no more than the launch might have asked itself. Put at any other moment, say where the
//! program is about to wait for an older launch, it would join streams that the program never joined, of which one may be
//! parked until another releases it. So where both kinds are in use, only launches and copies put marks there.

use std::sync::atomic::{AtomicBool, Ordering};

use weir_abi::types::{CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD};

use crate::driver::{self, NullStream, Stream};

/// The legacy default stream was given work.
static LEGACY: AtomicBool = AtomicBool::new(false);
/// There is, or was, a stream that waits for it.
static BLOCKING: AtomicBool = AtomicBool::new(false);

fn set(flag: &AtomicBool) {
    // Relaxed: whoever marks meanwhile does it for a call that began before.
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Relaxed);
    }
}

/// A stream with these flags was made.
pub fn made(flags: u32) {
    if flags & CU_STREAM_NON_BLOCKING == 0 {
        set(&BLOCKING);
    }
}

/// A stream is given work.
pub fn used(stream: Stream) {
    if stream.is_default() {
        let own = stream.handle == CU_STREAM_PER_THREAD
            || (stream.handle.is_null() && stream.null == NullStream::PerThread);
        set(if own { &BLOCKING } else { &LEGACY });
    }
}

/// Whether a mark in this stream concerns no other one, whenever it is put.
pub fn is_apart(stream: Stream) -> bool {
    if !(LEGACY.load(Ordering::Relaxed) && BLOCKING.load(Ordering::Relaxed)) {
        return true;
    }
    !stream.is_default()
        && driver::flags(stream.handle).is_some_and(|flags| flags & CU_STREAM_NON_BLOCKING != 0)
}
