//! What a thread keeps at hand: the GPU of its context, its purse, its price cache, its counters.
//!
//! All of it is `const`-initialised and without destructor: the driver is called from exit handlers too, when
//! values with a destructor are gone. It is small, and all zeroes until it is used: each thread of each program begins with
//! clearing it. What is large lies on the heap from the first launch to the thread's end.

mod counters;
mod end;
mod pairs;
mod run;

use std::cell::Cell;
use std::sync::atomic::Ordering;

use weir_abi::types::*;
use weir_core::price::{Cache, Estimate, Signature};
use weir_core::purse::Purse;

pub use self::counters::Counters;
pub use self::pairs::{Pair, Pairs};
use self::run::{Kept, NO_RUN};
use crate::driver::{self, Stream};
use crate::link::{CAPTURES, Client, Context, Gpu};

/// GPUs for which a thread keeps a purse and a lane. A server has 8 or 16; threads that use more share the last.
const GPUS: usize = 16;

/// One thread.
pub struct Thread {
    /// Estimates at hand.
    pub cache: Cache,
    /// Streams in which launches overlap.
    pub pairs: Pairs,
    inside: Cell<bool>,
    current: Cell<Option<Current>>,
    purses: [Purse; GPUS],
    lanes: [Cell<Option<Counters>>; GPUS],
    run: Kept,            // the stream of its run
    window: Kept,         // the stream of all its launches since its last mark
    marked_at: Cell<u64>, // what its lane had charged at its last mark
    marked: Kept,         // the stream of its last mark
    in_turn: Cell<u32>,   // so many more of its marks stand among launches that go to several streams in turn
    last: Cell<Stream>,
    owes: Cell<bool>,    // a copy that could not wait went beyond the budget of bandwidth
    guessed: Cell<bool>, // a launch since the program last waited was charged by guess
    called: Cell<bool>,  // by the driver: it runs a host function of the program's
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

thread_local! {
    static THREAD: Thread = const {
        Thread {
            cache: Cache::new(),
            pairs: Pairs::new(),
            inside: Cell::new(false),
            current: Cell::new(None),
            purses: [const { Purse::new() }; GPUS],
            lanes: [const { Cell::new(None) }; GPUS],
            run: Kept::new(),
            window: Kept::new(),
            marked_at: Cell::new(0),
            marked: Kept::new(),
            in_turn: Cell::new(0),
            last: Cell::new(Stream::DEFAULT),
            owes: Cell::new(false),
            guessed: Cell::new(false),
            called: Cell::new(false),
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
            let current = Current { counters: current.counters.on_slot_of(current.gpu), ..current };
            self.current.set(Some(current));
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
        let known = slot.get().map(|known| known.on_slot_of(gpu));
        let counters = known.unwrap_or_else(|| Counters::of_new_thread(gpu));
        slot.set(Some(counters));
        Some(counters)
    }

    /// Keeps an estimate at hand.
    pub fn keep(&self, signature: &Signature, estimate: &'static Estimate) {
        if !self.cache.has_slots() {
            end::expect();
        }
        self.cache.put(signature, estimate);
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

    /// Runs a host function of the program's, on a thread of the driver's.
    pub fn calls_back(&self, function: impl FnOnce()) {
        let before = self.called.replace(true);
        function();
        self.called.set(before);
    }

    /// Whether it is in one.
    pub fn is_called_back(&self) -> bool {
        self.called.get()
    }

    /// Whether a launch since the last call was charged by guess.
    pub fn take_guess(&self) -> bool {
        self.guessed.replace(false)
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
