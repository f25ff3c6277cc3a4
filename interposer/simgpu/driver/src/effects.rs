//! What the other side can watch: host functions, callbacks, words of memory that a stream writes or waits
//! for, or a kernel spins for, and events that processes share. They happen when the stream comes to them.
//!
//! A stream that has such work gets a thread of its own, once. The stream holds (`Work::Host` in the ring); the
//! thread waits for what comes before, does it, and lets the stream go on. A blocked host function or a wait
//! that nobody ends holds up its own stream only, as on a GPU. Waits for words that only grow are `watch.rs`'s.
//!
//! Words of host memory are written without holding the stream: a GPU writes them in passing, and a stream that held
//! for a thread of ours would idle for as long as the thread takes to wake. The thread writes as soon as the stream has
//! come there, or whoever else sees before it that the stream has ([`catch_up`]).

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use weir_abi::types::*;

use crate::edge::Answer;
use crate::session::Session;
use crate::stream::Stream;
use crate::under_way::Writing;
use crate::work::{MemoryOperation, Work};
use crate::{locked, memory, session, watch};

/// Between two looks at a word that a stream waits for: short beside a kernel, long beside a look.
const LOOK: Duration = Duration::from_micros(20);
/// How a wait compares: the low bits of its flags.
pub const COMPARE: u32 = 0b11;

/// Work for a stream's thread: what to do, and the place at which the stream holds for it.
pub struct Effect {
    place: u64,
    work: Option<(Work, Writing)>, // `None`: a write in passing, which is listed
}

/// A write that its stream does not hold for.
struct Write {
    stream: &'static Stream,
    place: u64,
    operation: MemoryOperation,
    _writing: Writing,
}

/// Such writes to which the streams had not come, in the order of the calls, and how many there are.
static WRITES: Mutex<Vec<Write>> = Mutex::new(Vec::new());
static LISTED: AtomicUsize = AtomicUsize::new(0);

/// Gives such work to a stream.
pub fn submit(stream: &'static Stream, work: &Work) -> Answer {
    let session = session::current()?;
    catch_up(session);
    if watch::take(stream, work)? {
        return Ok(());
    }
    let (passing, writing) = (in_passing(work), Writing::of(work));
    // The lock keeps the thread's order that of the ring; `watch.rs` puts its holds under it, too.
    let mut thread = locked(&stream.effects);
    let sender = match thread.take() {
        Some(sender) => sender,
        None => start(stream)?,
    };
    if passing.is_none() {
        stream.holds.fetch_add(1, Ordering::AcqRel); // before: who looks behind a later place finds it
    }
    let place = match (work, passing) {
        (_, Some(_)) => session.mark(stream, session.cost_of(work))?,
        (Work::Spin(launch, _), _) => session.launch(stream, launch)?,
        _ => session.hold(stream, session.cost_of(work))?,
    };
    let work = match passing {
        Some(operation) => {
            let mut writes = locked(&WRITES);
            writes.push(Write { stream, place, operation, _writing: writing });
            LISTED.store(writes.len(), Ordering::Release);
            None
        }
        None => Some((work.clone(), writing)),
    };
    let sent = sender.send(Effect { place, work });
    *thread = Some(sender);
    sent.map_err(|_| CUDA_ERROR_UNKNOWN)
}

