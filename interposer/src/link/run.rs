//! Runs: which stream each thread launches to, and what of its launches is booked as in flight.
//!
//! The launch path adds its price to the thread's own counter lane and no more. What stands there beyond `booked` has
//! gone to the stream of the thread's run; whoever needs the books to be whole, on whatever thread, books it. So a launch to
//! another stream opens a run there first, and is counted then.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use weir_protocol::pages::{Lane, ProcessSlot};

use super::Context;

/// One lane's run. The key is written by the lane's thread alone, `booked` by anybody.
#[derive(Default)]
pub struct Run {
    stream: AtomicU64,
    context: AtomicPtr<Context>,
    booked: AtomicU64,
    launched: AtomicU64, // so many launches
}

impl Run {
    /// The lane's thread launches to `stream` of `context` from now on. What came before has been booked.
    pub fn open(&self, context: &'static Context, stream: u64) {
        self.stream.store(stream, Ordering::Relaxed);
        // Release: whoever finds the context finds the stream that goes with it, or a younger one.
        self.context.store(std::ptr::from_ref(context).cast_mut(), Ordering::Release);
    }

    /// As [`Self::book`], by the lane's own thread, before it turns to another stream.
    pub fn book_own(&self, lane: &Lane, slot: &ProcessSlot) {
        let charged = lane.charged_ns.load(Ordering::Relaxed);
        // SAFETY: null, or a context that `open` was given, which lives as long as the process.
        let Some(known) = (unsafe { self.context.load(Ordering::Relaxed).as_ref() }) else {
            self.booked.fetch_max(charged, Ordering::Relaxed); // what a captured stream took was nobody's
            return;
        };
        self.settle((known, self.stream.load(Ordering::Relaxed)), charged, lane, slot);
    }

    /// Books what the lane has charged and nobody has booked.
    pub fn book(&self, lane: &Lane, slot: &ProcessSlot) {
        let context = self.context.load(Ordering::Acquire);
        let stream = self.stream.load(Ordering::Relaxed);
        // Acquire: what was charged to another run by now shows that run below.
        let charged = lane.charged_ns.load(Ordering::Acquire);
        // SAFETY: null, or a context that `open` was given, which lives as long as the process.
        let Some(known) = (unsafe { context.as_ref() }) else { return };
        // The thread may have turned to another stream in between: then it has booked this itself.
        let same =
            self.context.load(Ordering::Acquire) == context && self.stream.load(Ordering::Relaxed) == stream;
        if same {
            self.settle((known, stream), charged, lane, slot);
        }
    }

    fn settle(&self, (context, stream): (&Context, u64), charged: u64, lane: &Lane, slot: &ProcessSlot) {
        // The greatest wins: each nanosecond is booked once. A launch that was taken back is missing from the next sum.
        if charged <= self.booked.load(Ordering::Relaxed) {
            return; // it only grows: what stands there now is booked
        }
        let before = self.booked.fetch_max(charged, Ordering::Relaxed);
        if charged > before {
            let launched = lane.launched();
            let launches = launched.saturating_sub(self.launched.fetch_max(launched, Ordering::Relaxed));
            context.submitted(stream, launches, charged - before, slot);
        }
    }

    /// Books `ns` of a lane that several threads share, whose runs therefore cannot be told apart.
    pub fn book_shared(&self, context: &Context, stream: u64, ns: u64, slot: &ProcessSlot) {
        self.booked.fetch_add(ns, Ordering::Relaxed);
        context.submitted(stream, 1, ns, slot);
    }

    /// Books one launch that waits for a piece: nothing is in flight yet.
    pub fn book_behind(&self, context: &Context, stream: u64, ns: u64, slot: &ProcessSlot) {
        self.booked.fetch_add(ns, Ordering::Relaxed);
        self.launched.fetch_add(1, Ordering::Relaxed);
        context.joined(stream, ns, slot);
    }

    /// What is booked so far.
    pub fn booked(&self) -> u64 {
        self.booked.load(Ordering::Relaxed)
    }
}
