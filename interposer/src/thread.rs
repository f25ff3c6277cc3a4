//! What a thread keeps at hand: the GPU of its context, its purse, its price cache, its counters.
//!
//! All of it is `const`-initialised and without destructor: the driver is called from exit handlers too, when
//! values with a destructor are gone.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::types::*;
use weir_core::price::{Cache, Parts};
use weir_core::purse::Purse;
use weir_protocol::pages::Lane;

use crate::driver::{self, Stream};
use crate::link::{CAPTURES, Client, Context, Gpu, SHARED_LANE};

/// GPUs for which a thread keeps a purse and a lane. A server has 8 or 16; threads that use more share the last.
const GPUS: usize = 16;

/// One thread.
pub struct Thread {
    /// Estimates at hand.
    pub cache: Cache,
    inside: Cell<bool>,
    current: Cell<Option<Current>>,
    purses: [Purse; GPUS],
    lanes: [Cell<Option<Counters>>; GPUS],
    run: Kept,            // the stream of its run
    window: Kept,         // the stream of all its launches since its last mark
    marked_at: Cell<u64>, // what its lane had charged at its last mark
    last: Cell<Stream>,
    owes: Cell<bool>,    // a copy that could not wait went beyond the budget of bandwidth
    guessed: Cell<bool>, // a launch since the program last waited was charged by guess
}

/// A stream's key, [`NO_RUN`] at first. Kept inverted: a thread's storage is all zeroes until it is used, or every program
/// that starts would pay for a copy of it.
struct Kept(Cell<u64>);

impl Kept {
    const fn new() -> Self {
        Self(Cell::new(!NO_RUN))
    }

    fn get(&self) -> u64 {
        !self.0.get()
    }

    fn set(&self, key: u64) {
        self.0.set(!key);
    }

    fn replace(&self, key: u64) -> u64 {
        !self.0.replace(!key)
    }
}

/// Where the thread's launches go.
#[derive(Clone, Copy)]
pub struct Current {
    /// The GPU of its context.
    pub gpu: &'static Gpu,
    /// Its context.
    pub context: &'static Context,
    /// Its counters there.
    pub counters: Counters,
}

/// A thread's counter lane.
#[derive(Clone, Copy)]
pub struct Counters {
    lane: &'static Lane,
    index: u32,
    shared: u32, // 0 or 1; a `bool` would make "none" anything but zero, and every thread's storage a copy
}

/// No stream has this key: it would be an address beyond user space.
const NO_RUN: u64 = u64::MAX;

/// Launches went to several streams.
const MIXED: u64 = u64::MAX - 1;

thread_local! {
    static THREAD: Thread = const {
        Thread {
            cache: Cache::new(),
            inside: Cell::new(false),
            current: Cell::new(None),
            purses: [const { Purse::new() }; GPUS],
            lanes: [const { Cell::new(None) }; GPUS],
            run: Kept::new(),
            window: Kept::new(),
            marked_at: Cell::new(0),
            last: Cell::new(Stream::DEFAULT),
            owes: Cell::new(false),
            guessed: Cell::new(false),
        }
    };
}

/// Runs `f` on this thread's things.
#[inline]
pub fn with<R>(f: impl FnOnce(&Thread) -> R) -> R {
    // No destructor, so the value is there even while the thread ends.
    THREAD.with(f)
}

/// A number that tells threads apart.
pub fn address() -> u64 {
    with(Thread::address)
}

/// The thread's context may change now: what it has launched there is booked, and the driver is asked at the next launch.
pub fn leave_context() {
    with(|thread| {
        thread.book_run();
        thread.current.set(None);
    });
}

/// A forked child starts from nothing: lanes, purse and context were its parent's.
pub fn start_afresh() {
    with(|thread| {
        thread.current.set(None);
        thread.run.set(NO_RUN);
        thread.window.set(NO_RUN);
        thread.cache.clear();
        thread.lanes.iter().for_each(|lane| lane.set(None));
        for purse in &thread.purses {
            purse.empty();
        }
    });
}

