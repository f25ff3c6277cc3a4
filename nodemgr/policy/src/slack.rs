//! How long a latency tenant's bursts may be put off without breaking its promise.
//!
//! A server that decodes step after step leaves no bubbles, and yet may be faster than it promised; one that begins with each
//! request as it comes could have read several at once. What is between its latency and the bound can be spent: each burst
//! is held back for a filler's turn (gpu-truths 2a; `weir-core::hold` has what is held back, and what is not).
//!
//! ```text
//!   margin   3/64 of the bound, and as much again for each late request that is owed (`misses.rs`), up to a quarter; while
//!            one more may be late, smaller by 1/128 with each reading, down to that.
//!            Where nobody counts: smaller by 1/512 with each reading within the bound, and 3/64 again with one beyond it
//!   goal     the bound less the margin
//!   missing  goal - latency, and no less than -goal / 8 in the first five seconds in which the bound is broken:
//!            so long one late request may stand behind all readings. Beyond the bound it is nothing while one more may be late
//!   hold     of steps (`steps.rs`) it is at once what the goal is without a miss to spare, with a narrower margin, 12/512. Else it
//!            shrinks by a quarter of what is too much with each reading. It grows
//!            by all that is missing until a reading comes near the goal;
//!            then by an eighth of it for each request that has ended since the reading before, and a quarter at most.
//!            Where nobody counts: by a quarter with each reading; by half while a quarter of the goal is missing.
//!            But for steps, it does not grow while no miss is to spare, and each reading then that tells of late ones halves it.
//!            In time slices, until it is seen how requests are answered (`rounds.rs`) it is 1/64 of the goal at most. In rounds: from
//!            what these take, by 1/32 of the way with each reading of rounds that were put off, while a miss is to spare, to how far
//!            apart they may be; with late ones and none to spare half of the way back, and then to nothing
//! ```
//!
//! A reading that no request has ended since is the one before again, and gives nothing. And who joins a burst that is being put
//! off waits for less than it was put off by: where few requests come, one reading may lie far below the next one. (With halves,
//! and old readings taken for new ones, three of 16 servers of a request in two seconds broke their promise, simulated.)
//!
//! The latency is a figure of the last seconds, so it is believed only as it comes in. What it hides is how many were late: of
//! twenty requests p95 is the second slowest. So the count rules the margin, and the quantile only the way to the goal.
//! Where requests wait for a place, as before a server that decodes for eight at a time, they wait for nothing or for long: the quantile
//! of the last seconds lies far below the goal, however long steps are put off, until many are late. There only the count tells, and
//! what comes of a longer hold shows so late that it grows slowly. (With all that was missing at once 23 of 60 such servers broke
//! what they promised of first tokens, and as many of whole answers, simulated.)
//! Where nobody counts, many requests' quantile scatters around the goal, and the margin stays wide; of a few it is the
//! slowest one, and where that keeps the bound nearly all do.
//! Steps that are put off until one in so long is due take no longer than that: so the hold itself ends short of the bound, and
//! where it is known that steps are what a latency tells of, it need not be felt for.

use weir_protocol::units::Nanos;

use crate::lend::FULL;
use crate::misses::{Budget, Misses};
use crate::promise::Reading;
use crate::rounds::{Answers, Rounds};
use crate::steps::Steps;
use crate::{Mode, Sample};

/// The margin, in 512ths of the bound: at first (with 16 of them one in fourteen servers of single passes broke its promise,
/// simulated), ...
const WIDE: u64 = 24;

/// ... at least, by one smaller with each reading, or by so much where it is known that one more may be late, ...
const NARROW: u64 = 4;
const NARROWS: u64 = 4;

/// ... and at most, while late requests are owed.
const WIDEST: u64 = 128;

/// The way to the goal is gone in so many parts, ...
const STEPS: u64 = 4;

/// ... and where nobody counts in so many while it is longer than this part of the goal. (All of it at once broke promises of
/// servers of single passes, simulated.)
const STRIDES: u64 = 2;
const FAR: u64 = 4;

/// Of what is missing one such part is given for each request that has ended.
const EACH: u64 = 8;

/// A latency is near the goal that lacks no more than this part of it.
const NEAR: u64 = 8;

/// Requests of so long may stand behind one reading: whoever scrapes does so over the last few.
const SETTLES: Nanos = Nanos::from_secs(5);

