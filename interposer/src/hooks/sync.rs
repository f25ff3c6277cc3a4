//! Synchronize and query calls: their return tells, exactly and for nothing, that work is done.

use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::{CUDA_SUCCESS, CUcontext, CUevent, CUstream};

use super::meter::{ANYTHING, Hands};
use super::{capture, pool};
use crate::clock;
use crate::driver::Stream;
use crate::guard::{after_success, guard};
use crate::joins;
use crate::link::{CAPTURES, Context};
use crate::stall;
use crate::thread::{self, Current, Thread};

/// Whether the call returns at once. One that asks may do so again and again, and is no end of a burst.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It waits.
    Waits,
    /// It asks.
    Asks,
}

/// A wait for, or a question after, one stream. The legacy default stream waits for all blocking streams, but not
/// for the others: only its own work is taken as done.
pub fn stream(stream: Stream, how: How, call: impl FnOnce() -> CUresult) -> CUresult {
    drained(None, Some(stream), how, call)
}

/// A wait for everything in the thread's context, or in the one that is named. Of another than the thread's own nothing
/// is concluded: its marks will tell.
pub fn context(context: Option<CUcontext>, call: impl FnOnce() -> CUresult) -> CUresult {
    drained(context, None, How::Waits, call)
}

fn drained(
    context: Option<CUcontext>,
    stream: Option<Stream>,
    how: How,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| {
            let own = |current: &Current| context.is_none_or(|c| c.addr() as u64 == current.context.handle);
            let current = thread::with(|thread| match stream {
                Some(stream) => thread.find_for(client, stream),
                None => thread.find_current(client),
            });
            let Some(current) = current.filter(own) else { return Ok(None) };
            thread::with(|thread| end_stretch(thread, &current, stream, how));
            current.gpu.book_runs();
            if how == How::Waits {
                current.gpu.note_blocks(true);
            }
            // A primary context is waited for with its green ones.
            let green =
                if stream.is_none() { current.gpu.parts_of(current.context.handle) } else { Vec::new() };
            let green: Vec<_> = green.into_iter().map(|part| (part, part.flight.snapshot(None))).collect();
            Ok(Some((current, current.context.flight.snapshot(stream.map(Stream::key)), green)))
        },
        call,
        |client, before, result| {
            let Some((current, before, green)) = before else { return };
            if how == How::Waits {
                current.gpu.note_returns();
            }
            if result != CUDA_SUCCESS {
                return;
            }
            thread::with(|thread| {
                Hands::new(thread, &current, stream.unwrap_or(thread.last_stream())).look();
            });
            let (slot, now) = (current.gpu.slot(), clock::now());
            current.context.flight.drained(&before, slot, now);
            green.iter().for_each(|(part, before)| part.flight.drained(before, slot, now));
            current.gpu.end_if_idle();
            thread::with(|thread| stall::settle(&mut Hands::new(thread, &current, thread.last_stream())));
            pool::after_wait(client);
        },
    )
}

/// The program is about to wait: a stretch that began on an idle stream ends with the work so far, and so does one that
/// is long, or a while old.
pub(super) fn end_stretch(thread: &Thread, current: &Current, stream: Option<Stream>, how: How) {
    let last = thread.last_stream();
    thread.book_run();
    let covers_last = match stream {
        Some(stream) => stream.key() == last.key(),
        None => current.context.flight.knows(last.key()), // not a stream of another context
    };
    let mut hands = Hands::new(thread, current, last);
    let between_a_pair = how == How::Asks && thread.pairs.expects(last.key());
    if covers_last && !between_a_pair && joins::is_apart(last) {
        if thread.take_guess() || current.context.flight.wants_end(last.key()) {
            hands.put_last(ANYTHING);
        } else {
            hands.put_end();
        }
    }
    if how == How::Waits {
        hands.put_ends(stream);
    }
}

/// The application records an event of its own: once it was reached, what lies before it is done. In a stream that
/// captures nothing lies before it.
pub fn record(event: CUevent, stream: Stream, call: impl FnOnce() -> CUresult) -> CUresult {
    after_success(call, |client| {
        if CAPTURES.load(Ordering::Relaxed) == 0
            && let Some(current) = thread::with(|thread| thread.find_for(client, stream))
        {
            thread::with(Thread::book_run);
            current.context.flight.recorded(event.addr() as u64, stream.key());
        }
    })
}

/// An event is about to go: its handle may come to stand for another one.
pub fn event_gone(event: CUevent, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| {
            let forget = |context: &&'static Context| context.flight.event_gone(event.addr() as u64);
            client.gpus.iter().for_each(|gpu| gpu.for_each_context(forget));
            Ok(())
        },
        call,
        |_, (), _| {},
    )
}

/// A wait for an event, or a question after it. Pools may give memory back.
pub fn event(event: CUevent, how: How, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| {
            let current = thread::with(|thread| thread.find_current(client));
            if let Some(current) = &current {
                thread::with(|thread| end_stretch(thread, current, None, how));
                if how == How::Waits {
                    current.gpu.note_blocks(false);
                }
            }
            Ok(current)
        },
        call,
        |client, current, result| {
            if let Some(current) = &current
                && how == How::Waits
            {
                current.gpu.note_returns();
            }
            if let (Some(current), CUDA_SUCCESS) = (current, result) {
                thread::with(|thread| Hands::new(thread, &current, thread.last_stream()).look());
                current.context.flight.event_reached(event.addr() as u64, current.gpu.slot());
                current.gpu.end_if_idle();
                pool::after_wait(client);
            }
        },
    )
}

/// A stream comes into being.
pub fn stream_made(flags: u32, call: impl FnOnce() -> CUresult) -> CUresult {
    after_success(call, |_| joins::made(flags))
}

/// A stream is about to go: nothing of ours may be put there any more, whatever context is current.
pub fn stream_gone(stream: CUstream, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| {
            thread::with(Thread::book_run);
            capture::stream_gone(Stream::legacy(stream));
            for gpu in &client.gpus {
                gpu.for_each_context(|context| {
                    gpu.let_go_up_to(context.flight.behind(stream.addr() as u64)); // its work counts as done below
                    context.flight.stream_gone(stream.addr() as u64, gpu.slot());
                });
            }
            Ok(())
        },
        call,
        |_, (), _| {},
    )
}
