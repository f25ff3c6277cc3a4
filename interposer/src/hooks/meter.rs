//! The meter's hands: where marks are put, when they are looked at, and what becomes of what they say.
//!
//! A mark costs about a microsecond of the processor and of the GPU, so marks keep a distance in work and in time. Of a
//! signature of which nothing is known the second to fourth launch are measured each by itself, between two marks.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::types::CUDA_SUCCESS;
use weir_core::flight::{Driver, Due, Flight, Neighbours, Place};
use weir_core::overlap::Weight;
use weir_core::price::{Estimate, Known, Parts};
use weir_core::stall::Span;
use weir_protocol::pages::{CopyWay, Rate};
use weir_protocol::units::{Nanos, Tokens};

use crate::clock;
use crate::driver::{self, Relaxed, Stream};
use crate::joins;
use crate::link::{CAPTURE_TURN, CAPTURES, Gpu};
use crate::stall;
use crate::thread::{Current, Thread};

/// Shortest stretch of work worth measuring (gpu-truths, rule 5), and how often one is: at most 0.1 % of the time goes
/// into marks.
pub const STRETCH: Due = Due { work: Nanos::from_micros(200), time: Nanos::from_millis(1), spare: 16 };

/// A signature that was never measured is bounded anew so often at most, and so are all of them together, ...
const BOUND_EVERY: Nanos = Nanos::from_millis(3);

/// ... but that so many may come at once: a program that runs ahead launches a whole queue within a moment, and always begins with
/// the same kernels. The others would hardly ever be bounded.
const BOUND_AT_ONCE: u64 = 8;

/// The first launch of a burst beside others is measured apart so often at most: it costs a look at the marks in mid-burst.
const APART_EVERY: Nanos = Nanos::from_millis(50);

/// So much work is worth a mark before the program waits, however young the last one is.
const REMAINDER: Due = Due { work: Nanos::from_millis(1), time: Nanos(0), spare: 0 };

/// What is worth one however little there is of it: the last one is a while old.
const LATE: Due = Due { work: Nanos(1), ..STRETCH };

/// A queue this short is looked at with each word: it is empty before a mark says so. Of a longer one the words are read when
/// it seems to be full.
const SHORT: Nanos = Nanos::from_millis(1);

/// Marks in a burst that runs far ahead of the GPU keep this distance: each is worth some thousand instructions, and between
/// two of them the words tell as much of what is done. Beside others they keep none: in a turn only what lies between two marks
/// is measured, the first launch waited for a switch.
const APART: Nanos = Nanos::from_micros(50);

/// So much work is worth a word: each takes the GPU two microseconds.
const WORD: Nanos = Nanos::from_micros(250);

/// A mark around a launch that is measured by itself. A program that runs far ahead with all that is new shall not spend
/// every event on that.
pub const BRACKET: Due = Due { work: Nanos(0), time: Nanos(0), spare: 64 };

/// A mark if there is anything that has none.
pub const ANYTHING: Due = Due { work: Nanos(1), time: Nanos(0), spare: 0 };

/// Where each launch overlaps the one before it no place is good for a mark. One in so much work undoes an overlap all the same,
/// or the queue would seem full until it has run dry.
pub fn unseen(cap: Nanos) -> Due {
    const UNCAPPED: Nanos = Nanos::from_millis(20);
    let cap = if cap == Nanos(0) { UNCAPPED } else { cap };
    Due { work: Nanos(cap.0 / 2), time: Nanos(0), spare: 0 }
}

/// The driver as marks use it, on behalf of one call of the application.
pub struct Hands<'a> {
    thread: &'a Thread,
    current: &'a Current,
    here: Stream,
    relaxed: OnceCell<Relaxed>,
}

impl<'a> Hands<'a> {
    /// For a call that works on `here`.
    pub fn new(thread: &'a Thread, current: &'a Current, here: Stream) -> Self {
        Self { thread, current, here, relaxed: OnceCell::new() }
    }

