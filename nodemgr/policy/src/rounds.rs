//! In how many rounds a tenant's requests are answered: in one burst, or token by token, with a burst for each.
//!
//! A request that one burst answers is late by no more than that was put off. One of many rounds keeps its place for longer by all of
//! them, and others wait for places: for nothing at first, and then for long. But however long rounds may be put off, over a long run
//! they are no further apart than the tenant's request allows (`weir-core::hold`), so that longer holds give fillers nothing more.
//!
//! ```text
//!   in rounds  of the bursts that might be put off there were more than two for each request that ended
//!   round      what they took of the SMs, each
//!   apart      7/8 of round / request, and no more than four rounds: an eighth is left to prompts between them
//! ```
//!
//! Bursts are counted while they might be put off, which is while there is a filler; requests of other times are not. One that is told of
//! a little after its burst counts.

use weir_protocol::pages::Rate;
use weir_protocol::units::{Nanos, SmShare};

use crate::Sample;

/// So many bursts have to be seen, or half as many requests.
const SEEN: u64 = 8;

/// More bursts than so many for each request are rounds of it.
const FEW: u64 = 2;

/// Of so many bursts, or requests, half are forgotten.
const KEPT: u64 = 128;

/// Rounds are no further apart than so many of them take.
const MOST_ROUNDS: u64 = 4;

/// What was seen of a tenant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    before: Option<[u64; 3]>,
    seen: [u64; 3], // bursts, their work in ns, and requests that have ended since
    put_off: bool,  // there were bursts since the look before
    request: SmShare,
}

/// How its requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Nobody counts them.
    Uncounted,
    /// That was not seen yet.
    Somehow,
    /// In a burst or two.
    AtOnce,
    /// In many rounds.
    InRounds {
        /// Each takes so long by itself, ...
        round: Nanos,
        /// ... and they are put off until they are so far apart at most.
        apart: Nanos,
    },
}

impl Rounds {
    /// Looks at what the tenant has done.
    pub fn look(&mut self, sample: &Sample) {
        self.request = sample.request;
        let counted = sample.slo.and_then(|slo| slo.counted);
        let (bursts, work) = sample.work.bursts;
        let now = counted.map(|counted| [bursts, work.0, counted.requests]);
        let (Some(before), Some(now)) = (std::mem::replace(&mut self.before, now), now) else { return };
        let trailing = std::mem::replace(&mut self.put_off, now[0] > before[0]);
        if !self.put_off && !trailing {
            return;
        }
        for (sum, (now, before)) in self.seen.iter_mut().zip(now.into_iter().zip(before)) {
            *sum = sum.saturating_add(now.saturating_sub(before));
        }
        while self.seen[0].max(self.seen[2]) >= KEPT {
            self.seen = self.seen.map(|sum| sum / 2);
        }
    }

    /// Whether bursts might be put off of late.
    pub fn are_put_off(&self) -> bool {
        self.put_off
    }

    /// How its requests are answered, as far as was seen.
    pub fn answers(&self) -> Answers {
        let [bursts, work, requests] = self.seen;
        let few = requests.saturating_mul(FEW);
        match self.before {
            None => Answers::Uncounted,
            _ if bursts >= SEEN && bursts > few => self.in_rounds(work / bursts),
            _ if requests >= SEEN / 2 && bursts <= few => Answers::AtOnce,
            _ => Answers::Somehow,
        }
    }