/// Part of the goal that a reading may count for until then.
const BELIEVED: u64 = 8;

/// Such a part of the goal is tried until it is known how requests are answered.
const TRIED: u64 = 64;

/// Rounds go the way to where they are furthest apart in so many readings. (With eight 9 of 120 servers broke their promise, with these 6,
/// with no hold 3, simulated.)
const PACES: u64 = 32;

/// The margin of steps at first: real ones are a hundredth later than they are put off.
const WIDE_OF_STEPS: u64 = 12;

/// If a promise stays broken for so long, it is not that steps are put off.
const LASTING: Nanos = Nanos::from_secs(15);

/// What one tenant has to spare.
#[derive(Clone, Copy, Debug)]
pub struct Slack {
    hold: Nanos,
    most: Nanos, // that it may come to
    margin: u64, // in 512ths of the bound
    near: bool,  // a reading has been near the goal
    steps: Steps,
    rounds: Rounds,
    broken_since: Option<Nanos>,
    misses: Misses,
}

impl Default for Slack {
    fn default() -> Self {
        let (none, misses) = (Nanos(0), Misses::default());
        Self {
            hold: none,
            most: none,
            margin: WIDE,
            near: false,
            steps: Steps::default(),
            rounds: Rounds::default(),
            broken_since: None,
            misses,
        }
    }
}

impl Slack {
    /// What the tenant has done, up to the reading that comes next.
    pub fn follow(&mut self, sample: &Sample) {
        self.rounds.look(sample);
    }

    /// The tenant's latency was read.
    pub fn note(&mut self, now: Nanos, reading: Reading, mode: Mode) {
        let Reading { recent, target, .. } = reading;
        let less = |margin: u64| Nanos(target.0 / 512 * (512 - margin));
        let broken_since = (recent >= target).then(|| self.broken_since.unwrap_or(now));
        self.broken_since = broken_since;
        let budget = self.misses.note(reading);
        match mode {
            Mode::TimeSlicing => self.steps.note(reading, self.misses.ended().unwrap_or(1), self.hold),
            Mode::Overlap => self.steps = Steps::default(), // nobody is put off
        }
        self.margin = self.margin(budget);
        let goal = less(self.margin);
        let excess = match broken_since {
            Some(_) if budget == Budget::Spare => Nanos(0),
            Some(since) if now.since(since) >= SETTLES => recent.since(goal),
            _ => Nanos(recent.since(goal).0.min(goal.0 / BELIEVED)),
        };
        let owes = matches!(budget, Budget::Owed(_)) && !self.steps.are_sure();
        let more = if owes { 0 } else { self.more(goal, goal.since(recent).0) };
        self.near |= recent.0 >= goal.0 - goal.0 / NEAR;
        self.most = less(NARROW);
        let before = if owes && self.misses.late() > 0 { self.hold.0 / 2 } else { self.hold.0 };
        let felt = Nanos(before.saturating_add(more)).since(Nanos(excess.0 / STEPS));
        let lasts = broken_since.is_some_and(|since| now.since(since) >= LASTING);
        let known = match budget {
            _ if lasts => Nanos(0),
            Budget::Spare => less(self.wide()),
            Budget::Owed(_) | Budget::Unknown => goal,
        };
        let hold = match self.rounds.answers() {
            _ if self.steps.are_sure() => felt.max(known),
            _ if mode == Mode::Overlap => felt,
            Answers::InRounds { .. } if lasts => Nanos(0),
            Answers::InRounds { round, apart } => self.between(round, apart, budget),
            Answers::Somehow => felt.min(Nanos(goal.0 / TRIED)),
            Answers::AtOnce | Answers::Uncounted => felt,
        };
        self.hold = hold.min(self.most);
    }

    /// The margin, with this reading.
    fn margin(&self, budget: Budget) -> u64 {
        match budget {
            Budget::Owed(thousandths) => (self.wide() + WIDE * thousandths / 1_000).min(WIDEST),
            Budget::Unknown if self.broken_since.is_some() => WIDE,
            Budget::Unknown => (self.margin - 1).max(NARROW),
            Budget::Spare => self.margin.saturating_sub(NARROWS).max(NARROW),
        }
    }

    fn wide(&self) -> u64 {
        if self.steps.are_sure() { WIDE_OF_STEPS } else { WIDE }
    }