    /// Puts a mark behind this thread's launches on the stream if one is due and nothing captures; says whether it did.
    pub fn put(&mut self, due: Due) -> bool {
        self.thread.book_run();
        CAPTURES.load(Ordering::Relaxed) == 0 && self.current.context.flight.mark(self.here.key(), due, self)
    }

    /// Sees to it that completion shows: by a word of the GPU's behind each [`WORD`] of work beside others, where it can write any,
    /// and by a mark where one is due. Says whether a look at what is done is worth it now.
    pub fn keep_up(&mut self, cap: Nanos) -> bool {
        let seen = self.keep_up_here(cap);
        if self.current.context.flight.has_streams() {
            self.put_overdue(STRETCH);
        }
        seen
    }

    /// So much work may go onto the stream without a mark. A burst begins with little queued: a mark that waits for more than that
    /// may be put only after the one before it was reached, and nobody knows whether the stream idled in between.
    pub fn piece(&self) -> Nanos {
        self.thread.book_run();
        REMAINDER.work.max(Nanos(self.current.context.flight.queued_ns(self.here.key()) / 2))
    }

    /// As [`Self::keep_up`], for the stream of this call.
    fn keep_up_here(&mut self, cap: Nanos) -> bool {
        if cap == Nanos(0) {
            return self.put(STRETCH);
        }
        let (flight, part) = (&self.current.context.flight, Nanos(cap.0 / 8));
        let work = if self.gpu().is_divided() { part } else { part.min(self.piece()) };
        if !flight.has_words() {
            return self.put(Due { work, ..REMAINDER });
        }
        let short = cap <= SHORT;
        let apart = || if self.gpu().is_divided() { Nanos(0) } else { APART };
        let due = if short { STRETCH } else { Due { work, time: apart(), spare: 0 } };
        let marked = self.put(due);
        let told = self.tell();
        marked || (told && short)
    }

    /// Has the GPU write a word if one is due, behind what is booked. Marks tell those who ask the driver; words tell the helper,
    /// which only a tenant with neighbours needs. Says whether it will.
    pub fn tell(&mut self) -> bool {
        self.gpu().has_company()
            && CAPTURES.load(Ordering::Relaxed) == 0
            && self.current.context.flight.word(self.here.key(), WORD, self)
    }

    /// As [`Self::put`], where the program is about to wait for these launches.
    pub fn put_last(&mut self, due: Due) -> bool {
        self.thread.book_run();
        let idle = CAPTURES.load(Ordering::Relaxed) == 0;
        idle && self.current.context.flight.mark_last(self.here.key(), due, self)
    }

    /// Puts a mark behind all work of this context that has none.
    pub fn put_everywhere(&mut self) {
        self.current.context.flight.mark_all(self);
    }

    /// What is worth a mark before the program waits. Where tenants' kernels run at once (MPS), those beside hear of a remainder only
    /// with the next burst, if it has none: meanwhile they would take it for a pause.
    fn ends(&self) -> [Due; 2] {
        let heard = self.gpu().overlaps() && self.gpu().is_divided();
        [if heard { Due { work: STRETCH.work, ..REMAINDER } } else { REMAINDER }, LATE]
    }

    /// Puts a mark behind what the program is about to wait for on the stream of this call, if one is due.
    pub fn put_end(&mut self) {
        let _ = self.ends().into_iter().any(|due| self.put_last(due));
    }

    /// Puts a mark behind this thread's work on `stream`, or on all streams of this context: it is about to wait for that.
    pub fn put_ends(&mut self, stream: Option<Stream>) {
        let (stream, due) = (stream.map(Stream::key), self.ends());
        self.unless_captured(|flight, hands| flight.mark_ends(stream, hands.thread.address(), &due, hands));
    }

    /// Puts a mark behind this thread's work on each stream where one is due.
    fn put_overdue(&mut self, due: Due) {
        self.unless_captured(|flight, hands| flight.mark_overdue(hands.thread.address(), due, hands));
    }

