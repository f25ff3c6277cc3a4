//! Whether fillers heed the board.
//!
//! A filler that finds a better at work on the board keeps off by itself, and goes on in the moment in which that one is drained. So
//! beside a server that is put off step by step its gate stays open: closed with each step it would lose a tick behind each. One
//! that has no board, or does not look at it, shows in the books; then the gates are closed as long as a better works.

use weir_protocol::units::Nanos;

use crate::lend::FULL;

/// What fillers launch beside a better: before they find it there, and the largest unit that comes through a closed gate.
const ONCE: Nanos = Nanos::from_millis(5);

/// What comes through closed gates besides requests: floors of a hundredth each, and launches that pass as debt. In millionths.
const FLOORS: u64 = 60_000;

/// Who did not heed the board is believed again after so long.
const REMEMBERED: Nanos = Nanos::from_secs(10);

/// How fillers behaved of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heed {
    since: Option<Nanos>, // betters work
    beside: u64,          // ns that fillers have launched since then
    broken: Option<Nanos>,
}

impl Heed {
    /// Fillers, whose requests come to so many millionths, have launched so many ns since the last look; whether a better `works`.
    pub(super) fn look(&mut self, now: Nanos, works: bool, launched: u64, requests: u64) {
        let Some(since) = self.since.filter(|_| works) else {
            (self.since, self.beside) = (works.then_some(now), 0);
            return;
        };
        self.beside = self.beside.saturating_add(launched);
        let allowed = u128::from(now.since(since).0) * u128::from(requests + FLOORS) / u128::from(FULL);
        if u128::from(self.beside) > allowed + u128::from(ONCE.0) {
            self.broken = Some(now);
        }
    }

    /// Whether all of them do.
    pub(super) fn is_kept(&self, now: Nanos) -> bool {
        self.broken.is_none_or(|at| now.since(at) >= REMEMBERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 1_000_000;

    /// A better works for so many ticks, in each of which fillers launch so much; whether the board is heeded then.
    fn after(heed: &mut Heed, from: u64, ticks: u64, launched: u64, requests: u64) -> bool {
        (from..from + ticks).for_each(|at| heed.look(Nanos(at * TICK), true, launched, requests));
        heed.look(Nanos((from + ticks) * TICK), false, TICK, requests);
        heed.is_kept(Nanos((from + ticks) * TICK))
    }

    /// design 5: the manager sees the board against the books and overrules it.
    #[test]
    fn who_works_on_beside_a_better_does_not_heed_the_board() {
        let mut heed = Heed::default();
        assert!(after(&mut heed, 0, 6, TICK, 0), "five ticks may be what was under way");
        assert!(!after(&mut heed, 10, 8, TICK, 0));
        assert!(!heed.is_kept(Nanos::from_secs(9)) && heed.is_kept(Nanos::from_secs(11)));
    }

    /// design 5: a closed filler keeps a floor of 1 %; design 2: a request is guaranteed whatever the class.
    #[test]
    fn floors_and_requests_are_no_reason_to_close() {
        assert!(after(&mut Heed::default(), 0, 10_000, TICK / 50, 0));
        assert!(after(&mut Heed::default(), 0, 10_000, TICK / 4, 250_000));
        assert!(!after(&mut Heed::default(), 0, 10_000, TICK / 3, 250_000));
    }

    /// design 5: the board closes a filler in the middle of a tick.
    #[test]
    fn what_was_launched_in_the_tick_in_which_a_better_began_does_not_count() {
        let mut heed = Heed::default();
        for burst in 0..100 {
            assert!(after(&mut heed, 40 * burst, 5, TICK, 0));
        }
    }
}