    fn in_rounds(&self, round: u64) -> Answers {
        let allowed = Rate::from(self.request).time_for(round).0 / 8 * 7;
        let apart = allowed.clamp(round, round.saturating_mul(MOST_ROUNDS));
        Answers::InRounds { round: Nanos(round), apart: Nanos(apart) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::{latency, slo};
    use crate::{Counted, Slo, Work};

    /// One after another look at a tenant that is guaranteed so many percent: bursts of so many ms in all, and requests.
    fn seen(percent: u16, looks: &[(u64, u64, u64)]) -> Answers {
        let mut rounds = Rounds::default();
        for &(bursts, ms, requests) in looks {
            let counted = Some(Counted { requests, late: 0 });
            let work = Work { bursts: (bursts, Nanos::from_millis(ms)), ..Work::default() };
            let slo = slo(200, Some(100)).map(|slo| Slo { counted, ..slo });
            rounds.look(&Sample { slo, work, ..latency(percent) });
        }
        rounds.answers()
    }

    /// gpu-truths 2a: a server that decodes step after step leaves no bubbles.
    #[test]
    fn more_bursts_than_two_for_each_request_are_rounds_and_fewer_are_not() {
        let (round, apart) = (Nanos::from_millis(35), Nanos::from_micros(43_750));
        assert_eq!(seen(70, &[(0, 0, 0), (20, 700, 1)]), Answers::InRounds { round, apart });
        assert_eq!(seen(70, &[(0, 0, 0), (20, 700, 10)]), Answers::AtOnce);
        assert_eq!(seen(70, &[(0, 0, 0), (2, 70, 10)]), Answers::AtOnce, "several at once");
    }

    /// design 5: the request of a latency tenant is a guarantee over a long run.
    #[test]
    fn rounds_are_as_far_apart_as_the_request_allows_and_no_further_than_four_take() {
        let apart = |percent: u16| match seen(percent, &[(0, 0, 0), (10, 100, 0)]) {
            Answers::InRounds { apart, .. } => apart.0 / 1_000,
            other => panic!("{other:?}"),
        };
        assert_eq!([apart(0), apart(10), apart(50), apart(95)], [40_000, 40_000, 17_500, 10_000]);
    }

    #[test]
    fn what_went_before_or_was_not_put_off_says_nothing() {
        assert_eq!(seen(50, &[(1_000, 35_000, 2)]), Answers::Somehow, "of the time before");
        assert_eq!(seen(50, &[(0, 0, 0), (0, 9_000, 50)]), Answers::Somehow);
        assert_eq!(seen(50, &[(0, 0, 0), (7, 245, 0)]), Answers::Somehow, "few");
        let mut rounds = Rounds::default();
        rounds.look(&Sample { slo: slo(200, Some(100)), ..latency(50) });
        assert_eq!(rounds.answers(), Answers::Uncounted);
    }

    #[test]
    fn a_request_that_is_told_of_after_its_burst_counts_and_later_ones_do_not() {
        let late = (1..=12).map(|n| (n, 20 * n, n - 1)).flat_map(|(bursts, ms, requests)| {
            [(bursts, ms, requests), (bursts, ms, requests + 1), (bursts, ms, requests + 1)]
        });
        let looks: Vec<_> = std::iter::once((0, 0, 0)).chain(late).collect();
        assert_eq!(seen(50, &looks), Answers::AtOnce);
        let rounds = [(0, 0, 0), (100, 3_500, 3), (100, 3_500, 4), (100, 3_500, 900)];
        assert!(matches!(seen(50, &rounds), Answers::InRounds { .. }), "those were not put off");
    }

    #[test]
    fn any_counts_will_do() {
        let counts = [0, 1, u64::MAX];
        for (bursts, work) in counts.into_iter().flat_map(|n| counts.map(|work| (n, work))) {
            for requests in counts {
                let looks = [(0, 0, 0), (bursts, work, requests), (u64::MAX, 0, u64::MAX), (0, u64::MAX, 0)];
                let mut rounds = Rounds::default();
                for (bursts, ns, requests) in looks {
                    let counted = Some(Counted { requests, late: 0 });
                    let work = Work { bursts: (bursts, Nanos(ns)), ..Work::default() };
                    let slo = slo(200, Some(100)).map(|slo| Slo { counted, ..slo });
                    rounds.look(&Sample { slo, work, ..latency(50) });
                    if let Answers::InRounds { round, apart } = rounds.answers() {
                        assert!(apart >= round);
                    }
                }
            }
        }
    }

    #[test]
    fn a_server_that_answers_otherwise_is_known_anew_after_a_while() {
        let rounds = (0..20).map(|n| (n * 30, n * 900, n));
        let passes = (1..40).map(|n| (570 + n * 10, 17_100 + n * 300, 19 + n * 10));
        let looks: Vec<_> = rounds.chain(passes).collect();
        assert!(matches!(seen(50, &looks[..20]), Answers::InRounds { .. }));
        assert_eq!(seen(50, &looks), Answers::AtOnce);
    }
}
