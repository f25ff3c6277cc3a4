//! Waiting: the only place where a launch or a copy is held back, at the gate or for news of its kernel.
//!
//! A sleep is a futex wait on the grant page, so that a new grant wakes everyone at once, and where a neighbour has to move
//! first, on its page as well. It is bounded: by the time in which enough tokens accrue, by what is in flight, and on a
//! neighbour's word by some milliseconds. Nothing is held while we sleep.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::thread::ClockId;
use rustix::thread::futex::{self, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::Timespec;
use weir_core::admission::{self, Held, Wanted};
use weir_core::gate::{Cause, Gate, Patience, Wait, work_of_all};
use weir_core::lateness::Lateness;
use weir_core::price::Estimate;
use weir_protocol::units::{Nanos, Tokens};

use crate::driver::Stream;
use crate::gang::AtGate;
use crate::hooks::{ANYTHING, Hands};
use crate::link::{CAPTURE_TURN, Client, Gpu, Watched};
use crate::thread::{Current, Thread};
use crate::{clock, stall};

/// Of all threads: it is the machine's.
static LATENESS: Lateness = Lateness::new();

/// Why a launch went on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Admitted.
    Paid,
    /// As debt: nothing of the tenant completes.
    Forced,
    /// As debt: other ranks have gone ahead.
    CaughtUp,
}

/// Asks until the launch may go: whether it is the tenant's turn, and if tokens are `wanted`, for these. Returns the
/// generation under which it was admitted, and what was drawn; nothing if it would have to wait and rather does so in its
/// stream.
pub fn at_gate(
    client: &Client,
    thread: &Thread,
    current: &Current,
    stream: Stream,
    (wanted, may_queue): (Option<Wanted>, bool),
) -> Option<(u32, Tokens)> {
    let gpu = current.gpu;
    let arrived = clock::now();
    let price = wanted.map_or(Tokens(0), |wanted| wanted.price);
    let (mut now, mut known) = (arrived, gpu.grant.generation());
    let mut patience = Patience::under(gpu.launched_under(), known);
    let (behind, mut gang) = (gpu.pieces.last(), AtGate::new(client, gpu, arrived));
    let (generation, drawn, pass) = loop {
        let asked = gang.ask(now, patience, |patience| ask(gpu, wanted, behind, patience, (arrived, now)));
        let held = match asked {
            Asked::Goes(generation, tokens) => break (generation, tokens, Pass::Paid),
            Asked::CatchesUp(generation) => {
                gpu.bucket.charge(price);
                break (generation, price, Pass::CaughtUp);
            }
            Asked::Waits(_) if may_queue => return None,
            // A grant that has come since the last look ends the sleep before it begins.
            Asked::Waits(held) => Holdup { generation: known, ..held },
        };
        if now == arrived {
            stall::wait(gpu, arrived);
            mark_everything(&mut Hands::new(thread, current, stream)); // or the end of what is queued would never show
        }
        let held_turn = gpu.holds_turn();
        Hands::new(thread, current, stream).look();
        if stands_still(gpu, Nanos(0), arrived, now) {
            gpu.bucket.charge(price);
            break (held.generation, price, Pass::Forced);
        }
        gpu.show_state();
        // Its work is done and the turn passed on: until it stands in the queue again, whoever has it finds that nobody waits.
        if !held_turn || gpu.holds_turn() {
            sleep(&held, gpu);
        }
        // What is done by now left an idle stream: where the launch goes out a new stretch begins.
        Hands::new(thread, current, stream).look();
        known = gpu.grant.generation();
        patience = held.patience_then(patience, known);
        now = clock::now().max(Nanos(now.0 + 1)); // however short the sleep, this launch has waited
    };
    count(current, arrived, now, pass);
    if now > arrived {
        gang.resumes(now);
        gpu.note_wait_over(now);
    }
    Some((generation, drawn))
}

/// A thread that has run ahead looks for room so often, and goes on where nothing moves for so long: it may be spinning for what is to be
/// launched.
const ROOM: (Nanos, Nanos) = (Nanos::from_micros(300), Nanos::from_millis(5));

/// Waits until the host may run ahead by one more launch.
pub fn for_room(thread: &Thread, current: &Current, stream: Stream) {
    let gpu = current.gpu;
    let arrived = clock::now();
    let (mut now, mut moved) = (arrived, (gpu.pieces.last_gone(), arrived));
    // Where nothing is in flight nothing can spin for this launch.
    while gpu.pieces.are_full() && gpu.queues() && !(gpu.is_busy() && now.since(moved.1) >= ROOM.1) {
        Hands::new(thread, current, stream).look();
        let (generation, cause) = (gpu.grant.generation(), Cause::Turn);
        sleep(&Holdup { generation, at_most: ROOM.0, cause, neighbour: None }, gpu);
        now = clock::now().max(Nanos(now.0 + 1));
        if gpu.pieces.last_gone() != moved.0 {
            moved = (gpu.pieces.last_gone(), now);
        }
    }
    if now > arrived {
        gpu.note_wait_over(now);
    }
}