impl Thread {
    /// A number that tells threads apart: where their things lie.
    #[inline]
    pub fn address(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    /// Where the thread's launches go, if it is known.
    #[inline]
    pub fn current(&self) -> Option<Current> {
        self.current.get()
    }

    /// Where the thread's launches go; asks the driver if need be. `None`: no context, or none of the tenant's
    /// GPUs.
    pub fn find_current(&self, client: &'static Client) -> Option<Current> {
        if let Some(current) = self.current.get() {
            return Some(current);
        }
        let (mut device, mut handle): (CUdevice, CUcontext) = (0, std::ptr::null_mut());
        if driver::context_device(&raw mut device) != CUDA_SUCCESS
            || driver::current_context(&raw mut handle) != CUDA_SUCCESS
        {
            return None;
        }
        let gpu = client.gpu_of_device(device)?;
        let context = gpu.context(handle.addr() as u64);
        let current = Current { gpu, context, counters: self.counters(gpu)? };
        self.current.set(Some(current));
        Some(current)
    }

    /// Where a launch into `stream` goes: a stream may belong to another context than the thread's, on another GPU even,
    /// or be used without a current one.
    pub fn find_for(&self, client: &'static Client, stream: Stream) -> Option<Current> {
        let own = self.find_current(client);
        if stream.is_default() || own.is_some_and(|own| own.context.flight.knows(stream.key())) {
            return own;
        }
        // Relaxed: a capture that this thread began is in its own past. A stream that captures is asked nothing else.
        if CAPTURES.load(Ordering::Relaxed) != 0 && stream.is_capturing() {
            return own;
        }
        match stream.context() {
            Some(handle) if own.is_none_or(|own| own.context.handle != handle.addr() as u64) => {
                self.elsewhere(client, handle).or(own)
            }
            _ => own,
        }
    }

    /// Another context than the thread's.
    fn elsewhere(&self, client: &'static Client, handle: CUcontext) -> Option<Current> {
        let number = handle.expose_provenance() as u64;
        let known = client.gpus.iter().find_map(|gpu| Some((gpu, gpu.find_context(number)?)));
        let (gpu, context) = known.or_else(|| {
            let _there = driver::Visit::to(handle)?; // its events shall be made there
            let mut device: CUdevice = 0;
            if driver::context_device(&raw mut device) != CUDA_SUCCESS {
                return None;
            }
            let gpu = client.gpu_of_device(device)?;
            Some((gpu, gpu.context(number)))
        })?;
        Some(Current { gpu, context, counters: self.counters(gpu)? })
    }

    /// The thread's purse on a GPU.
    #[inline]
    pub fn purse(&self, gpu: &Gpu) -> Option<&Purse> {
        self.purses.get(gpu.index.min(GPUS - 1))
    }

    fn counters(&self, gpu: &'static Gpu) -> Option<Counters> {
        let slot = self.lanes.get(gpu.index.min(GPUS - 1))?;
        let counters = slot.get().unwrap_or_else(|| {
            let index = gpu.next_lane();
            let lane = gpu.slot().lanes.get(index).unwrap_or(&gpu.slot().lanes[SHARED_LANE]);
            let shared = u32::from(index == SHARED_LANE);
            Counters { lane, index: u32::try_from(index).unwrap_or(0), shared }
        });
        slot.set(Some(counters));
        Some(counters)
    }

    /// Whether this thread's last launch went to this stream and stands booked as its run: one more needs no booking.
    #[inline]
    pub fn runs_on(&self, stream: Stream) -> bool {
        self.run.get() == stream.key_on(self)
    }

    /// A copy that could not wait went beyond the budget of bandwidth.
    pub fn note_debt(&self) {
        self.owes.set(true);
    }

    /// Whether one did since the last call.
    pub fn take_debt(&self) -> bool {
        self.owes.replace(false)
    }

    /// A launch is charged by guess.
    pub fn note_guess(&self) {
        self.guessed.set(true);
    }

    /// Whether a launch since the last call was charged by guess.
    pub fn take_guess(&self) -> bool {
        self.guessed.replace(false)
    }

    /// The stream of the last launch.
    pub fn last_stream(&self) -> Stream {
        self.last.get()
    }

    /// A launch at `ns` goes to this stream, and is counted next: whoever books what has been counted shall find it on no
    /// other stream. The first one on another stream than the last books what went there.
    #[inline]
    pub fn add_to_run(&self, current: &Current, stream: Stream, ns: u64) {
        let key = stream.key();
        if current.counters.shared != 0 {
            current.context.flight.opens(key, stream.place(), || current.gpu.launched());
            let run = &current.gpu.runs[SHARED_LANE];
            run.book_shared(current.context, key, ns, current.gpu.slot());
            self.run.set(NO_RUN); // on a shared lane each launch is booked by itself
            self.last.set(stream);
        } else if self.run.get() != key {
            self.open_run(current, stream);
        }
    }

    /// As [`Self::add_to_run`], for a launch that may go to another GPU than the thread's: such launches are booked one by
    /// one, so that none of them takes the launch path's short way.
    pub fn add_wherever(&self, current: &Current, stream: Stream, ns: u64) {
        if self.current.get().is_some_and(|own| own.gpu.index == current.gpu.index) {
            return self.add_to_run(current, stream, ns);
        }
        let (gpu, context, key) = (current.gpu, current.context, stream.key());
        context.flight.opens(key, stream.place(), || gpu.launched());
        if let Some(run) = gpu.runs.get(current.counters.index as usize) {
            run.book_shared(context, key, ns, gpu.slot());
        }
        self.run.set(NO_RUN);
        self.window.set(MIXED);
        self.last.set(stream);
    }

    fn open_run(&self, current: &Current, stream: Stream) {
        let (gpu, counters) = (current.gpu, current.counters);
        let Some(run) = gpu.runs.get(counters.index as usize) else { return };
        run.book_up_to(counters.lane.charged_ns.load(Ordering::Relaxed), gpu.slot());
        current.context.flight.opens(stream.key(), stream.place(), || gpu.launched());
        run.open(current.context, stream.key());
        self.run.set(stream.key());
        self.last.set(stream);
        let window = self.window.get();
        self.window.set(if window == NO_RUN || window == stream.key() { stream.key() } else { MIXED });
    }

    /// Books this thread's launches as in flight.
    pub fn book_run(&self) {
        if let Some(Current { gpu, counters, .. }) = self.current.get()
            && let Some(run) = gpu.runs.get(counters.index as usize)
        {
            run.book(counters.lane, gpu.slot());
        }
        self.run.set(NO_RUN);
    }

    /// The launches since this thread's last mark; mixed, unless they are all that was charged on `stream` since its own last
    /// mark.
    pub fn take_launches(&self, stream: u64, charged: u64, parts: &mut Parts) {
        self.cache.take(parts);
        let counters = self.current.get().map(|current| current.counters);
        let total = counters.map_or(0, |counters| counters.lane.charged_ns.load(Ordering::Relaxed));
        let mine = total.wrapping_sub(self.marked_at.replace(total));
        if self.window.replace(NO_RUN) != stream || mine != charged {
            parts.mix(); // other threads launched there, or this one elsewhere
        }
    }
}

impl Counters {
    /// Counts one call of a launch symbol and what it was charged.
    #[inline]
    pub fn launched(&self, call: usize, charged_ns: u64) {
        if let Some(calls) = self.lane.calls.get(call) {
            self.add(calls, 1);
        }
        self.add(&self.lane.charged_ns, charged_ns);
    }

