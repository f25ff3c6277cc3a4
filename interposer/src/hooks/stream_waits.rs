//! Streams that wait for a word in memory (`cuStreamWaitValue*`, and waits in a `cuStreamBatchMemOp`): until a stream has come
//! past its wait, any launch of the process may be the one that sets the word, and none is held back for long ([`excuse`]).
//!
//! An event of ours behind each wait says when its stream has come past it; it is asked for only when a launch on its long way
//! would be held back. Not seen: waits in a graph, and those of another process whose word a launch here sets. For these the
//! rule of liveness holds.
//!
//! [`excuse`]: super::excuse

use std::sync::atomic::{AtomicU32, Ordering};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::lock::Lock;
use weir_protocol::units::Nanos;

use super::copy_pieces;
use crate::clock;
use crate::driver::{self, Relaxed, Stream};
use crate::guard::guard;
use crate::link::{CAPTURES, Client};
use crate::thread;

/// Waits at once that are told apart; what comes beyond them begins no sequence.
const KNOWN: usize = 16;

/// Four standstills after it was put a wait is no handshake any more but a parked stream, which excuses nobody.
const LASTS: Nanos = Nanos::from_millis(20);

/// What a place holds.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stands {
    #[default]
    Free,
    /// The event is being put.
    Taken,
    UnderWay,
}

/// One wait. The event stays for the next one in the same context.
#[derive(Clone, Copy, Default)]
struct Wait {
    stands: Stands,
    context: u64,
    event: u64,
    put_at: Nanos,
}

/// The waits of this process.
#[derive(Default)]
pub struct StreamWaits {
    under_way: AtomicU32,
    waits: Lock<[Wait; KNOWN]>,
}

impl StreamWaits {
    /// Whether a stream has not come past a wait that was put a short while ago.
    pub fn any_under_way(&self) -> bool {
        // Relaxed: a wait that this thread put is in its own past; another thread's is seen by the next launch.
        self.under_way.load(Ordering::Relaxed) > 0 && self.look(clock::now())
    }

    #[cold]
    fn look(&self, now: Nanos) -> bool {
        let _relaxed = Relaxed::enter();
        let mut waits = self.waits.lock();
        for wait in waits.iter_mut().filter(|wait| wait.stands == Stands::UnderWay) {
            let passed = now.since(wait.put_at) > LASTS
                || driver::event_query(driver::handle(wait.event)) != CUDA_ERROR_NOT_READY;
            if !passed {
                return true;
            }
            wait.stands = Stands::Free;
            self.under_way.fetch_sub(1, Ordering::Relaxed);
        }
        false
    }

    /// A wait was put into `stream`, of this context.
    fn put(&self, context: u64, stream: Stream) {
        let Some((at, known)) = self.take(context) else { return };
        let _relaxed = Relaxed::enter();
        // Without the lock: where a queue is full, a record waits.
        let event = known.or_else(|| event_in(context)).filter(|event| stream.record(driver::handle(*event)));
        let mut waits = self.waits.lock();
        let Some(wait) = waits.get_mut(at) else { return };
        *wait = match event {
            Some(event) => Wait { stands: Stands::UnderWay, context, event, put_at: clock::now() },
            None => Wait::default(), // its context is gone, perhaps, and the event with it
        };
        self.under_way.fetch_add(u32::from(event.is_some()), Ordering::Relaxed);
    }

    /// A free place, with an event if it has one of this context.
    fn take(&self, context: u64) -> Option<(usize, Option<u64>)> {
        let mut waits = self.waits.lock();
        let free = |wait: &Wait| wait.stands == Stands::Free;
        let fits = |wait: &Wait| free(wait) && wait.context == context;
        let at = waits.iter().position(fits).or_else(|| waits.iter().position(free))?;
        let wait = waits.get_mut(at)?;
        wait.stands = Stands::Taken;
        Some((at, (wait.context == context && wait.event != 0).then_some(wait.event)))
    }
}

fn event_in(context: u64) -> Option<u64> {
    let _there = driver::Visit::to(driver::handle(context))?;
    let mut event: CUevent = std::ptr::null_mut();
    let made = driver::event_create(&raw mut event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    made.then(|| event.expose_provenance() as u64)
}

/// A stream is to wait for a word.
pub fn wait(stream: Stream, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| Ok(thread::with(|thread| thread.find_for(client, stream))),
        call,
        |client: &'static Client, current, result| {
            let captures = CAPTURES.load(Ordering::Relaxed) != 0 && stream.is_capturing();
            if let (Some(current), CUDA_SUCCESS, false) = (current, result, captures) {
                client.stream_waits.put(current.context.handle, stream);
            }
        },
    )
}

/// A stream is to do several things with words, and may be to wait.
pub fn batch(
    stream: Stream,
    list: *const CUstreamBatchMemOpParams,
    count: u32,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if waits(list, count) { wait(stream, call) } else { guard(|_| Ok(()), call, |_, (), _| {}) }
}

fn waits(list: *const CUstreamBatchMemOpParams, count: u32) -> bool {
    copy_pieces::list(list, count as usize)
        .iter()
        .any(|op| matches!(op.operation, CU_STREAM_MEM_OP_WAIT_VALUE_32 | CU_STREAM_MEM_OP_WAIT_VALUE_64))
}
