//! Holding a latency tenant's bursts back while its promise leaves it time to spare, so that fillers have that time
//! (gpu-truths 2a: slack step by step).
//!
//! ```text
//!   after an idle time   a burst goes once its first launch has waited for `hold`: whoever comes meanwhile joins it
//!   right after another  once `hold` has passed since that one was due, as somebody may have been waiting ever since;
//!                        sooner where all bursts' work would come to less than the tenant's request of that time
//! ```
//!
//! Only the first launch of a burst waits. Bursts that were late make up for it: the next one is due as if they had not been.
//! A burst of another size, a prompt that is read between two steps, has no time of its own: who is being served waits for
//! his next token all through it. After an idle time nobody was being served, so that nothing is made up for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_protocol::pages::Rate;
use weir_protocol::units::Nanos;

/// Between two steps the host samples, and decides who takes part in the next one: this is no idle time.
const FOLLOWS: Nanos = Nanos::from_millis(5);

/// Bursts make up for no more than so many holds.
const MADE_UP: u64 = 4;

/// Of the time for which the request allows bursts to be apart so small a part is left: ten seconds that begin within a burst hold the
/// request, too.
const UNSPENT_PART: u64 = 256;

/// A burst of more or less work than usual by this part of it is of another kind; and by such a part does what is usual move
/// with each.
const UNLIKE_PART: u64 = 4;
const MOVES_PART: u64 = 16;

/// What is granted.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Longest that a burst is put off; 0 = not at all.
    pub hold: Nanos,
    /// What the tenant is guaranteed.
    pub request: Rate,
}

/// The bursts of one process on one GPU.
#[derive(Debug, Default)]
pub struct Holder {
    on: AtomicBool,       // bursts are held back
    begun: AtomicBool,    // one is under way
    due: AtomicU64,       // when it, or else the last one, was due
    alike: AtomicBool,    // the last one was of the usual size
    ended: AtomicU64,     // when it did
    submitted: AtomicU64, // predicted work of all bursts before
    usual: AtomicU64,     // predicted work of a burst
    rested: AtomicBool,   // the last one began after an idle time
    work: AtomicU64,      // predicted work of it
    earned: AtomicU64,    // ns for which the request allows bursts to be apart, when the last one began
}

impl Holder {
    /// How long a launch must wait that arrived then, `submitted` work after all others: none unless a burst begins with it.
    pub fn ask(&self, terms: Terms, submitted: u64, arrived: Nanos, now: Nanos) -> Option<Nanos> {
        // Relaxed throughout: of two threads that begin a burst at once, one may go too early.
        if terms.hold == Nanos(0) {
            self.on.store(false, Ordering::Relaxed);
            self.begun.store(false, Ordering::Relaxed); // nobody tells of its end any more
            return None;
        }
        if self.begun.load(Ordering::Relaxed) {
            return None;
        }
        let follows = self.follows(arrived);
        let (due, earned) = self.due(terms, arrived, follows);
        if due > now {
            return Some(due.since(now));
        }
        self.begun.store(true, Ordering::Relaxed);
        self.due.store(due.0, Ordering::Relaxed);
        self.earned.store(earned.0, Ordering::Relaxed);
        self.rested.store(!follows, Ordering::Relaxed);
        self.submitted.store(submitted, Ordering::Relaxed);
        self.on.store(true, Ordering::Relaxed);
        None
    }

    /// Whether [`Self::ended`] wants to be told.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// The process has nothing on the GPU any more. Says whether a burst ended with that.
    pub fn ended(&self, submitted: u64, now: Nanos) -> bool {
        if !self.begun.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.ended.store(now.0, Ordering::Relaxed);
        let work = submitted.saturating_sub(self.submitted.load(Ordering::Relaxed));
        let usual = match self.usual.load(Ordering::Relaxed) {
            0 => work,
            usual => usual,
        };
        self.work.store(work, Ordering::Relaxed);
        self.alike.store(work.abs_diff(usual) <= usual / UNLIKE_PART, Ordering::Relaxed);
        let step = usual / MOVES_PART;
        let moved = if work >= usual { work.min(usual + step) } else { work.max(usual - step) };
        self.usual.store(moved, Ordering::Relaxed);
        true
    }

    fn follows(&self, arrived: Nanos) -> bool {
        self.is_on() && arrived.since(Nanos(self.ended.load(Ordering::Relaxed))) <= FOLLOWS
    }

