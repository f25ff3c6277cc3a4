//! Synchronize and query calls: their return tells, exactly and for nothing, that work is done.

use weir_abi::CUresult;
use weir_abi::types::{CUDA_SUCCESS, CUcontext, CUstream};
use weir_core::flight::Due;
use weir_protocol::units::Nanos;

use super::meter::{ANYTHING, Hands, REMAINDER, STRETCH};
use super::{capture, pool};
use crate::driver::Stream;
use crate::guard::guard;
use crate::link::Client;
use crate::stall;
use crate::thread::{self, Current, Thread};

/// A wait for, or a question after, one stream. The legacy default stream waits for all blocking streams, but not
/// for the others: only its own work is taken as done.
pub fn stream(stream: Stream, call: impl FnOnce() -> CUresult) -> CUresult {
    drained(None, Some(stream), call)
}

/// A wait for everything in the thread's context, or in the one that is named. Of another than the thread's own nothing
/// is concluded: its marks will tell.
pub fn context(context: Option<CUcontext>, call: impl FnOnce() -> CUresult) -> CUresult {
    drained(context, None, call)
}

fn drained(context: Option<CUcontext>, stream: Option<Stream>, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| {
            let own = |current: &Current| context.is_none_or(|c| c.addr() as u64 == current.context.handle);
            let Some(current) = current(client).filter(own) else { return Ok(None) };
            thread::with(|thread| end_stretch(thread, &current, stream));
            current.gpu.book_runs();
            Ok(Some((current, current.context.flight.snapshot(stream.map(Stream::key)))))
        },
        call,
        |client, before, result| {
            let (Some((current, before)), CUDA_SUCCESS) = (before, result) else { return };
            thread::with(|thread| {
                Hands::new(thread, &current, stream.unwrap_or(thread.last_stream())).look();
            });
            current.context.flight.drained(&before, current.gpu.slot());
            current.gpu.end_if_idle();
            thread::with(|thread| stall::settle(&mut Hands::new(thread, &current, thread.last_stream())));
            pool::after_wait(client);
        },
    )
}

/// The program is about to wait: a stretch that began on an idle stream ends with the work so far, and so does one that
/// is long, or a while old.
pub(super) fn end_stretch(thread: &Thread, current: &Current, stream: Option<Stream>) {
    let last = thread.last_stream();
    thread.book_run();
    let covers_last = stream.is_none_or(|stream| stream.key() == last.key());
    if !covers_last {
        return;
    }
    let mut hands = Hands::new(thread, current, last);
    if thread.take_guess() || current.context.flight.wants_end(last.key()) {
        hands.put(ANYTHING);
    } else if !hands.put(REMAINDER) {
        hands.put(Due { work: Nanos(1), ..STRETCH });
    }
}

/// A wait for an event. Of the streams nothing is concluded; pools may give memory back.
pub fn event(call: impl FnOnce() -> CUresult) -> CUresult {
    guard(|_| Ok(()), call, |client, (), _| pool::after_wait(client))
}

/// A stream is about to go: nothing of ours may be put there any more, whatever context is current.
pub fn stream_gone(stream: CUstream, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| {
            thread::with(Thread::book_run);
            capture::stream_gone(Stream::legacy(stream));
            for gpu in &client.gpus {
                gpu.for_each_context(|context| context.flight.stream_gone(stream.addr() as u64, gpu.slot()));
            }
            Ok(())
        },
        call,
        |_, (), _| {},
    )
}

fn current(client: &'static Client) -> Option<Current> {
    thread::with(|thread| thread.find_current(client))
}
