//! When a process asks its siblings, the other processes of its tenant, to take turns with it.
//!
//! They share the tenant's turn, and the driver slices between them: a launch has a sibling's slices in it, or parts of them if
//! the sibling waits for its steps, and nothing that one process sees tells them from its own work. So whoever meets a launch that was
//! never measured alone asks for it, and now and then whoever cannot measure: for a moment each of them runs alone in its turn.
//! What was learnt so holds afterwards, while the driver slices again. Only for launches that vary by themselves it does not: siblings
//! that have such take turns all the time. Under MPS, where their kernels run at once, only a launch that was never measured alone is
//! worth turns: each process is charged its part of what both take, whatever its launches vary by.

use weir_protocol::units::Nanos;

/// Turns are taken for so long: time enough for what the siblings have queued to run dry, and for everybody's launches to be
/// measured; where launches are long for so many turns more, but no longer than this.
const LASTS: Nanos = Nanos::from_millis(100);
const TURNS: u64 = 3;
const MOST: Nanos = Nanos::from_secs(1);

/// What was measured before is measured again so often. Prices follow no faster.
const EVERY: Nanos = Nanos::from_secs(5);

/// Whoever has asked and learnt nothing by it waits so long before it asks again, and each time twice as long as before: its
/// siblings may be what its launches wait for, and then turns only cost time.
const PAUSE: (Nanos, Nanos) = (Nanos::from_millis(250), Nanos::from_secs(64));

/// How long one process's turn among its siblings is at least, of predicted work, and how many of its launches fit into it: a
/// switch lies in the first one.
const TURN: Nanos = Nanos::from_millis(5);
const LAUNCHES: u64 = 4;

/// What a process could not measure beside its siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// A launch of it was never measured alone, or varies from one time to the next.
    pub at_once: bool,
    /// Its longest launch, as far as is known.
    pub longest: Nanos,
}

/// What one process remembers of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Solo {
    learnt_at: Nanos,
    asks_at: Nanos,
    pause: Nanos,
    longest: Nanos,
}

impl Solo {
    /// A price was learnt from what ran alone.
    pub fn learnt(&mut self, now: Nanos) {
        *self = Self { learnt_at: now, longest: self.longest, ..Self::default() };
    }

    /// Until when its siblings shall take turns with it, if they shall, since this is missing.
    pub fn ask(&mut self, missing: Missing, now: Nanos) -> Option<Nanos> {
        if self.learnt_at == Nanos(0) {
            self.learnt_at = now; // it was told its prices
        }
        let due = missing.at_once || now.since(self.learnt_at) >= EVERY;
        if !due || now < self.asks_at {
            return None;
        }
        self.longest = missing.longest;
        let longer = self.turn().since(TURN).0.saturating_mul(TURNS);
        let lasts = LASTS.0.saturating_add(longer).min(MOST.0);
        let until = Nanos(now.0.saturating_add(lasts));
        self.asks_at = Nanos(until.0.saturating_add(self.pause.0));
        self.pause = Nanos(self.pause.0.saturating_mul(2)).clamp(PAUSE.0, PAUSE.1);
        Some(until)
    }

    /// How long its turns are.
    pub fn turn(&self) -> Nanos {
        TURN.max(Nanos(self.longest.0.saturating_mul(LAUNCHES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    const NEVER: Missing = Missing { at_once: true, longest: Nanos(0) };
    const AGAIN: Missing = Missing { at_once: false, longest: Nanos::from_millis(5) };

    #[test]
    fn who_learns_nothing_by_it_asks_ever_more_seldom() {
        let mut solo = Solo::default();
        let asked: Vec<u64> = (0..600_000).filter(|at| solo.ask(NEVER, ms(1 + at)).is_some()).collect();
        assert_eq!(asked[..4], [0, 100, 450, 1_050]);
        assert!((10..=20).contains(&asked.len()), "{asked:?}");
    }

    #[test]
    fn what_was_measured_is_measured_again_now_and_then() {
        let mut solo = Solo::default();
        let mut asked = Vec::new();
        for at in 2..20_000 {
            if let Some(until) = solo.ask(AGAIN, ms(at)) {
                assert_eq!((solo.turn(), until), (ms(20), ms(at + 145)));
                asked.push(at);
                solo.learnt(ms(at));
            }
        }
        assert_eq!(asked, [5_002, 10_002, 15_002]);
    }

    #[test]
    fn who_has_learnt_something_asks_at_once_for_a_launch_that_was_never_measured() {
        let mut solo = Solo::default();
        let asked = (0..10).filter(|n| solo.ask(NEVER, ms(1 + n * 60_000)).is_some()).count();
        assert!(asked > 5, "{asked}");
        solo.learnt(ms(600_100));
        assert_eq!(solo.ask(NEVER, ms(600_101)), Some(ms(600_201)));
        let huge = Missing { at_once: true, longest: ms(50_000) };
        assert_eq!(Solo::default().ask(huge, ms(1)), Some(ms(1_001)));
    }
}
