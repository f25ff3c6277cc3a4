//! How long a latency tenant's bursts may be put off without breaking its promise.
//!
//! A server that decodes step after step leaves no bubbles, and yet may be faster than it promised; one that begins with each
//! request as it comes could have read several at once. What is between its latency and the bound can be spent: each burst
//! is held back for a filler's turn (`weir-core::hold` has what is held back, and what is not). How much of it is felt for, by an
//! error budget: additive increase, multiplicative decrease.
//!
//! ```text
//!   budget   3/5 x (1 - quantile) for each request, - 1 for each late one; between -OWED and KEPT. Where requests are not counted
//!            each reading is one, and late from 15/16 of the bound on
//!   hold     with each reading of requests of which none was late, while nothing is owed: + bound / 16 for p95, / 80 for p99,
//!            or a quarter of what is missing to the bound, if that is less; up to 39/40 of the bound,
//!            or of a quarter of a second
//!            half of it with each reading of late ones, while something is owed
//! ```
//!
//! A reading that no request has ended since is the one before again, and moves nothing.

use weir_protocol::units::Nanos;

use crate::Counted;
use crate::lend::FULL;
use crate::promise::Reading;

/// With each reading, of which there is one in a second or so, the hold grows by such a part of the bound for each of a thousand requests
/// that may be late: where fewer may be, it is felt for more slowly. With p95 it takes 16 s to come to all of it.
const GROWS_1000: u64 = 800;

/// ... by no more than such a part of the bound, ...
const GROWS_AT_MOST: u64 = 16;

/// ... and by no more than such a part of what is missing to the bound: what is beyond that is late.
const PARTS: u64 = 4;

/// It is shorter than the bound by this part of it: steps that are put off take as long, and real ones a hundredth longer. What that is
/// short by the budget pays.
const MARGIN: u64 = 40;

/// No burst is put off for longer, whatever the bound: no launch waits longer for anybody.
const REACH: Nanos = Nanos::from_millis(250);

/// Where requests are not counted, a reading that is shorter than the bound by less than this part of it counts as a late request: the next one may
/// be beyond it.
const NEAR: u64 = 16;

/// One late request. Budgets are in thousandths of one.
const ONE: i64 = 1_000;

/// No more may be owed, and no more be kept: a day without a late request pays for no minute in which all are, and an hour in which all
/// were, whatever for, costs no day.
const OWED: i64 = 100 * ONE;
const KEPT: i64 = 10 * ONE;

/// Part of the allowed misses that may be spent, in percent: they come in heaps, and the promise is to hold over ten seconds, too.
const SPENT_PERCENT: i64 = 60;

/// What one tenant has to spare.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slack {
    of: (u16, u64), // the promise
    hold: Nanos,
    most: Nanos, // that it may come to
    before: Option<Counted>,
    left: i64,
}

/// What requests have ended since the reading before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ended {
    requests: u64,
    late: u64,
}

impl Slack {
    /// The tenant's latency was read.
    pub fn note(&mut self, reading: Reading) {
        let Reading { recent, target, quantile_permille, .. } = reading;
        let of = (quantile_permille, target.0);
        if self.of != of {
            *self = Self { of, ..Self::default() };
        }
        let reach = target.min(REACH);
        self.most = reach.since(Nanos(reach.0 / MARGIN));
        let ended = self.ended(reading);
        self.left = self.left.saturating_add(ended.earn(quantile_permille)).clamp(-OWED, KEPT);
        let allowed = 1_000u64.saturating_sub(quantile_permille.into());
        let grows = (reach.0 / GROWS_1000).saturating_mul(allowed).min(reach.0 / GROWS_AT_MOST);
        let step = grows.min(target.since(recent).0 / PARTS);
        self.hold = match ended {
            Ended { late: 1.., .. } if self.left < 0 => Nanos(self.hold.0 / 2),
            Ended { requests: 1.., late: 0 } if self.left >= 0 => Nanos(self.hold.0 + step),
            _ => self.hold,
        };
        self.hold = self.hold.min(self.most);
    }

    /// By the count; without one each reading is one request.
    fn ended(&mut self, reading: Reading) -> Ended {
        let Some(now) = reading.counted else {
            let near = reading.target.since(Nanos(reading.target.0 / NEAR));
            return Ended { requests: 1, late: u64::from(reading.recent >= near) };
        };
        let before = self.before.replace(now).unwrap_or(now);
        Ended {
            requests: now.requests.saturating_sub(before.requests),
            late: now.late.saturating_sub(before.late),
        }
    }

