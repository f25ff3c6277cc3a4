//! The helper: one thread per process that sees work end without a call of the program.
//!
//! A program may launch and then compute, or sleep, for as long as it likes; its neighbours wait until its work is drained. The
//! helper reads the words that the GPU writes, and predicts the end of what lies behind the last one. It never calls the driver:
//! a thread of the program may block there with the driver's locks held. It sleeps while nothing is in flight, and while the
//! tenant is alone; a notice of neighbours wakes it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::thread::futex;
use weir_core::gate::in_flight;
use weir_core::tail::Tail;
use weir_protocol::units::Nanos;

use super::{Client, Gpu};
use crate::clock;

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

/// Starts the thread, for this client. If that cannot be, the process is shown as degraded: others wait for its work longer
/// than they must.
pub fn start(client: &'static Client) {
    let _blocked = SignalsBlocked::new(); // the thread takes over the mask of whoever makes it
    let thread = std::thread::Builder::new().name("weir-helper".into()).stack_size(STACK_BYTES);
    if thread.spawn(move || run(client)).is_err() {
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

fn run(client: &'static Client) {
    let mut tails = vec![Tail::default(); client.gpus.len()];
    loop {
        let word = WORD.load(Ordering::SeqCst);
        SLEEPS.store(true, Ordering::SeqCst);
        let look = || client.gpus.iter().zip(&mut tails).filter_map(|(gpu, tail)| gpu.help(tail)).min();
        let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).unwrap_or_else(|_| {
            client.count_fault();
            None
        });
        if next.is_some() {
            SLEEPS.store(false, Ordering::SeqCst); // it wakes by itself
        }
        let time = next.map(crate::wait::timespec);
        let _ = futex::wait(&WORD, futex::Flags::empty(), word, time.as_ref());
    }
}

impl Gpu {
    /// Sees what has ended, and says in how long to look again; `None`: nothing is in flight.
    fn help(&self, tail: &mut Tail) -> Option<Nanos> {
        if !self.is_busy() {
            let waits = self.activity.turn.is_there();
            self.look_at_standing(clock::now());
            return waits.then_some(LOOK.1);
        }
        if !self.has_company() {
            return None; // a notice says who has come
        }
        self.for_each_context(|context| context.flight.see_words(self.slot()));
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
