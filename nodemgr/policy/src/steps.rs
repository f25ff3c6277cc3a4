//! Whether a latency is the time from one burst to the next: that of steps, of a server that decodes one after another.
//!
//! Whoever waits for a burst that is put off waits for the hold, and for the burst. Between two steps lies no more than the hold,
//! or than a step takes by itself: how long they are put off *is* the latency, so that nothing has to be felt for
//! (gpu-truths 2a: slack = SLO - step time). That is told by
//!
//! ```text
//!   the burst  before steps are put off they follow one another, and look like one burst of many latencies
//!   the hold   several requests in a row whose latency was no longer than that
//! ```

use weir_protocol::units::Nanos;

use crate::promise::Reading;

/// A burst of so many latencies is one of as many steps: no queue lasts for so long beside what one waits in it.
const MANY: u64 = 16;

/// So many requests in a row never all join bursts that are put off already, whose wait is shorter.
const SURE: u64 = 8;

/// Steps are late by no more than such a part of the bound; else it is not that they are put off for so long.
const AROUND: u64 = 16;

/// What speaks for steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps(u64); // requests in a row, or `SURE`

impl Steps {
    /// Takes in a reading that so many requests are news of (one, where nobody counts), while bursts are put off for `hold`, and
    /// one has lasted so long already.
    pub fn note(&mut self, reading: Reading, ended: u64, hold: Nanos, burst: Nanos) {
        let Reading { recent, target, .. } = reading;
        let longest = if self.are_sure() { Nanos(target.0.saturating_add(target.0 / AROUND)) } else { hold };
        let speaks = match hold {
            Nanos(0) => recent <= Nanos(burst.0 / MANY),
            _ => recent <= longest,
        };
        self.0 = match ended {
            0 => self.0,
            _ if !speaks => 0,
            _ if hold == Nanos(0) => SURE,
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

    fn reading(recent_ms: u64) -> Reading {
        let [recent, target] = [recent_ms, 200].map(Nanos::from_millis);
        Reading { recent, target, quantile_permille: 950, counted: None }
    }

    /// After so many readings, each of which says the same.
    fn after(readings: u64, recent_ms: u64, ended: u64, hold_ms: u64, burst_ms: u64) -> bool {
        let mut steps = Steps::default();
        for _ in 0..readings {
            let [hold, burst] = [hold_ms, burst_ms].map(Nanos::from_millis);
            steps.note(reading(recent_ms), ended, hold, burst);
        }
        steps.are_sure()
    }

    /// gpu-truths 2a: detect steps by their cadence.
    #[test]
    fn many_latencies_in_one_burst_are_steps_and_a_few_may_be_a_queue() {
        assert!(after(1, 40, 1, 0, 640) && !after(10, 40, 5, 0, 639));
        assert!(!after(10, 40, 0, 0, 10_000), "nothing is new");
    }

    /// gpu-truths 2a: hold the next step for a filler turn.
    #[test]
    fn whoever_waits_no_longer_than_bursts_are_put_off_waits_for_steps_and_not_whoever_joins_one_once() {
        assert!(after(8, 100, 1, 100, 0) && after(2, 60, 4, 100, 0));
        assert!(!after(7, 60, 1, 100, 0) && !after(100, 101, 5, 100, 0));
        let mut mixed = Steps::default();
        for recent in [60, 60, 126].repeat(10) {
            mixed.note(reading(recent), 3, Nanos::from_millis(100), Nanos(0));
        }
        assert!(!mixed.are_sure(), "of three one began a burst");
    }

    /// gpu-truths 2a: slack = SLO - step time.
    #[test]
    fn a_step_that_is_a_little_late_is_one_and_what_is_far_beyond_the_bound_is_something_else() {
        let mut steps = Steps(SURE);
        let mut sure = |recent_ms: u64| {
            steps.note(reading(recent_ms), 1, Nanos::from_millis(150), Nanos(0));
            steps.are_sure()
        };
        assert!(sure(212) && !sure(213) && !sure(150));
    }
}