/// The one write of host memory that this work is, if it is.
fn in_passing(work: &Work) -> Option<MemoryOperation> {
    match work {
        Work::Memory(operations) => match operations.as_slice() {
            [operation @ MemoryOperation::Write { address, .. }] if memory::is_host(*address) => {
                Some(*operation)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Does the writes to which streams have come by now: whoever has seen that one has come further sees what it wrote.
pub fn catch_up(session: &Session) {
    // Acquire: with the list as it was when it was counted.
    if LISTED.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut writes = locked(&WRITES);
    writes.retain(|write| {
        // With its context everything that a stream was to do is gone.
        let gone = !write.stream.context.is_working();
        let due = gone || session.has_come_to(write.stream.slot, write.place);
        if due && !gone {
            on_word(&write.operation, &|| true);
        }
        !due
    });
    LISTED.store(writes.len(), Ordering::Release);
}

fn start(stream: &'static Stream) -> Answer<Sender<Effect>> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("weir-simgpu".into());
    let before = block_signals();
    let started = thread.spawn(move || serve(stream, &receiver));
    restore_signals(&before);
    started.map(|_| sender).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
}

/// Blocks all signals, so that a thread started now never runs the application's handlers.
pub fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are filled by the calls before they are read.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

/// Ends that.
pub fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that `block_signals` has filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

/// A stream's thread: until the stream is destroyed and empty, its context is, or the broker is gone.
fn serve(stream: &Stream, effects: &Receiver<Effect>) {
    let alive = || stream.context.is_working();
    for Effect { place, work } in effects {
        let done = session::current().and_then(|session| {
            let Some((work, _writing)) = work else { return session.wait(stream.slot, place) };
            session.wait(stream.slot, place - 1)?;
            stream.context.check_alive().and_then(|()| stream.context.check_whole())?;
            perform(&work, alive);
            session.resume(stream.slot, place)?;
            stream.holds.fetch_sub(1, Ordering::AcqRel);
            Ok(())
        });
        if done.is_err() {
            return;
        }
    }
}

fn perform(work: &Work, alive: impl Fn() -> bool) {
    match work {
        // SAFETY: the client passed the function and its argument to be called like this.
        Work::Host { function, data } => unsafe { function(*data) },
        // SAFETY: as above.
        Work::Callback { callback, stream, data } => unsafe { callback(*stream, CUDA_SUCCESS, *data) },
        Work::Spin(_, word) => on_word(word, &alive),
        Work::Reach(shared, number) => shared.reach(*number),
        Work::Await(shared, number) => shared.sleep_until_reached(*number, alive),
        Work::Memory(operations) => operations.iter().for_each(|operation| on_word(operation, &alive)),
        _ => {}
    }
}

/// Writes a word, or looks at it until it is as asked for, or the context is gone.
fn on_word(operation: &MemoryOperation, alive: &impl Fn() -> bool) {
    match *operation {
        MemoryOperation::Write { address, value, wide } => write(address, value, wide),
        MemoryOperation::Wait { address, value, flags, wide } => {
            while alive() && !holds(read(address, wide), value, flags, wide) {
                std::thread::sleep(LOOK);
            }
        }
    }
}

// Release and Acquire below: the words are how host threads and streams tell each other that data is ready.

fn write(address: u64, value: u64, wide: bool) {
    let place = memory::pointer(address);
    // SAFETY: an aligned word inside of a known allocation, checked at submission; atomic, as others watch it.
    unsafe {
        match wide {
            true => (*place.cast::<AtomicU64>()).store(value, Ordering::Release),
            false => (*place.cast::<AtomicU32>()).store(low(value), Ordering::Release),
        }
    }
}

/// A word as it is now.
pub fn read(address: u64, wide: bool) -> u64 {
    let place = memory::pointer(address);
    // SAFETY: as in `write`.
    unsafe {
        match wide {
            true => (*place.cast::<AtomicU64>()).load(Ordering::Acquire),
            false => (*place.cast::<AtomicU32>()).load(Ordering::Acquire).into(),
        }
    }
}

/// The low half of a word.
#[allow(clippy::cast_possible_truncation, reason = "a 32-bit operation uses the low half alone")]
fn low(word: u64) -> u32 {
    word as u32
}

/// Compares as the flags say: cyclically "at least", "equal", "some common bit", "not all bits in either".
pub fn holds(word: u64, value: u64, flags: u32, wide: bool) -> bool {
    let mask = if wide { u64::MAX } else { u64::from(u32::MAX) };
    match flags & COMPARE {
        0 if wide => word.wrapping_sub(value).cast_signed() >= 0,
        0 => low(word).wrapping_sub(low(value)).cast_signed() >= 0,
        1 => word == value,
        2 => word & value != 0,
        _ => !(word | value) & mask != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn a_wait_compares_as_its_flags_say() {
        assert!(holds(5, 5, 0, true) && holds(6, 5, 0, true) && !holds(4, 5, 0, true));
        assert!(holds(1, u64::from(u32::MAX), 0, false), "at least, cyclically");
        assert!(holds(5, 5, 1, true) && !holds(6, 5, 1, true));
        assert!(holds(6, 4, 2, true) && !holds(2, 4, 2, true));
        assert!(holds(1, 2, 3, true) && !holds(u64::from(u32::MAX), 0, 3, false));
    }
}