    /// Takes back what a launch was charged that the driver refused.
    pub fn uncharge(&self, ns: u64) {
        self.add(&self.lane.charged_ns, ns.wrapping_neg());
    }

    /// Adds to one of the lane's counters.
    #[inline]
    pub fn add(&self, counter: &AtomicU64, amount: u64) {
        // Counters are for people and for the manager's sums. A lane of one's own needs no locked instruction: nobody else
        // writes it. Release: whoever finds what was charged finds the run that it belongs to (`Run::book`).
        if self.shared != 0 {
            counter.fetch_add(amount, Ordering::Relaxed);
        } else {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Release);
        }
    }

    /// The lane itself.
    pub fn lane(&self) -> &'static Lane {
        self.lane
    }
}

/// The thread is inside one of our hooks. Calls that the driver makes meanwhile, on its own behalf, pass through.
pub struct Inside(());

impl Inside {
    /// Enters, unless the thread is inside already.
    pub fn enter() -> Option<Self> {
        with(|thread| (!thread.inside.replace(true)).then_some(Self(())))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        with(|thread| thread.inside.set(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::a_gpu;

    #[test]
    fn what_goes_to_another_stream_is_booked_there_and_nowhere_else_whoever_books_it_when() {
        let gpu = a_gpu();
        let (context, [first, second]) =
            (gpu.context(1), [0x10, 0x20].map(|n| Stream::legacy(driver::handle(n))));
        let busy = || [first, second].map(|stream| context.flight.is_busy(stream.key()));
        with(|thread| {
            let counters = thread.counters(gpu).unwrap();
            let current = Current { gpu, context, counters };
            thread.add_to_run(&current, first, 100);
            counters.launched(0, 100);
            gpu.book_runs();
            assert_eq!(busy(), [true, false]);
            context.flight.drained(&context.flight.snapshot(None), gpu.slot());
            thread.add_to_run(&current, second, 50);
            gpu.book_runs(); // another thread's look
            counters.launched(0, 50);
            gpu.book_runs();
            assert_eq!(busy(), [false, true]);
            assert_eq!(weir_core::gate::in_flight(gpu.slot()).0, 50);
        });
    }
}