    /// Puts marks into streams other than that of the call, of which nobody says whether they are captured: no capture may be under
    /// way, nor begin.
    fn unless_captured(&mut self, put: impl FnOnce(&'static Flight, &mut Self)) {
        if CAPTURES.load(Ordering::Relaxed) == 0
            && let Some(_no_capture_begins) = CAPTURE_TURN.try_lock()
        {
            put(&self.current.context.flight, self);
        }
    }

    /// Sees which marks were reached, in all contexts that this process has on the GPU, and settles what they say.
    pub fn look(&mut self) {
        let gpu = self.current.gpu;
        if gpu.overlaps() {
            gpu.look_around();
        }
        gpu.for_each_context(|context| {
            let settled = context.flight.harvest(gpu.slot(), self);
            gpu.slot().measured_ns.fetch_add(settled.measured_ns, Ordering::Relaxed);
            if settled.held.busy_ns > 0 {
                gpu.activity.occupied(gpu.slot_index(), &settled.held, settled.until);
            }
            if settled.is_last {
                gpu.progress.lock().reached(gpu.done(), settled.until);
            }
            charge(gpu, settled.correction_ns);
            gpu.has_measured(settled.taught, settled.missing);
            for (way, ns) in CopyWay::ALL.into_iter().zip(settled.copies_ns).filter(|(_, ns)| *ns != 0) {
                gpu.slot().copies.of(way).add_time(ns);
            }
        });
        gpu.end_if_idle();
        stall::settle(self);
    }

    /// The GPU of the call.
    pub fn gpu(&self) -> &'static Gpu {
        self.current.gpu
    }
}

/// Whether this launch, onto an `idle` stream or not, shall be measured by itself: little is known of it, or nothing but bounds for a
/// while. The very first of its kind only where nothing else can be at work: what is known of others so early would bound it wrong.
pub fn wants_bracket(current: &Current, estimate: &Estimate, idle: bool) -> bool {
    let context = current.context;
    match estimate.known() {
        Known::Mean => false,
        Known::Nothing => {
            let alone = idle && !current.gpu.is_divided() && !context.flight.is_any_busy();
            estimate.wants_bracket(alone)
        }
        Known::Bounds if idle => false, // it would wait for a neighbour's time slice
        Known::Bounds => is_bound_due(estimate.bound_at_ns(), &context.bound_at_ns, clock::now().0),
    }
}

/// Whether the first launch of this burst shall be measured apart from the rest: it may wait for the end of somebody's time slice. Of
/// several streams each one's is: nothing else says when they all began to run.
pub fn wants_first_apart(current: &Current) -> bool {
    let context = current.context;
    current.gpu.may_wait_for_a_slice()
        && (context.flight.has_streams() || is_due(&context.apart_at_ns, APART_EVERY))
}

/// Whether a signature is to be bounded anew: its own turn has come, and one is left of those that all of them have saved up.
fn is_bound_due(own: &AtomicU64, all: &AtomicU64, now: u64) -> bool {
    // Relaxed: a lost race brackets one launch more.
    let due = now >= own.load(Ordering::Relaxed) && is_left(all, BOUND_EVERY, BOUND_AT_ONCE, now);
    if due {
        own.store(now.saturating_add(BOUND_EVERY.0), Ordering::Relaxed);
    }
    due
}

/// Takes one of what comes `every` so often, and of which so many are kept (GCRA: `next` is when the last one taken was due).
fn is_left(next: &AtomicU64, every: Nanos, kept: u64, now: u64) -> bool {
    let due = next.load(Ordering::Relaxed);
    let left = due <= now.saturating_add(every.0 * kept.saturating_sub(1));
    if left {
        next.store(due.max(now).saturating_add(every.0), Ordering::Relaxed);
    }
    left
}

/// Whether so much time has gone by since this was last so.
fn is_due(due: &AtomicU64, every: Nanos) -> bool {
    let now = clock::now().0;
    // Relaxed: a lost race brackets one launch more.
    let is_due = now >= due.load(Ordering::Relaxed);
    if is_due {
        due.store(now.saturating_add(every.0), Ordering::Relaxed);
    }
    is_due
}

