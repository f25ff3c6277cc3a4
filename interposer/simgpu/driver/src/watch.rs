//! Waits for words that only grow. One thread of the process looks at all of them and lets a stream go on as soon as its
//! word has got there, whether or not the stream has come to the wait: so it costs what it costs on a GPU, and no wake of
//! a thread of ours. A word that its host sets back meanwhile is taken for one that has come. One that a stream of this
//! process is yet to write is looked at when the waiting stream comes there (`effects.rs`), and so are waits that compare
//! in other ways.

use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use weir_abi::types::*;

use crate::edge::Answer;
use crate::effects::{COMPARE, block_signals, holds, read, restore_signals};
use crate::stream::Stream;
use crate::work::{MemoryOperation, Work};
use crate::{locked, session, under_way};

/// Between two looks: about what a GPU takes from a word to the first instruction behind it, and a part of one CPU.
const LOOK: Duration = Duration::from_micros(20);
/// How late the kernel may end a look's sleep, ns; its default is more than twice the sleep.
const SLACK_NS: u64 = 1_000;
/// "At least", the comparison of words that grow.
const AT_LEAST: u32 = 0;

/// A stream that waits for a word.
struct Wait {
    stream: &'static Stream,
    place: u64,
    word: Word,
}

/// What the word must be.
#[derive(Clone, Copy)]
struct Word {
    address: u64,
    value: u64,
    flags: u32,
    wide: bool,
}

impl Word {
    /// The one word that grows for which this work waits, if it does.
    fn of(work: &Work) -> Option<Self> {
        let Work::Memory(operations) = work else { return None };
        match *operations.as_slice() {
            [MemoryOperation::Wait { address, value, flags, wide }] if flags & COMPARE == AT_LEAST => {
                Some(Self { address, value, flags, wide })
            }
            _ => None,
        }
    }

    fn has_come(self) -> bool {
        holds(read(self.address, self.wide), self.value, self.flags, self.wide)
    }
}

/// All of them, and the thread's alarm.
static WAITS: Mutex<Vec<Wait>> = Mutex::new(Vec::new());
static MORE: Condvar = Condvar::new();
static STARTED: Mutex<bool> = Mutex::new(false);

/// Takes a wait over, if it is one for this file.
pub fn take(stream: &'static Stream, work: &Work) -> Answer<bool> {
    let Some(word) = Word::of(work).filter(|word| !under_way::is_to_be_written(word.address)) else {
        return Ok(false);
    };
    let session = session::current()?;
    if word.has_come() {
        session.mark(stream, session.cost_of(work))?;
        return Ok(true);
    }
    start()?;
    let order = locked(&stream.effects);
    let place = session.hold(stream, session.cost_of(work))?;
    locked(&WAITS).push(Wait { stream, place, word });
    drop(order);
    MORE.notify_one();
    Ok(true)
}

fn start() -> Answer {
    let mut started = locked(&STARTED);
    if !*started {
        let before = block_signals();
        let thread = std::thread::Builder::new().name("weir-simgpu-watch".into()).spawn(watch);
        restore_signals(&before);
        *started = thread.is_ok();
    }
    if *started { Ok(()) } else { Err(CUDA_ERROR_OPERATING_SYSTEM) }
}

/// The thread.
fn watch() {
    // SAFETY: sets a property of the calling thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
    let mut waits = locked(&WAITS);
    loop {
        while waits.is_empty() {
            waits = MORE.wait(waits).unwrap_or_else(PoisonError::into_inner);
        }
        let mut held = Vec::new(); // streams that hold at a wait before the one at hand
        waits.retain(|wait| {
            let over = wait.is_over(held.contains(&wait.stream.slot));
            if !over {
                held.push(wait.stream.slot);
            }
            !over
        });
        drop(waits);
        std::thread::sleep(LOOK);
        waits = locked(&WAITS);
    }
}

impl Wait {
    /// Whether it is over; then its stream goes on, if there is any left. What lets a stream go lets it go up to there: so none is let
    /// go before it has come to the wait, if it may hold `before` that.
    fn is_over(&self, before: bool) -> bool {
        let Self { stream, place, word } = self;
        if !stream.context.is_working() {
            return true;
        }
        let Ok(session) = session::current() else { return true }; // everything ends with the broker
        let before = before || stream.holds.load(Ordering::Acquire) > 0;
        if !word.has_come() || before && !session.has_come_to(stream.slot, place - 1) {
            return false;
        }
        let _told = session.resume(stream.slot, *place);
        true
    }
}
