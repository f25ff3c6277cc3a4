//! The helper: one thread per process that sees work end without a call of the program.
//!
//! A program may launch and then compute, or sleep, for as long as it likes; its neighbours wait until its work is drained. The
//! helper reads the words that the GPU writes, and predicts the end of what lies behind the last one. It never calls the driver:
//! a thread of the program may block there with the driver's locks held. It sleeps while nothing is in flight, and while the
//! tenant is alone; a notice of neighbours wakes it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::thread::futex;
use weir_core::admission;
use weir_core::gate::in_flight;
use weir_core::tail::Tail;
use weir_protocol::units::Nanos;

use super::pieces::Asker;
use super::{Client, Gpu};
use crate::clock;
use crate::wait::{self, Holdup};

/// While somebody waits for the end of what is in flight it looks so soon again at least, and at most.
const LOOK: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::from_micros(500));

/// While nobody does.
const CALM: Nanos = Nanos::from_millis(2);

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
        SLEEPS.store(false, Ordering::SeqCst); // it wakes by itself
        match next {
            Next::Held(time, held) => wait::helper_sleeps(&held, gpu, (&WORD, word), time),
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
        let time = self.see_ends(&mut known.tail);
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
    fn see_ends(&self, tail: &mut Tail) -> Option<Nanos> {
        let see_words = || self.for_each_context(|context| context.flight.see_words(self.slot()));
        if self.pieces.any_wait() {
            see_words(); // also of what was taken as done by prediction
        }
        if !self.is_busy() {
            let now = clock::now();
            self.look_at_standing(now);
            let grace = self.activity.standing.grace_left(now);
            return self.activity.turn.is_there().then(|| match grace {
                Some(left) if self.holds_turn() && left > Nanos(0) => left.min(LOOK.1),
                Some(_) => {
                    self.give_up_turn(now);
                    LOOK.1
                }
                None => LOOK.1,
            });
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
        self.end_if_idle();
        self.look_at_standing(now);
        self.is_busy().then(|| if self.is_waited_for() { left.clamp(LOOK.0, LOOK.1) } else { CALM })
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