    /// By how much the hold grows with a reading to which so much is `missing`.
    fn more(&self, goal: Nanos, missing: u64) -> u64 {
        match self.misses.ended() {
            None => missing / if missing > goal.0 / FAR { STRIDES } else { STEPS },
            Some(0) => 0,
            Some(_) if !self.near => missing,
            Some(ended) => missing / EACH * ended.min(EACH / STEPS),
        }
    }

    /// The hold where requests are answered in rounds: from what these take by themselves, which puts off none that follows another, to
    /// how far apart they may be. The quantile tells nothing of the way; how many were late does.
    fn between(&self, round: Nanos, apart: Nanos, budget: Budget) -> Nanos {
        let hold = self.hold.min(apart);
        match budget {
            Budget::Spare if self.misses.ended() > Some(0) && self.rounds.are_put_off() => {
                Nanos(hold.0.max(round.0) + apart.since(round).0 / PACES).min(apart)
            }
            Budget::Owed(_) if self.misses.late() > 0 && hold > round => {
                Nanos(round.0 + hold.since(round).0 / 2)
            }
            Budget::Owed(_) if self.misses.late() > 0 => Nanos(0),
            _ => hold,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::{latency, slo};
    use crate::{Counted, Slo, Work};

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// A reading of a tenant that answers each request in a burst.
    fn note(slack: &mut Slack, at: u64, reading: Reading) {
        in_rounds(slack, at, reading, 1);
    }

    /// The same, in so many rounds of 20 ms each, of which the tenant's request allows one in 40.
    fn in_rounds(slack: &mut Slack, at: u64, reading: Reading, rounds: u64) {
        let bursts = rounds * reading.counted.map_or(0, |counted| counted.requests);
        let work = Work { bursts: (bursts, ms(20 * bursts)), ..Work::default() };
        let slo = slo(200, Some(100)).map(|slo| Slo { counted: reading.counted, ..slo });
        slack.follow(&Sample { slo, work, ..latency(50) });
        slack.note(Nanos::from_secs(at), reading, Mode::TimeSlicing);
    }

    fn reading(recent_ms: u64, counted: Option<Counted>) -> Reading {
        let (recent, target) = (ms(recent_ms), ms(200));
        Reading { recent, target, quantile_permille: 950, counted, per_token: false }
    }

    /// A reading in each of so many seconds, of a promise of 200 ms, after `from`; the hold in ms.
    fn read(slack: &mut Slack, from: u64, seconds: u64, recent: impl Fn(u64) -> u64) -> u64 {
        for at in from..from + seconds {
            let recent = recent(slack.hold().0 / 1_000_000);
            note(slack, at, reading(recent, None));
        }
        slack.hold().0 / 1_000_000
    }

    #[test]
    fn what_is_missing_to_the_goal_is_given_by_and_by_and_taken_back() {
        // gpu-truths 2a: slack = SLO - step time.
        let mut slack = Slack::default();
        assert_eq!(read(&mut slack, 1, 1, |_| 120), 35, "half of 191 - 120");
        let more = read(&mut slack, 2, 1, |_| 150);
        assert_eq!(more, 45, "a quarter of 191.4 - 150");
        assert!(read(&mut slack, 3, 2, |_| 198) < more, "above the goal, below the bound");
    }

    #[test]
    fn it_comes_to_what_an_oracle_would_spend() {
        // design 10, policy.slo_goodput_percent: 90 % of an offline oracle. Alone it takes 120 ms, so that 80 are to be spent.
        let mut slack = Slack::default();
        let hold = read(&mut slack, 1, 60, |hold| 120 + hold);
        assert!((72..80).contains(&hold), "{hold} ms");
    }

    /// gpu-truths 2a: slack is the bound less the latency; by how much it is spent at a time is Weir's own.
    #[test]
    fn one_late_request_does_not_take_all_and_a_promise_that_stays_broken_does() {
        let mut slack = Slack::default();
        let before = read(&mut slack, 1, 60, |hold| 120 + hold);
        let after = read(&mut slack, 61, 5, |_| 400);
        assert!((before / 2..before).contains(&after), "{before} ms, then {after} ms");
        assert_eq!(read(&mut slack, 66, 5, |_| 400), 0);
    }

    /// gpu-truths 2a: slack is the bound less the latency; by how much it is spent at a time is Weir's own.
    #[test]
    fn a_latency_that_does_not_rise_lets_it_rise_nearly_to_the_bound_and_no_further() {
        assert_eq!(read(&mut Slack::default(), 1, 100, |_| 20), 198, "127/128 of it");
    }

    /// gpu-truths 2a: slack is the bound less the latency; by how much it is spent at a time is Weir's own.
    #[test]
    fn the_margin_is_narrow_where_readings_keep_the_bound_and_wide_where_they_scatter_around_it() {
        assert!(read(&mut Slack::default(), 1, 100, |_| 197) > 20, "the slowest of a few");
        let mut slack = Slack::default();
        for from in (1..100).step_by(8) {
            read(&mut slack, from, 7, |_| 197);
            read(&mut slack, from + 7, 1, |_| 201);
        }
        assert_eq!(slack.hold(), Nanos(0), "the quantile of many");
    }

    /// The same with four requests in each second, of which so many are late until then; where `recent` has the hold, too.
    fn count(slack: &mut Slack, seconds: u64, late: impl Fn(u64) -> u64, recent: impl Fn(u64) -> u64) -> u64 {
        for at in 0..=seconds {
            let counted = Some(Counted { requests: 4 * at, late: late(at) });
            let recent = recent(slack.hold().0 / 1_000_000);
            note(slack, at, reading(recent, counted));
        }
        slack.hold().0 / 1_000_000
    }

    /// gpu-truths 2a: slack is the bound less the latency; by how much it is spent at a time is Weir's own.
    #[test]
    fn counted_latencies_come_as_close_to_the_bound_as_others_once_a_miss_is_to_spare() {
        let mut slack = Slack::default();
        let at_first = count(&mut slack, 8, |_| 0, |hold| 120 + hold);
        assert_eq!(
            at_first, 0,
            "34 requests in time pay for what is owed at first, and one more for a miss to spare"
        );
        let hold = count(&mut Slack::default(), 60, |_| 0, |hold| 120 + hold);
        assert!((76..80).contains(&hold), "{hold} ms");
    }

    /// gpu-truths 2a: slack is the bound less the latency; by how much it is spent at a time is Weir's own.
    #[test]
    fn a_reading_gives_by_the_requests_that_it_is_news_of() {
        let mut slack = Slack::default();
        let mut held = |at: u64, recent_ms: u64, requests: u64| {
            let counted = Some(Counted { requests, late: 0 });
            note(&mut slack, at, reading(recent_ms, counted));
            slack.hold().0 / 1_000_000
        };
        assert_eq!((held(0, 60, 0), held(1, 60, 33)), (0, 0), "no miss is to spare yet");
        let first = held(2, 60, 34);
        assert_eq!((first, held(3, 60, 34), held(4, 60, 34)), (132, 132, 132), "all of 192 - 60, and once");
        assert_eq!(held(5, 180, 35), 149, "it has been near the goal");
        assert_eq!(held(6, 40, 36), 168, "somebody joined a burst: an eighth of what is missing");
        assert_eq!(held(7, 170, 46), 175, "of ten requests a quarter");
    }

    /// gpu-truths 2a: slack is the bound less the latency; by how much it is spent at a time is Weir's own.
    #[test]
    fn a_late_reading_takes_nothing_while_one_more_may_be_late() {
        let mut slack = Slack::default();
        for at in 0..70 {
            let late = u64::from(at >= 60);
            let counted = Some(Counted { requests: 4 * at, late });
            let before = slack.hold();
            note(&mut slack, at, reading(if late > 0 { 400 } else { 190 }, counted));
            assert!(late == 0 || slack.hold() == before, "nine are saved up, and one is spent");
        }
        assert!(slack.hold() > ms(50));
    }

    /// gpu-truths 2a: slack is the bound less the latency; by how much it is spent at a time is Weir's own.
    #[test]
    fn a_server_that_is_late_too_often_is_put_off_less_however_its_quantile_of_late_reads() {
        // One in ten is late, and p95 of the last few always within the bound.
        let mut slack = Slack::default();
        let hold = count(&mut slack, 100, |at| 4 * at / 10, |hold| 120 + hold);
        assert!(hold < 5, "{hold} ms");
        let kept = count(&mut Slack::default(), 100, |at| 4 * at / 25, |hold| 120 + hold);
        assert!(kept > 65, "{kept} ms: one in 25");
    }

    /// design 5: requests hold over a long run; design 8: the most filler work subject to the SLO.
    #[test]
    fn rounds_are_put_off_by_and_by_as_far_as_the_request_allows_and_half_as_far_when_somebody_was_late() {
        let mut slack = Slack::default();
        let mut held = |at: u64, late: u64| {
            in_rounds(&mut slack, at, reading(50, Some(Counted { requests: 4 * at, late })), 10);
            slack.hold().0 / 1_000_000
        };
        assert_eq!([held(0, 0), held(1, 0), held(8, 0)], [0, 0, 0], "no miss is to spare");
        let on_the_way: Vec<u64> = (9..25).map(|at| held(at, 0)).collect();
        assert_eq!((on_the_way[0], on_the_way[15]), (20, 27), "half of the way in 16 readings");
        assert!((201..300).all(|at| held(at, 0) <= 35) && held(300, 0) == 35, "7/8 of 40 ms");
        let owed = [held(301, 5), held(302, 12), held(303, 12), held(304, 13)];
        assert_eq!(owed[..3], [35, 27, 27], "five of ten are spent, then twelve");
        assert!((20..25).contains(&owed[3]), "{owed:?}: half of the way again");
    }

    #[test]
    fn a_hold_is_small_until_it_is_known_what_comes_of_it() {
        let mut slack = Slack::default();
        for at in 0..20 {
            let counted = Some(Counted { requests: 4 * at, late: 0 });
            let no_bursts =
                Sample { slo: slo(200, Some(100)).map(|slo| Slo { counted, ..slo }), ..latency(50) };
            slack.follow(&no_bursts);
            slack.note(Nanos::from_secs(at), reading(50, counted), Mode::TimeSlicing);
        }
        assert_eq!(slack.hold().0 / 1_000_000, 3, "200 ms / 64");
    }

    /// gpu-truths 2a: slack = SLO - step time; hold the next step for a filler turn of that length.
    #[test]
    fn steps_are_put_off_until_one_in_nearly_the_bound_is_due_from_the_first_reading_on() {
        let read = |slack: &mut Slack, at: u64, recent_ms: u64, (requests, late): (u64, u64)| {
            let reading = reading(recent_ms, Some(Counted { requests, late }));
            slack.note(Nanos::from_secs(at), Reading { per_token: true, ..reading }, Mode::TimeSlicing);
            slack.hold().0 / 1_000_000
        };
        let mut slack = Slack::default();
        assert_eq!(read(&mut slack, 1, 40, (4, 0)), 190, "all but the margin and what is owed");
        assert_eq!(read(&mut slack, 2, 190, (20, 0)), 195, "a reading near the bound takes nothing");
        let owing = read(&mut slack, 3, 199, (30, 3));
        assert!(
            (185..195).contains(&owing),
            "{owing} ms: by a quarter of what is too much while two are owed"
        );
        assert!(read(&mut slack, 4, 240, (32, 5)) < owing, "so long is not what lies between two steps");
    }

    /// gpu-truths 2a: slack = SLO - step time.
    #[test]
    fn who_waits_no_longer_than_bursts_are_put_off_time_after_time_waits_for_steps() {
        let hold = count(&mut Slack::default(), 20, |_| 0, |hold| hold.max(40));
        assert_eq!(hold, 198);
        let mut at_once = Slack::default();
        for at in 0..20 {
            let counted = Some(Counted { requests: 4 * at, late: 0 });
            at_once.note(Nanos::from_secs(at), reading(40, counted), Mode::Overlap);
        }
        assert_eq!(
            (at_once.steps.are_sure(), at_once.hold().0 / 1_000_000),
            (false, 198),
            "nobody is put off where kernels run at once"
        );
    }

    /// gpu-truths 2a: slack is the bound less the latency; by how much it is spent at a time is Weir's own.
    #[test]
    fn any_reading_will_do() {
        for recent in [0, 1, u64::MAX] {
            for target in [0, 1, u64::MAX] {
                let mut slack = Slack::default();
                for second in 1..20 {
                    let (recent, target) = (Nanos(recent), Nanos(target));
                    slack.note(
                        Nanos::from_secs(second),
                        Reading { recent, target, ..reading(0, None) },
                        Mode::TimeSlicing,
                    );
                }
                assert!(slack.hold().0 <= target);
            }
        }
    }
}
