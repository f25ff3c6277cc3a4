//! The helper: one thread per process that sees work end without a call of the program.
//!
//! A program may launch and then compute, or sleep, for as long as it likes; its neighbours wait until its work is drained. The
//! helper reads the words that the GPU writes, and predicts the end of what lies behind the last one. It never calls the driver:
//! a thread of the program may block there with the driver's locks held. It sleeps while nothing is in flight, and while the
//! tenant is alone; a notice of neighbours wakes it. A program that waits for its own work sees the end by itself: beside one of short
//! steps the helper looks now and then, and is not woken for each.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::thread::futex;
use weir_core::admission::{self, SHORTEST};
use weir_core::gate::in_flight;
use weir_core::tail::Tail;
use weir_protocol::message::Class;
use weir_protocol::units::Nanos;

use super::pieces::Asker;
use super::{Client, Gpu};
use crate::clock;
use crate::wait::{self, Holdup};

/// While somebody waits for the end of what is in flight it looks so soon again at least, and at most.
const LOOK: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::from_micros(500));

/// While nobody does.
const CALM: Nanos = Nanos::from_millis(2);

/// While the tenant has a turn and nothing in flight: so late may it be found not to be back, of those that nearly always are.
const REST: Nanos = Nanos::from_millis(1);

/// So long after the last end that the program saw by itself the helper is not woken for its next launch.
const TRUSTED: Nanos = Nanos::from_millis(10);

/// A filler's piece that was woken within so long, ...
const SHORT: Nanos = Nanos::from_micros(200);

/// ... and in vain, does not listen for so long to those it gives way to: they come and go all the time, and leave no pause that is worth a
/// switch.
/// For half as long each of their steps costs the helper twice as much; for twice as long a pause is found late.
const UNHEARD: Nanos = Nanos::from_millis(1);

/// The thread's stack: it calls nothing deep.
const STACK_BYTES: usize = 64 << 10;

/// Moves when there is something to look at.
static WORD: AtomicU32 = AtomicU32::new(0);

/// Whether the thread sleeps until the word moves.
static SLEEPS: AtomicBool = AtomicBool::new(false);

/// Whether there is a thread.
static RUNS: AtomicBool = AtomicBool::new(false);

/// Whether there is a helper, which lets pieces go.
pub fn runs() -> bool {
    RUNS.load(Ordering::Relaxed)
}

/// Starts the thread, for this client. If that cannot be, the process is shown as degraded: others wait for its work longer
/// than they must.
pub fn start(client: &'static Client) {
    let _blocked = SignalsBlocked::new(); // the thread takes over the mask of whoever makes it
    let thread = std::thread::Builder::new().name("weir-helper".into()).stack_size(STACK_BYTES);
    let started = thread.spawn(move || run(client)).is_ok();
    RUNS.store(started, Ordering::Relaxed);
    if !started {
        client.count_fault();
    }
}

/// Something is in flight from now on.
pub fn wake() {
    // SeqCst: either the thread finds what was begun, or this finds it asleep.
    if SLEEPS.swap(false, Ordering::SeqCst) {
        WORD.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&WORD, futex::Flags::empty(), 1);
    }
}

/// A piece waits from now on.
pub fn call() {
    SLEEPS.store(false, Ordering::SeqCst);
    WORD.fetch_add(1, Ordering::SeqCst);
    let _ = futex::wake(&WORD, futex::Flags::empty(), 1);
}

/// What the thread knows of one GPU.
#[derive(Default)]
struct Known {
    tail: Tail,
    asker: Asker,
    ends: Ends,
}

/// Who sees work end: the program, whose calls wait for it, or the helper.
#[derive(Default)]
struct Ends {
    seen: u32,
    by_program: bool,
    moved_at: Nanos,
}

impl Ends {
    /// So often has work come to its end; `here`, the helper has just seen one.
    fn note(&mut self, ends: u32, here: bool, now: Nanos) {
        if self.seen != ends {
            *self = Self { seen: ends, by_program: !here, moved_at: now };
        }
    }

    /// Whether the program sees the next one by itself, too, as far as one can tell.
    fn are_seen(&self, now: Nanos) -> bool {
        self.by_program && now.since(self.moved_at) < TRUSTED
    }
}

/// When to look again.
enum Next {
    /// When something begins.
    Called,
    /// After so long.
    After(Nanos),
    /// After so long, or sooner if what holds a piece up has moved.
    Held(Nanos, Holdup),
}

