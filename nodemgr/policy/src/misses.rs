//! How many late requests a promise still allows.
//!
//! `p95 < 200ms` allows one request in twenty to be late. A quantile of the last seconds hides how many were: of twenty it is
//! the second slowest, and a server of four requests a second that always keeps it so may be late with twice as many as it
//! promised. So they are counted where the figures have counts, and nine tenths of what is allowed are spent:
//!
//! ```text
//!   left   -START at first; + 0.9 x (1 - quantile) for each request, - 1 for each late one; between -KEPT and KEPT
//!   spare  left >= 1: one more may be late
//!   debt   -left
//! ```
//!
//! What is beyond `KEPT` is forgotten: a day without a late request pays for no minute in which all are.

use crate::Counted;
use crate::promise::Reading;

/// Part of the allowed misses that may be spent, in percent: what a run ends with is not known before.
const SPENT_PERCENT: i64 = 90;

/// One late request. Budgets are in thousandths of one.
const ONE: i64 = 1_000;

/// No more is remembered, in either direction.
const KEPT: i64 = 10 * ONE;

/// Who has just begun owes so much: nobody knows yet how its latencies scatter. (With nothing, and a margin that is narrower by
/// a third, one of 32 servers of four requests in a second broke its promise, simulated.)
const START: i64 = ONE / 2;

/// The budget of one promise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Misses {
    of: Option<(u16, u64)>, // the promise
    before: Option<Counted>,
    ended: Option<u64>, // requests, since the look before, ...
    late: u64,          // ... and how many of them were late
    left: i64,
}

/// How it stands with the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Nobody counts.
    Unknown,
    /// One more request may be late.
    Spare,
    /// None may; and so many thousandths of a late request are owed.
    Owed(u64),
}

impl Misses {
    /// Takes in what was counted.
    pub fn note(&mut self, reading: Reading) -> Budget {
        let of = Some((reading.quantile_permille, reading.target.0));
        if self.of != of {
            *self = Self { of, left: -START, ..Self::default() };
        }
        self.ended = reading
            .counted
            .map(|now| now.requests.saturating_sub(self.before.map_or(0, |before| before.requests)));
        let Some(now) = reading.counted else { return Budget::Unknown };
        if let Some(before) = self.before.replace(now) {
            let allowed = ONE.saturating_sub(reading.quantile_permille.into()).max(0) * SPENT_PERCENT / 100;
            let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            self.late = now.late.saturating_sub(before.late);
            let earned = signed(now.requests.saturating_sub(before.requests)).saturating_mul(allowed);
            let spent = signed(self.late).saturating_mul(ONE);
            self.left = self.left.saturating_add(earned.saturating_sub(spent)).clamp(-KEPT, KEPT);
        }
        if self.left >= ONE { Budget::Spare } else { Budget::Owed(self.left.min(0).unsigned_abs()) }
    }

    /// How many requests had ended at the last look since the one before; none where nobody counts.
    pub fn ended(&self) -> Option<u64> {
        self.ended
    }

    /// How many of them were late.
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::units::Nanos;

    use super::*;

    /// p95 below 200 ms.
    fn reading(requests: u64, late: u64) -> Reading {
        let (recent, target) = (Nanos::from_millis(150), Nanos::from_millis(200));
        let counted = Some(Counted { requests, late });
        Reading { recent, target, quantile_permille: 950, counted, per_token: false }
    }

    /// After these, one reading after another.
    fn after(counts: &[(u64, u64)]) -> Budget {
        let mut misses = Misses::default();
        misses.note(reading(0, 0));
        let budgets: Vec<_> = counts.iter().map(|(n, late)| misses.note(reading(*n, *late))).collect();
        *budgets.last().unwrap()
    }

    /// design 8: the most filler work subject to the SLO; the count of late requests is Weir's own (docs/simulator.md).
    #[test]
    fn nine_tenths_of_one_in_twenty_may_be_late_and_who_begins_owes_a_half() {
        assert_eq!(after(&[(0, 0)]), Budget::Owed(500));
        assert_eq!([after(&[(33, 0)]), after(&[(34, 0)])], [Budget::Owed(0), Budget::Spare]);
        assert_eq!(after(&[(20, 0), (100, 5)]), Budget::Owed(1_000), "4.5 of 100, less the half and five");
    }

    /// design 8: the most filler work subject to the SLO; the count of late requests is Weir's own (docs/simulator.md).
    #[test]
    fn what_went_before_the_first_reading_does_not_count() {
        let mut misses = Misses::default();
        assert_eq!(misses.note(reading(1_000, 900)), Budget::Owed(500));
        assert_eq!(misses.note(reading(1_045, 900)), Budget::Spare);
    }

    /// design 8: the most filler work subject to the SLO; the count of late requests is Weir's own (docs/simulator.md).
    #[test]
    fn ten_are_remembered_in_either_direction() {
        assert_eq!(after(&[(1_000_000, 0), (1_000_000, 12)]), Budget::Owed(2_000));
        assert_eq!(after(&[(1_000, 1_000), (1_200, 1_000)]), Budget::Owed(1_000));
    }

    /// design 8: the most filler work subject to the SLO; the count of late requests is Weir's own (docs/simulator.md).
    #[test]
    fn another_promise_begins_anew_and_without_counts_nothing_is_known() {
        let mut misses = Misses::default();
        misses.note(reading(0, 0));
        assert_eq!(misses.note(reading(100, 0)), Budget::Spare);
        let stricter = Reading { quantile_permille: 990, ..reading(200, 0) };
        assert_eq!(misses.note(stricter), Budget::Owed(500));
        assert_eq!(misses.note(Reading { counted: None, ..stricter }), Budget::Unknown);
    }

    /// design 8: the most filler work subject to the SLO; the count of late requests is Weir's own (docs/simulator.md).
    #[test]
    fn it_is_told_how_many_requests_a_reading_is_news_of() {
        let mut misses = Misses::default();
        let mut ended = |reading: Reading| {
            misses.note(reading);
            misses.ended()
        };
        let nobody = Reading { counted: None, ..reading(0, 0) };
        assert_eq!(
            [ended(reading(3, 0)), ended(reading(3, 0)), ended(reading(7, 1)), ended(nobody)],
            [Some(3), Some(0), Some(4), None]
        );
    }

    /// design 8: the most filler work subject to the SLO; the count of late requests is Weir's own (docs/simulator.md).
    #[test]
    fn any_counts_will_do() {
        let counts = [0, 1, u64::MAX];
        for (requests, late) in counts.into_iter().flat_map(|n| counts.map(|late| (n, late))) {
            for quantile_permille in [0, 999, u16::MAX] {
                let mut misses = Misses::default();
                for (requests, late) in [(0, 0), (requests, late), (late, requests)] {
                    let budget = misses.note(Reading { quantile_permille, ..reading(requests, late) });
                    assert!(!matches!(budget, Budget::Owed(owed) if owed > 10_000));
                }
            }
        }
    }
}
