//! Waiting at the gate: the only place where a launch or a copy is held back.
//!
//! A sleep is a futex wait on the grant page, so that a new grant wakes everyone at once, and it is bounded: by the
//! time in which enough tokens accrue, or by what is in flight. Nothing is held while we sleep.

use std::sync::atomic::AtomicU32;

use rustix::thread::futex;
use rustix::time::Timespec;
use weir_core::gate::{Cause, Gate, Patience, Request, Verdict, Wait};
use weir_protocol::units::{Nanos, Tokens};

use crate::driver::Stream;
use crate::hooks::{ANYTHING, Hands};
use crate::link::CAPTURE_TURN;
use crate::thread::{Current, Thread};
use crate::{clock, stall};

/// Asks the gate until it admits a launch; returns the generation under which it was admitted, and what was drawn.
pub fn at_gate(thread: &Thread, current: &Current, stream: Stream, mut request: Request) -> (u32, Tokens) {
    let gpu = current.gpu;
    let arrived = clock::now();
    let mut now = arrived;
    let (generation, drawn, forced) = loop {
        let wait = match gpu.gate.ask(gpu.pages(), now, request) {
            Verdict::Admitted { generation, tokens } => break (generation, tokens, false),
            Verdict::Wait(wait) => wait,
        };
        if now == arrived {
            stall::wait(gpu, arrived);
            Hands::new(thread, current, stream).put(ANYTHING); // or the end of what this thread has queued would never show
        }
        look_at_marks(&mut Hands::new(thread, current, stream), wait.cause);
        if gpu.gate.stands_still(gpu.pages(), arrived, now) {
            gpu.for_each_context(|context| context.flight.stood_still());
            gpu.bucket.charge(request.price);
            break (wait.generation, request.price, true);
        }
        gpu.show_state();
        sleep(gpu.grant.futex_word(), wait);
        if gpu.grant.generation() != wait.generation {
            request.patience = Patience::None; // a new grant takes effect at once
        } else if wait.cause == Cause::Tokens && request.patience == Patience::Fresh {
            request.patience = Patience::Turn;
        }
        now = clock::now().max(Nanos(now.0 + 1)); // however short the sleep, this launch has waited
    };
    count(current, arrived, now, forced);
    (generation, drawn)
}

/// Waits until the tenant's earlier copies are paid for. The rule of liveness holds as for launches: a kernel may spin for
/// what is to be copied.
pub fn for_copies(thread: &Thread, current: &Current, stream: Stream) {
    let gpu = current.gpu;
    let arrived = clock::now();
    let mut now = arrived;
    let mut forced = false;
    while let Some(wait) = Gate::copy_wait(gpu.pages(), now) {
        if now == arrived {
            stall::wait(gpu, arrived);
            Hands::new(thread, current, stream).put(ANYTHING);
        }
        look_at_marks(&mut Hands::new(thread, current, stream), wait.cause);
        if gpu.gate.stands_still(gpu.pages(), arrived, now) {
            gpu.for_each_context(|context| context.flight.stood_still());
            forced = true;
        } else {
            sleep(gpu.grant.futex_word(), wait);
        }
        now = clock::now().max(Nanos(now.0 + 1));
        if forced {
            break;
        }
    }
    count(current, arrived, now, forced);
}

fn count(current: &Current, arrived: Nanos, now: Nanos, forced: bool) {
    let counters = current.counters;
    if now > arrived {
        stall::waited(current.gpu, now);
        counters.add(&counters.lane().throttled, 1);
        counters.add(&counters.lane().waited_ns, now.since(arrived).0);
    }
    counters.add(&counters.lane().forced, u64::from(forced));
}

/// Sees which marks were reached. If the cap holds the launch back, all work of this context gets a mark first.
fn look_at_marks(hands: &mut Hands<'_>, cause: Cause) {
    if cause == Cause::InFlight {
        let _no_capture_begins = CAPTURE_TURN.lock();
        hands.put_everywhere();
    }
    hands.look();
}

fn sleep(word: &AtomicU32, wait: Wait) {
    const SECOND: u64 = 1_000_000_000;
    let whole = |n: u64| i64::try_from(n).unwrap_or(0);
    let timeout =
        Timespec { tv_sec: whole(wait.at_most.0 / SECOND), tv_nsec: whole(wait.at_most.0 % SECOND) };
    // Woken, timed out, interrupted, or the grant had moved already: in each case the gate is asked again.
    let _ = futex::wait(word, futex::Flags::empty(), wait.generation, Some(&timeout));
}