fn run(client: &'static Client) {
    // Without it the kernel ends each of its sleeps up to 50 us late, prctl(2). It fails under a strict filter of system calls alone.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
    let (mut was_short, is_filler) = (false, client.class == Class::Filler);
    let mut known: Vec<_> = client.gpus.iter().map(|gpu| (gpu, Known::default())).collect();
    loop {
        let word = WORD.load(Ordering::SeqCst);
        SLEEPS.store(true, Ordering::SeqCst);
        let look = || {
            let all = known.iter_mut().map(|(gpu, known)| (*gpu, gpu.help(known)));
            all.filter(|(_, next)| !matches!(next, Next::Called)).min_by_key(|(_, next)| next.time())
        };
        let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).unwrap_or_else(|_| {
            give_up(client);
            None
        });
        let Some((gpu, next)) = next else {
            let _ = futex::wait(&WORD, futex::Flags::empty(), word, None);
            continue;
        };
        // It wakes by itself. A piece may wait for long, and meanwhile other work may begin.
        SLEEPS.store(matches!(next, Next::Held(time, _) if time > LOOK.1), Ordering::SeqCst);
        match next {
            Next::Held(time, held) => {
                let unheard = is_filler && was_short && held.neighbour.is_some() && !gpu.is_busy();
                let (neighbour, time) = if unheard { (None, UNHEARD) } else { (held.neighbour, time) };
                let began = clock::now();
                let held = Holdup { neighbour, ..held };
                wait::helper_sleeps(&held, gpu, (&WORD, word), time);
                let is_woken = held.neighbour.is_some_and(|neighbour| neighbour.has_moved());
                was_short = is_woken && clock::now().since(began) < SHORT;
            }
            Next::After(_) | Next::Called => {
                let _ = futex::wait(&WORD, futex::Flags::empty(), word, Some(&wait::timespec(next.time())));
            }
        }
    }
}

/// A fault of ours: from now on launches wait on the host, and none is left behind in its stream.
fn give_up(client: &'static Client) {
    client.count_fault();
    RUNS.store(false, Ordering::Relaxed);
    let let_go = || client.gpus.iter().for_each(Gpu::let_all_go);
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(let_go));
}

impl Next {
    fn time(&self) -> Nanos {
        match self {
            Self::Called => Nanos(u64::MAX),
            Self::After(time) | Self::Held(time, _) => *time,
        }
    }
}

impl Gpu {
    /// Sees what has ended, and lets go what may; says when to look again.
    fn help(&self, known: &mut Known) -> Next {
        let time = self.see_ends(&mut known.tail, &mut known.ends);
        let held = self.let_pieces_go(&mut known.asker, clock::now());
        match (time, held) {
            (time, Some(held)) => Next::Held(time.unwrap_or(Nanos(u64::MAX)).min(held.at_most), held),
            // Something may have been let go just now.
            (None, None) if self.is_busy() && self.has_company() => Next::After(LOOK.1),
            (None, None) => Next::Called,
            (Some(time), None) => Next::After(time),
        }
    }

    /// The tenant has not been back in time for its turn.
    fn give_up_turn(&self, now: Nanos) {
        admission::drained(&mut &*self, now);
        if self.is_busy() {
            self.stop_flowing(); // a launch came in between: the next one asks whose turn it is
        }
    }

    /// Sees what has ended, and says in how long to look again; `None`: nothing is in flight.
    fn see_ends(&self, tail: &mut Tail, ends: &mut Ends) -> Option<Nanos> {
        let see_words = || self.for_each_context(|context| context.flight.see_words(self.slot()));
        if self.pieces.any_wait() {
            see_words(); // also of what was taken as done by prediction
        }
        if !self.is_busy() {
            return self.rests(ends, clock::now());
        }
        if !self.has_company() && !self.pieces.any_wait() {
            return None; // a notice says who has come
        }
        see_words();
        self.book_runs();
        let (slot, now) = (self.slot(), clock::now());
        let submitted = slot.submitted_ns.load(Ordering::Relaxed);
        let completed = submitted.saturating_sub(in_flight(slot).0);
        let left = tail.left(submitted, completed, self.working_neighbours(), now);
        if left == Nanos(0) {
            self.take_as_done(submitted);
        }
        ends.note(self.ends(), false, now);
        self.end_if_idle();
        ends.note(self.ends(), true, now);
        self.look_at_standing(now);
        let soon = self.is_waited_for() && !ends.are_seen(now);
        let next = if soon { left.clamp(LOOK.0, LOOK.1) } else { CALM };
        let next = self.lets_next_in(now).map_or(next, |lets_in| lets_in.max(SHORTEST).min(next));
        if self.is_busy() { Some(next) } else { self.rests(ends, now) }
    }

    /// Nothing is in flight. In how long to look again; `None`: when something begins.
    fn rests(&self, ends: &mut Ends, now: Nanos) -> Option<Nanos> {
        ends.note(self.ends(), false, now);
        self.look_at_standing(now);
        if self.pieces.any_wait() {
            // What holds it up says when; who may go first again by now shall soon be seen to.
            return Client::get().is_some_and(|client| client.class == Class::Latency).then_some(REST);
        }
        if !self.activity.turn.is_there() {
            return (self.has_company() && ends.are_seen(now)).then_some(CALM);
        }
        match self.activity.standing.grace_left(now) {
            Some(left) if self.holds_turn() && left > Nanos(0) => Some(REST),
            Some(_) => {
                self.give_up_turn(now);
                Some(LOOK.1)
            }
            None => Some(REST),
        }
    }
}

/// All signals are blocked on the calling thread until this is dropped: the program's handlers are not ours to run.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        // SAFETY: a zeroed set is valid to be filled in; both pointers are to live places.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_sees_its_work_end_is_trusted_to_until_it_did_not_or_is_away() {
        let (mut ends, ms) = (Ends::default(), Nanos::from_millis);
        ends.note(3, false, ms(1));
        assert!(ends.are_seen(ms(10)) && !ends.are_seen(ms(11)));
        ends.note(4, false, ms(11));
        ends.note(5, true, ms(12));
        assert!(!ends.are_seen(ms(12)), "the helper saw that one");
        ends.note(5, false, ms(13));
        assert!(!ends.are_seen(ms(13)), "no other end since");
    }
}