/// Charges the tenant on top of what its launches were charged; negative: gives back.
pub fn charge(gpu: &Gpu, correction_ns: i64) {
    if correction_ns == 0 {
        return;
    }
    gpu.slot().corrected_ns.fetch_add(correction_ns.cast_unsigned(), Ordering::Relaxed); // wraps: a signed sum
    if gpu.grant.read().rate != Rate::FULL {
        gpu.bucket.charge(Tokens(correction_ns));
        gpu.activity.turn.spend(correction_ns);
        gpu.slot().turn.spend(correction_ns);
    }
}

impl Driver for Hands<'_> {
    fn record(&mut self, event: u64, place: Place) -> bool {
        let event = driver::handle(event);
        if place == Place::HERE {
            return self.here.record(event);
        }
        let stream = Stream::legacy(driver::handle(place.0));
        joins::is_apart(stream) && !stream.is_capturing() && stream.record(event)
    }

    fn write(&mut self, address: u64, value: u64) -> bool {
        self.here.write(address, value)
    }

    fn wait(&mut self, address: u64, number: u64) -> bool {
        self.here.wait_for_word(address, number)
    }

    fn reached(&mut self, event: u64) -> bool {
        self.relaxed.get_or_init(Relaxed::enter);
        driver::event_query(driver::handle(event)) == CUDA_SUCCESS
    }

    fn elapsed(&mut self, from: u64, to: u64) -> Option<f64> {
        self.relaxed.get_or_init(Relaxed::enter);
        let mut milliseconds = 0.0;
        let result = driver::event_elapsed(&raw mut milliseconds, driver::handle(from), driver::handle(to));
        (result == CUDA_SUCCESS && milliseconds.is_finite()).then(|| f64::from(milliseconds) * 1e6)
    }

    fn now(&mut self) -> Nanos {
        clock::now()
    }

    fn neighbours(&mut self) -> Neighbours {
        self.current.gpu.neighbours()
    }

    fn overlaps(&mut self) -> bool {
        self.current.gpu.overlaps()
    }

    fn beside(&mut self, time: (Nanos, Nanos)) -> Weight {
        self.current.gpu.beside(time)
    }

    fn part(&mut self, weight: Weight, time: (Nanos, Nanos)) -> f64 {
        self.current.gpu.part(weight, time)
    }

    fn launches(&mut self, stream: u64, charged: u64, parts: &mut Parts) {
        self.thread.take_launches(stream, charged, parts);
    }

    fn spent(&mut self, span: Span) {
        self.current.gpu.stalls.lock().add(span);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn of_what_comes_seldom_a_few_may_come_at_once_and_no_more_in_the_long_run() {
        let (next, every) = (AtomicU64::new(0), Nanos(1_000));
        let at = |now: u64| (0..100).filter(|_| is_left(&next, every, 8, now)).count();
        assert_eq!((at(1_000_000), at(1_000_000)), (8, 0));
        assert_eq!((at(1_001_000), at(1_003_500)), (1, 2));
        assert_eq!(at(9_000_000), 8, "whatever was not taken");
        let taken: usize = (1..=100u64).map(|n| at(9_000_000 + n * 500)).sum();
        assert_eq!(taken, 50);
    }

    #[test]
    fn a_signature_that_is_launched_behind_others_in_each_queue_is_bounded_as_often() {
        let (all, signatures) = (AtomicU64::new(0), [(); 4].map(|()| (AtomicU64::new(0), Cell::new(0))));
        for queue in 1..=100u64 {
            for (n, (own, bounded)) in signatures.iter().enumerate().cycle().take(40) {
                let due = is_bound_due(own, &all, queue * 20_000_000 + n as u64 * 1_000);
                bounded.set(bounded.get() + u32::from(due));
            }
        }
        assert_eq!(signatures.map(|(_, bounded)| bounded.get()), [100; 4]);
    }
}