/// The driver has refused a wait: this launch waits on the host until its piece was let go.
pub fn for_piece(thread: &Thread, current: &Current, stream: Stream, number: u64) {
    let gpu = current.gpu;
    while gpu.pieces.last_gone() < number {
        Hands::new(thread, current, stream).look();
        let (generation, cause) = (gpu.grant.generation(), Cause::Turn);
        sleep(&Holdup { generation, at_most: ROOM.0, cause, neighbour: None }, gpu);
    }
}

/// Waits until the tenant's earlier copies are paid for. The rule of liveness holds as for launches: a kernel may spin for
/// what is to be copied.
pub fn for_copies(thread: &Thread, current: &Current, stream: Stream) {
    let gpu = current.gpu;
    let arrived = clock::now();
    let (mut now, mut pass) = (arrived, Pass::Paid);
    while let Some(Wait { generation, at_most, cause }) = Gate::copy_wait(gpu.pages(), now) {
        if now == arrived {
            stall::wait(gpu, arrived);
            mark_everything(&mut Hands::new(thread, current, stream));
        }
        Hands::new(thread, current, stream).look();
        if stands_still(gpu, Nanos(0), arrived, now) {
            pass = Pass::Forced;
            break;
        }
        sleep(&Holdup { generation, at_most, cause, neighbour: None }, gpu);
        now = clock::now().max(Nanos(now.0 + 1));
    }
    count(current, arrived, now, pass);
}

/// Whoever waits for news of a kernel looks so often, waits no longer once nothing has completed for a while, and for no
/// longer than this in all: it may be spinning for what is to be launched.
const NEWS: Nanos = Nanos::from_micros(200);
const NO_NEWS: Nanos = Nanos::from_millis(20);
const NEVER_MIND: Nanos = Nanos::from_millis(200);

/// Waits until something is known of a kernel that was launched some times.
pub fn for_news(thread: &Thread, current: &Current, stream: Stream, estimate: &Estimate) {
    let (gpu, flight) = (current.gpu, &current.context.flight);
    let arrived = clock::now();
    let (mut now, mut done) = (arrived, (arrived, 0));
    while !estimate.is_seen() && flight.is_any_busy() && now.since(arrived) < NEVER_MIND {
        if now == arrived {
            stall::wait(gpu, arrived);
            mark_everything(&mut Hands::new(thread, current, stream));
        }
        Hands::new(thread, current, stream).look();
        let completed = gpu.slot().completed_ns.load(Ordering::Relaxed); // a hint that only grows
        if completed != done.1 {
            done = (now, completed);
        } else if now.since(done.0) > NO_NEWS {
            // Whatever it is, it is no small thing: the next ones wait for their budget, or until the gate lets one through.
            estimate.takes_at_least(now.since(done.0).0);
            break;
        }
        let (generation, cause) = (gpu.grant.generation(), Cause::InFlight);
        sleep(&Holdup { generation, at_most: NEWS, cause, neighbour: None }, gpu);
        now = clock::now().max(Nanos(now.0 + 1));
    }
    count(current, arrived, now, Pass::Paid);
}

/// Whether nothing of the tenant has moved for so long, and at `least` so long, that the launch shall pass. Nothing is learnt from work
/// that stood still.
pub fn stands_still(gpu: &Gpu, least: Nanos, arrived: Nanos, now: Nanos) -> bool {
    let others =
        Client::get().map_or(&[][..], |client| &client.gpus).iter().filter(|other| other.index != gpu.index);
    let elsewhere = others
        .map(|other| work_of_all(&other.usage))
        .fold((0u64, 0u64), |(a, b), (c, d)| (a.saturating_add(c), b.saturating_add(d)));
    let stands = gpu.gate.stands_still(gpu.pages(), elsewhere, least, arrived, now);
    if stands {
        gpu.for_each_context(|context| context.flight.stood_still());
    }
    stands
}

fn count(current: &Current, arrived: Nanos, now: Nanos, pass: Pass) {
    let counters = current.counters;
    if now > arrived {
        stall::waited(current.gpu, now);
        current.gpu.pages().let_in();
        counters.add(&counters.lane().throttled, 1);
        counters.add(&counters.lane().waited_ns, now.since(arrived).0);
    }
    counters.add(&counters.lane().forced, u64::from(pass == Pass::Forced));
    counters.add(&counters.lane().caught_up, u64::from(pass == Pass::CaughtUp));
}

/// A launch that cannot wait in its stream does so on the host until those have gone that came before it, and looks so often.
const BEHIND: Nanos = Nanos::from_micros(300);

/// What was said to a launch, each with the generation of the grant under which it was.
pub enum Asked {
    /// It goes, with so many tokens drawn.
    Goes(u32, Tokens),
    /// It goes as debt: other ranks of its gang have gone ahead.
    CatchesUp(u32),
    /// It waits.
    Waits(Holdup),
}