    /// When the burst is due, and what is left then of the time that the request allows bursts to be apart.
    fn due(&self, terms: Terms, arrived: Nanos, follows: bool) -> (Nanos, Nanos) {
        if !follows {
            return (Nanos(arrived.0.saturating_add(terms.hold.0)), Nanos(0));
        }
        let made_up = terms.hold.0.saturating_mul(MADE_UP);
        let allowed = terms.request.time_for(self.work.load(Ordering::Relaxed)).0;
        let more = allowed - allowed / UNSPENT_PART;
        let earned = self.earned.load(Ordering::Relaxed).saturating_add(more).min(terms.hold.0);
        let (alike, rested) = (self.alike.load(Ordering::Relaxed), self.rested.load(Ordering::Relaxed));
        let (before, period) = match (alike, rested) {
            (true, _) => (&self.due, earned),
            (false, true) => (&self.ended, 0), // nobody was being served
            (false, false) => (&self.due, 0),
        };
        let due = before.load(Ordering::Relaxed).saturating_add(period);
        (Nanos(due.max(arrived.0.saturating_sub(made_up))), Nanos(earned - period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { hold: Nanos::from_millis(60), request: Rate::ppm(100_000) };

    /// A tenant that launches a burst as soon as the one before is done.
    #[derive(Default)]
    struct Server {
        holder: Holder,
        submitted: u64,
        now: Nanos,
    }

    impl Server {
        /// A burst of so much work, alone on the GPU; says for how many ms it was held back.
        fn burst(&mut self, terms: Terms, work_ms: u64) -> u64 {
            let arrived = self.now;
            while let Some(left) = self.holder.ask(terms, self.submitted, arrived, self.now) {
                assert!(left > Nanos(0));
                self.now.0 += left.0;
            }
            assert_eq!(
                self.holder.ask(terms, self.submitted, self.now, self.now),
                None,
                "only the first launch waits"
            );
            self.submitted += work_ms * 1_000_000;
            let held = self.now.since(arrived);
            self.now.0 += work_ms * 1_000_000;
            let ended = self.holder.ended(self.submitted, self.now);
            assert_eq!(ended, terms.hold > Nanos(0));
            assert!(!self.holder.ended(self.submitted, self.now), "it has ended");
            held.0 / 1_000_000
        }

        fn bursts(&mut self, count: usize, terms: Terms, work_ms: u64) {
            (0..count).for_each(|_| {
                self.burst(terms, work_ms);
            });
        }

        fn rest(&mut self, ms: u64) {
            self.now.0 += ms * 1_000_000;
        }
    }

    #[test]
    fn after_an_idle_time_a_burst_waits_from_its_first_launch_on() {
        let mut server = Server::default();
        server.rest(1_000);
        assert_eq!(server.burst(TERMS, 20), 60);
        server.rest(500);
        assert_eq!(server.burst(TERMS, 20), 60);
    }

    #[test]
    fn who_may_have_been_waiting_since_the_last_burst_was_due_is_put_off_no_longer() {
        // gpu-truths 2a: steps of 35 ms, one in 60.
        let mut server = Server::default();
        let held: Vec<u64> = (0..5).map(|_| server.burst(TERMS, 35)).collect();
        assert_eq!(held, [60, 25, 25, 25, 25]);
    }

    #[test]
    fn the_host_may_take_its_time_between_two_steps() {
        let mut server = Server::default();
        server.burst(TERMS, 35);
        server.rest(4);
        assert_eq!(server.burst(TERMS, 35), 21);
    }

    #[test]
    fn a_prompt_between_two_steps_has_no_time_of_its_own_and_steps_make_up_for_it() {
        let mut server = Server::default();
        server.bursts(4, TERMS, 35);
        assert_eq!(server.burst(TERMS, 50), 25, "it is seen only afterwards that this is no step");
        let held: Vec<u64> = (0..5).map(|_| server.burst(TERMS, 35)).collect();
        assert_eq!(held, [0, 0, 0, 25, 25], "the third is in time again");
    }

    #[test]
    fn a_prompt_after_an_idle_time_kept_nobody_waiting() {
        let mut server = Server::default();
        server.bursts(4, TERMS, 35);
        server.rest(500);
        assert_eq!(server.burst(TERMS, 50), 60);
        let held: Vec<u64> = (0..3).map(|_| server.burst(TERMS, 35)).collect();
        assert_eq!(held, [0, 25, 25], "the first step is due when the prompt has been read");
    }

    #[test]
    fn prompts_allow_steps_to_be_further_apart_than_steps_alone_would() {
        // design 5: the request holds over a long run, whatever the work was.
        let mut server = Server::default();
        let most = Terms { request: Rate::ppm(800_000), ..TERMS };
        server.bursts(4, most, 36);
        assert_eq!(server.burst(most, 36), 8, "a little less than 45 ms, of which 36 are 80 %");
        server.burst(most, 50);
        let held: Vec<u64> = (0..7).map(|_| server.burst(most, 36)).collect();
        assert_eq!(held, [0, 0, 0, 0, 0, 8, 8], "60 ms for the prompt: no more than a hold is kept");
    }

    #[test]
    fn what_is_late_for_long_is_not_made_up_for_ever() {
        let mut server = Server::default();
        server.bursts(200, TERMS, 62);
        let at_once = (0..100).take_while(|_| server.burst(TERMS, 50) == 0).count();
        assert!((20..28).contains(&at_once), "4 x 60 ms, of which each makes up for 10: {at_once} bursts");
    }

    #[test]
    fn a_burst_is_never_so_long_apart_from_the_next_that_the_request_is_not_kept() {
        // design 5: the request of a latency tenant is a guarantee over a long run.
        let mut server = Server::default();
        let most = Terms { request: Rate::ppm(800_000), ..TERMS };
        server.burst(most, 20);
        let from = server.now;
        server.bursts(100, most, 20);
        let share = 100 * 100 * 20_000_000 / server.now.since(from).0;
        assert_eq!(share, 80);
    }

    #[test]
    fn a_hold_that_is_taken_away_before_a_burst_has_begun_comes_back_with_the_next_one() {
        let (mut server, none) = (Server::default(), Terms { hold: Nanos(0), ..TERMS });
        assert_eq!(server.holder.ask(TERMS, 0, Nanos(0), TERMS.hold), None, "due, and still at its gate");
        assert_eq!(server.holder.ask(none, 0, Nanos(0), TERMS.hold), None);
        assert!(!server.holder.ended(5, TERMS.hold), "no burst");
        assert!(!server.holder.is_on(), "so nobody says when it ends");
        server.rest(1_000);
        assert_eq!(server.burst(TERMS, 20), 60);
    }

    #[test]
    fn without_a_hold_nothing_waits_and_nothing_is_remembered() {
        let mut server = Server::default();
        let none = Terms { hold: Nanos(0), ..TERMS };
        assert_eq!((server.burst(none, 35), server.burst(none, 35)), (0, 0));
        assert!(!server.holder.is_on());
        assert_eq!(server.burst(TERMS, 35), 60, "held back from its own arrival on");
    }
}
