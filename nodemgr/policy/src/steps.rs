//! Whether a latency is the time from one burst to the next: that of steps, of a server that decodes one after another.
//!
//! Whoever waits for a burst that is put off waits for the hold, and for the burst. Between two steps lies no more than the hold,
//! or than a step takes by itself: how long they are put off *is* the latency, so that nothing has to be felt for
//! (gpu-truths 2a: slack = SLO - step time). That is told by
//!
//! ```text
//!   the name  of what is told: the time per token, as servers call it
//!   the hold  several requests in a row whose latency was no longer than that
//! ```

use weir_protocol::units::Nanos;

use crate::promise::Reading;

/// So many requests in a row never all join bursts that are put off already, whose wait is shorter.
const SURE: u64 = 8;

/// Steps are late by no more than such a part of the bound; else it is not that they are put off for so long.
const AROUND: u64 = 16;

/// What speaks for steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps(u64); // requests in a row, or `SURE`

impl Steps {
    /// Takes in a reading that so many requests are news of (one, where nobody counts), while bursts are put off for `hold`.
    pub fn note(&mut self, reading: Reading, ended: u64, hold: Nanos) {
        let Reading { recent, target, per_token, .. } = reading;
        let late = Nanos(target.0.saturating_add(target.0 / AROUND));
        let longest = if per_token || self.are_sure() { late } else { hold };
        self.0 = match ended {
            0 => self.0,
            _ if recent > longest => 0,
            _ if per_token => SURE,
            _ => self.0.saturating_add(ended),
        };
    }

    /// Whether it is known.
    pub fn are_sure(self) -> bool {
        self.0 >= SURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(recent_ms: u64, per_token: bool) -> Reading {
        let [recent, target] = [recent_ms, 200].map(Nanos::from_millis);
        Reading { recent, target, quantile_permille: 950, counted: None, per_token }
    }

    /// After so many readings, each of which says the same.
    fn after(readings: u64, recent_ms: u64, ended: u64, hold_ms: u64) -> bool {
        let mut steps = Steps::default();
        let reading = reading(recent_ms, false);
        (0..readings).for_each(|_| steps.note(reading, ended, Nanos::from_millis(hold_ms)));
        steps.are_sure()
    }

    /// gpu-truths 2a: hold the next step for a filler turn.
    #[test]
    fn whoever_waits_no_longer_than_bursts_are_put_off_waits_for_steps_and_not_whoever_joins_one_once() {
        assert!(after(8, 100, 1, 100) && after(2, 60, 4, 100));
        assert!(!after(7, 60, 1, 100) && !after(100, 101, 5, 100) && !after(100, 40, 5, 0));
        assert!(!after(100, 60, 0, 100), "nothing is new");
        let mut mixed = Steps::default();
        for recent in [60, 60, 126].repeat(10) {
            mixed.note(reading(recent, false), 3, Nanos::from_millis(100));
        }
        assert!(!mixed.are_sure(), "of three one began a burst");
    }

    /// design 8: latency sources, vLLM's time per output token.
    #[test]
    fn what_is_called_the_time_per_token_is_known_at_once() {
        let mut steps = Steps::default();
        steps.note(reading(40, true), 1, Nanos(0));
        assert!(steps.are_sure());
    }

    /// gpu-truths 2a: slack = SLO - step time.
    #[test]
    fn a_step_that_is_a_little_late_is_one_and_what_is_far_beyond_the_bound_is_something_else() {
        let mut steps = Steps(SURE);
        let mut sure = |recent_ms: u64, per_token: bool| {
            steps.note(reading(recent_ms, per_token), 1, Nanos::from_millis(150));
            steps.are_sure()
        };
        assert!(sure(212, false) && !sure(213, false) && !sure(150, false));
        assert!(sure(212, true) && !sure(213, true));
    }
}