    /// How long a burst may be put off.
    pub fn hold(&self) -> Nanos {
        self.hold
    }

    /// The same as a part of the longest that it may be, in millionths: where kernels run at once nothing is put off, and
    /// fillers have so much of their time beside the bursts.
    pub fn ppm(&self) -> u32 {
        let ppm = u128::from(self.hold.0) * u128::from(FULL) / u128::from(self.most.0.max(1));
        u32::try_from(ppm).unwrap_or(FULL).min(FULL)
    }
}

impl Ended {
    /// What they add to the budget.
    fn earn(self, quantile_permille: u16) -> i64 {
        let allowed = (ONE - i64::from(quantile_permille)).max(0) * SPENT_PERCENT / 100;
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        signed(self.requests).saturating_mul(allowed).saturating_sub(signed(self.late).saturating_mul(ONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// `p95 < 200ms`, and what was counted until now.
    fn reading(recent_ms: u64, counted: Option<Counted>) -> Reading {
        Reading { recent: ms(recent_ms), target: ms(200), quantile_permille: 950, counted }
    }

    /// A server that answers ten requests between two readings; each takes so long by itself, and as much longer as it is put off.
    #[derive(Default)]
    struct Server {
        slack: Slack,
        counted: Counted,
    }

    impl Server {
        /// So many readings; the hold in ms after each.
        fn serve(&mut self, readings: usize, alone_ms: u64) -> Vec<u64> {
            let mut serve = || {
                let took_ms = alone_ms + self.slack.hold().0 / 1_000_000;
                self.counted.requests += 10;
                self.counted.late += if took_ms >= 200 { 10 } else { 0 };
                self.slack.note(reading(took_ms, Some(self.counted)));
                self.slack.hold().0 / 1_000_000
            };
            (0..readings).map(|_| serve()).collect()
        }

        fn late_percent(&self) -> u64 {
            100 * self.counted.late / self.counted.requests
        }
    }

    #[test]
    fn what_a_server_has_to_spare_is_felt_for() {
        let mut server = Server::default();
        assert_eq!(server.serve(6, 60), [0, 12, 25, 37, 50, 62]);
        let holds = server.serve(400, 60);
        let mean = holds.iter().sum::<u64>() / 400;
        assert!((80..140).contains(&mean), "140 ms are to be spent: {mean}");
        assert!(server.late_percent() < 5, "{} %", server.late_percent());
    }

    #[test]
    fn who_has_nothing_to_spare_is_put_off_for_next_to_nothing() {
        let mut server = Server::default();
        server.serve(2_000, 199);
        assert!(server.slack.hold() < ms(13) && server.late_percent() < 5, "{} %", server.late_percent());
    }

    #[test]
    fn a_hold_stays_below_the_bound_whatever_is_told() {
        let mut slack = Slack::default();
        (0..100).for_each(|_| slack.note(reading(20, None)));
        assert_eq!((slack.hold().0, slack.ppm()), (ms(200).0 / 40 * 39, 1_000_000));
    }

    #[test]
    fn one_late_request_that_was_earned_takes_nothing_and_many_take_all() {
        let mut slack = Slack::default();
        let mut counted = Counted::default();
        let mut note = |requests, late| {
            counted = Counted { requests: counted.requests + requests, late: counted.late + late };
            slack.note(reading(120, Some(counted)));
            slack.hold()
        };
        (0..10).for_each(|_| {
            note(10, 0);
        });
        let before = note(10, 0);
        assert_eq!(note(10, 1), before, "of 120 requests three may be late");
        assert!(note(10, 9) < before, "and ten may not");
        (0..40).for_each(|_| {
            note(10, 10);
        });
        assert!(note(10, 10) < ms(1));
    }

    #[test]
    fn a_reading_that_no_request_has_ended_since_moves_nothing() {
        let mut slack = Slack::default();
        let counted = Some(Counted { requests: 10, late: 0 });
        slack.note(reading(120, counted));
        (0..10).for_each(|_| slack.note(reading(120, counted)));
        assert_eq!(slack.hold(), Nanos(0), "and the first one says since when they are counted");
    }

    #[test]
    fn another_promise_begins_anew() {
        let mut slack = Slack::default();
        (0..10).for_each(|_| slack.note(reading(20, None)));
        slack.note(Reading { target: ms(300), ..reading(290, None) });
        assert!(slack.hold() < ms(20));
    }
}
