//! What a thread launches to: its run, and its launches since its last mark (`link::run`).

use std::cell::Cell;
use std::sync::atomic::Ordering;

use weir_core::price::Parts;

use super::{Current, Thread};
use crate::driver::Stream;
use crate::link::SHARED_LANE;

/// No stream has this key: it would be an address beyond user space.
pub(super) const NO_RUN: u64 = u64::MAX;

/// Launches went to several streams.
const MIXED: u64 = u64::MAX - 1;

/// A thread that has marked another stream within so many marks hands its launches out in turn.
const IN_TURN: u32 = 16;

/// A stream's key, [`NO_RUN`] at first. Kept inverted: a thread's storage is all zeroes until it is used, or every program
/// that starts would pay for a copy of it.
pub(super) struct Kept(Cell<u64>);

impl Kept {
    pub(super) const fn new() -> Self {
        Self(Cell::new(!NO_RUN))
    }

    fn get(&self) -> u64 {
        !self.0.get()
    }

    pub(super) fn set(&self, key: u64) {
        self.0.set(!key);
    }

    fn replace(&self, key: u64) -> u64 {
        !self.0.replace(!key)
    }
}

impl Thread {
    /// Whether this thread's last launch went to this stream and stands booked as its run: one more needs no booking.
    #[inline]
    pub fn runs_on(&self, stream: Stream) -> bool {
        self.run.get() == stream.key_on(self)
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
        if current.counters.is_shared() {
            current.context.flight.opens(key, stream.place(), self.address());
            let run = &current.gpu.runs[SHARED_LANE];
            run.book_shared(current.context, key, ns, current.gpu.slot());
            self.run.set(NO_RUN); // on a shared lane each launch is booked by itself
            self.last.set(stream);
        } else if self.run.get() != key {
            self.open_run(current, stream);
        }
    }

    /// A launch at `ns` on this stream waits for a piece, and is counted next: it is in flight when that is let go.
    pub fn add_behind(&self, current: &Current, stream: Stream, ns: u64) {
        if let Some(run) = current.gpu.runs.get(current.counters.index()) {
            run.book_behind(current.context, stream.key(), ns, current.gpu.slot());
        }
        self.run.set(NO_RUN);
        self.last.set(stream);
        let (window, key) = (self.window.get(), stream.key());
        self.window.set(if window == NO_RUN || window == key { key } else { MIXED });
    }

    /// As [`Self::add_to_run`], for a launch that may go to another GPU than the thread's: such launches are booked one by
    /// one, so that none of them takes the launch path's short way.
    pub fn add_wherever(&self, current: &Current, stream: Stream, ns: u64) {
        if self.current.get().is_some_and(|own| own.gpu.index == current.gpu.index) {
            return self.add_to_run(current, stream, ns);
        }
        let (gpu, context, key) = (current.gpu, current.context, stream.key());
        context.flight.opens(key, stream.place(), self.address());
        if let Some(run) = gpu.runs.get(current.counters.index()) {
            run.book_shared(context, key, ns, gpu.slot());
        }
        self.run.set(NO_RUN);
        self.window.set(MIXED);
        self.last.set(stream);
    }

    fn open_run(&self, current: &Current, stream: Stream) {
        let (gpu, counters) = (current.gpu, current.counters);
        let Some(run) = gpu.runs.get(counters.index()) else { return };
        run.book_own(counters.lane(), gpu.slot());
        current.context.flight.opens(stream.key(), stream.place(), self.address());
        run.open(current.context, stream.key());
        self.run.set(stream.key());
        self.last.set(stream);
        let window = self.window.get();
        self.window.set(if window == NO_RUN || window == stream.key() { stream.key() } else { MIXED });
    }

    /// Books this thread's launches as in flight.
    pub fn book_run(&self) {
        if let Some(Current { gpu, counters, .. }) = self.current.get()
            && let Some(run) = gpu.runs.get(counters.index())
        {
            run.book(counters.lane(), gpu.slot());
        }
        self.run.set(NO_RUN);
    }

    /// The launches since this thread's last mark; mixed, unless they are all that was charged on `stream` since its own last
    /// mark.
    pub fn take_launches(&self, stream: u64, charged: u64, parts: &mut Parts) {
        self.cache.take(parts);
        let counters = self.current.get().map(|current| current.counters);
        let total = counters.map_or(0, |counters| counters.lane().charged_ns.load(Ordering::Relaxed));
        let mine = total.wrapping_sub(self.marked_at.replace(total));
        if self.window.replace(NO_RUN) != stream || mine != charged {
            parts.mix(); // other threads launched there, or this one elsewhere
        }
        let before = self.marked.replace(stream);
        let turns = before != NO_RUN && before != stream;
        self.in_turn.set(if turns { IN_TURN } else { self.in_turn.get().saturating_sub(1) });
        if self.in_turn.get() > 0 {
            parts.take_turns();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::driver;
    use crate::link::a_gpu;
    use crate::thread;

    #[test]
    fn what_goes_to_another_stream_is_booked_there_and_nowhere_else_whoever_books_it_when() {
        let gpu = a_gpu();
        let (context, [first, second]) =
            (gpu.context(1), [0x10, 0x20].map(|n| Stream::legacy(driver::handle(n))));
        let busy = || [first, second].map(|stream| context.flight.is_busy(stream.key()));
        thread::with(|thread| {
            let counters = thread.counters(gpu).unwrap();
            let current = Current { gpu, context, counters };
            thread.add_to_run(&current, first, 100);
            counters.launched(0, 100);
            gpu.book_runs();
            assert_eq!(busy(), [true, false]);
            context.flight.drained(&context.flight.snapshot(None), gpu.slot(), clock::now());
            thread.add_to_run(&current, second, 50);
            gpu.book_runs(); // another thread's look
            counters.launched(0, 50);
            gpu.book_runs();
            assert_eq!(busy(), [false, true]);
            assert_eq!(weir_core::gate::in_flight(gpu.slot()).0, 50);
        });
    }

    #[test]
    fn marks_in_several_streams_in_turn_say_so_and_those_in_one_stream_do_not() {
        thread::with(|thread| {
            let mut parts = Parts::with_room();
            let mut mark = |stream: u64| {
                parts.clear();
                thread.take_launches(stream, 0, &mut parts);
                parts.are_in_turn()
            };
            assert!(!(0..40).any(|_| mark(0)), "the legacy stream is one like any other");
            let turns = [0x10, 0x10, 0x10, 0, 0, 0];
            assert!(turns.iter().cycle().take(60).all(|stream| mark(*stream)));
            assert_eq!(
                (0..100).filter(|_| mark(0)).count(),
                IN_TURN as usize - 3,
                "then nowhere else any more"
            );
        });
    }
}