/// What holds a launch up, and until when.
pub type Holdup = Held<Watched>;

fn ask(
    mut gpu: &Gpu,
    wanted: Option<Wanted>,
    behind: u64, // pieces up to this one go first
    patience: Patience,
    times: (Nanos, Nanos),
) -> Asked {
    if gpu.pieces.last_gone() < behind {
        let (generation, cause) = (gpu.grant.generation(), Cause::Turn);
        return Asked::Waits(Holdup { generation, at_most: BEHIND, cause, neighbour: None });
    }
    match admission::ask(&mut gpu, wanted, patience, times) {
        admission::Asked::Goes(generation, tokens) => Asked::Goes(generation, tokens),
        admission::Asked::Waits(held) => Asked::Waits(held),
    }
}

/// Puts a mark behind all work of this context that has none.
fn mark_everything(hands: &mut Hands<'_>) {
    hands.put(ANYTHING);
    let _no_capture_begins = CAPTURE_TURN.lock();
    hands.put_everywhere();
}

fn sleep(held: &Holdup, gpu: &Gpu) {
    gpu.waits();
    let grant = (gpu.grant.futex_word(), held.generation);
    // Woken, timed out, interrupted, or a word had moved already: in each case the gate is asked again.
    match &held.neighbour {
        Some(neighbour) => until_any(&[neighbour.word(), grant], neighbour.at_most(held.at_most)),
        None => until(grant, held),
    }
}

/// The helper's sleep, which a piece waits for: until one of these words moves.
pub fn helper_sleeps(held: &Holdup, gpu: &Gpu, own: Watch<'_>, time: Nanos) {
    let grant = (gpu.grant.futex_word(), held.generation);
    match &held.neighbour {
        Some(neighbour) => until_any(&[neighbour.word(), grant, own], neighbour.at_most(time)),
        None => until_any(&[grant, own], time),
    }
}

fn until((word, value): Watch<'_>, held: &Holdup) {
    let time = if held.cause == Cause::InFlight { LATENESS.aim(held.at_most) } else { held.at_most };
    let began = clock::now();
    let slept = futex::wait(word, futex::Flags::empty(), value, Some(&timespec(time)));
    if slept == Err(Errno::TIMEDOUT) {
        LATENESS.seen(Nanos(clock::now().since(began).0.saturating_sub(time.0)));
    }
}

/// Where one can sleep on one word alone the others are looked at so often.
const UNSURE: Nanos = Nanos::from_millis(1);

/// Until one of the words moves: the grant's is among them, since a new one takes effect at once, whoever is waited for.
fn until_any(words: &[Watch<'_>], time: Nanos) {
    let end = timespec(Nanos(clock::now().0.saturating_add(time.0))); // this call takes an instant, not a duration
    let Some(first) = words.first() else { return };
    let mut waiters = [waiter(*first); 3];
    waiters.iter_mut().zip(words).for_each(|(place, word)| *place = waiter(*word));
    let waiters = waiters.get(..words.len()).unwrap_or(&waiters);
    let slept = futex::waitv(waiters, WaitvFlags::empty(), Some(&end), ClockId::Monotonic);
    if !matches!(slept, Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT)) {
        // A kernel before 5.16, or a filter of system calls that does not know this one: the others are looked at afterwards.
        let _ = futex::wait(first.0, futex::Flags::empty(), first.1, Some(&timespec(time.min(UNSURE))));
    }
}

/// A word to sleep on, while it shows this.
pub type Watch<'a> = (&'a AtomicU32, u32);

fn waiter((word, value): Watch<'_>) -> futex::Wait {
    let mut wait = futex::Wait::new();
    wait.val = value.into();
    wait.uaddr = WaitPtr::new(word.as_ptr().cast());
    wait.flags = WaitFlags::SIZE_U32;
    wait
}

pub fn timespec(time: Nanos) -> Timespec {
    const SECOND: u64 = 1_000_000_000;
    let whole = |n: u64| i64::try_from(n).unwrap_or(0);
    Timespec { tv_sec: whole(time.0 / SECOND), tv_nsec: whole(time.0 % SECOND) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_that_waits_for_a_neighbour_wakes_at_a_new_grant() {
        const LONG: Nanos = Nanos::from_secs(10);
        let (neighbour, grant) = (AtomicU32::new(7), AtomicU32::new(1));
        let began = clock::now();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| until_any(&[(&neighbour, 7), (&grant, 1)], LONG));
            grant.store(2, Ordering::Release);
            while !waits.is_finished() {
                let _ = futex::wake(&grant, futex::Flags::empty(), 1); // it may fall asleep only now
                std::thread::yield_now();
            }
        });
        assert!(clock::now().since(began) < LONG, "nobody moved but the manager");
    }
}
