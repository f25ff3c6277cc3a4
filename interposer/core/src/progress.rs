//! How far a tenant's work has come on a GPU, between two looks at what is done: by prediction.

use weir_protocol::units::Nanos;

/// A tenant's work on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Predicted, queued, and not known to be done.
    pub queued: u64,
    /// Known to be done.
    pub done: u64,
    /// A neighbour has work there, or may: then it takes longer than predicted, nobody knows by how much.
    pub beside: bool,
}

/// Who was asked longer ago than this knows no more when the work in between was done.
const STEADY: Nanos = Nanos::from_millis(3);

/// Whoever passes its turn on is nearly done, and shows so long that it is not: it looks now and then.
const SHOWS: Nanos = Nanos::from_micros(500);

/// In how long a tenant's work will be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// However long what runs now lasts: nothing behind it has begun.
    pub at_most: Nanos,
    /// If it all takes as long as predicted.
    pub predicted: Nanos,
}

/// How far a tenant's work has come: what of it was seen to be done, and when what is queued began to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    done: u64,
    began: Nanos,
    queued: u64, // when something was last seen to be done; only that can have run since ...
    fed: u64, // ... and, if it takes no longer than predicted, what was launched behind it before it had run dry
    asked: Nanos,
    reached: (u64, Nanos), // what was done by a mark, and when that was reached
    let_in: Nanos,
    turns: u32, // the sum of the neighbours' words in the queue, at the last turn
}

impl Progress {
    /// A mark was reached at this moment, behind all that is `done`.
    pub fn reached(&mut self, done: u64, at: Nanos) {
        self.reached = (done, at);
    }

    /// As [`Self::begin`], in a turn: the work of the one before is about to end. If that was a neighbour's, which moved its word in the queue,
    /// the GPU switches first.
    pub fn begin_turn(&mut self, turns: u32, switch: Nanos, now: Nanos) {
        let switches = std::mem::replace(&mut self.turns, turns) != turns;
        self.begin(if switches { Nanos(now.0.saturating_add(switch.0)) } else { now });
        self.let_in = now;
    }

    /// What is launched from now on begins now: there was nothing before it.
    pub fn begin(&mut self, now: Nanos) {
        (self.began, self.queued, self.fed) = (now, 0, 0);
    }

    /// Predicted work that is not done yet, less the time since it began to run.
    pub fn left(&mut self, work: Work, now: Nanos) -> Left {
        let beside = work.beside && now.since(self.let_in) > SHOWS;
        if work.queued == 0 || beside {
            self.begin(now.max(self.began)); // the GPU may be switching
        } else if self.done != work.done && self.began <= now {
            let ended = self.began.0.saturating_add(work.done.saturating_sub(self.done));
            self.began = match self.reached {
                (done, at) if done == work.done => at.max(self.began).min(now),
                // As predicted, but not before it was last seen not to be done.
                _ if now.since(self.asked) < STEADY => Nanos(ended.max(self.asked.0).min(now.0)),
                _ => now,
            };
            (self.queued, self.fed) = (0, 0);
        }
        let ran = now.since(self.began).0;
        if self.queued == 0 {
            self.queued = work.queued;
        }
        if ran <= self.fed || self.fed == 0 {
            self.fed = work.queued;
        }
        (self.done, self.asked) = (work.done, now);
        let left = |most: u64| Nanos(work.queued.saturating_sub(ran.min(most)));
        Left { at_most: left(self.queued), predicted: left(self.fed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_a_neighbours_work_nothing_is_done_until_it_is_seen() {
        let mut progress = Progress::default();
        let work = |done: u64, beside: bool| Work { queued: 1_000_000, done, beside };
        let mut left_at = |at_us: u64, work: Work| progress.left(work, Nanos(at_us * 1_000)).at_most;
        assert_eq!(left_at(10_000, work(1, false)), Nanos(1_000_000));
        assert_eq!(left_at(10_400, work(1, false)), Nanos(600_000));
        assert_eq!(left_at(10_400, work(1, true)), Nanos(1_000_000));
        assert_eq!(
            left_at(20_000, work(2, false)),
            Nanos(1_000_000),
            "some of it is, nobody knows since when"
        );
    }

    #[test]
    fn what_comes_behind_something_that_ended_began_when_that_was_to_end() {
        let mut progress = Progress::default();
        let mut left = |at_us: u64, done_us: u64, queued_us: u64| {
            let work = Work { queued: queued_us * 1_000, done: done_us * 1_000, beside: false };
            progress.left(work, Nanos(at_us * 1_000)).at_most.0 / 1_000
        };
        assert_eq!(left(1_000, 0, 0), 0);
        assert_eq!(left(1_500, 0, 1_400), 900, "two of 700 us, launched when nothing was queued");
        assert_eq!(left(2_100, 700, 700), 300, "the second one began at 1.7 ms");
        assert_eq!(left(2_800, 700, 700), 0);
        assert_eq!(
            left(2_900, 700, 1_400),
            700,
            "what was launched behind it has not run, however late it is"
        );
        assert_eq!(left(3_000, 1_400, 700), 600, "it had not ended when it was last looked at");
    }

    #[test]
    fn a_mark_says_when_what_lies_behind_it_began() {
        let mut progress = Progress::default();
        progress.begin(Nanos(1_000_000));
        let mut left = |at_us: u64, done_us: u64, mark_us: Option<u64>| {
            if let Some(at) = mark_us {
                progress.reached(done_us * 1_000, Nanos(at * 1_000));
            }
            let work = Work { queued: (4_000 - done_us) * 1_000, done: done_us * 1_000, beside: false };
            progress.left(work, Nanos(at_us * 1_000)).predicted.0 / 1_000
        };
        assert_eq!(left(1_100, 0, None), 3_900);
        assert_eq!(left(3_400, 2_000, Some(3_100)), 1_700, "2.1 ms for 2 ms of work");
        assert_eq!(left(4_300, 3_000, None), 800, "a word says nothing of time: as predicted");
    }

    #[test]
    fn what_is_launched_behind_work_that_has_not_run_dry_runs_if_that_takes_no_longer_than_predicted() {
        let mut progress = Progress::default();
        progress.begin(Nanos(1_000_000));
        let mut left = |at_us: u64, queued_us: u64| {
            let work = Work { queued: queued_us * 1_000, done: 0, beside: false };
            let Left { at_most, predicted } = progress.left(work, Nanos(at_us * 1_000));
            (at_most.0 / 1_000, predicted.0 / 1_000)
        };
        assert_eq!((left(1_100, 700), left(1_600, 1_000)), ((600, 600), (400, 400)));
        assert_eq!(left(1_900, 1_000), (300, 100));
        assert_eq!(left(2_100, 1_300), (600, 300), "dry at 2 ms, when 0.3 ms more came");
    }

    #[test]
    fn who_was_before_has_all_but_ended_whatever_he_shows() {
        let mut progress = Progress::default();
        let work = Work { queued: 5_000_000, done: 0, beside: true };
        progress.begin_turn(0, Nanos(0), Nanos(1_000_000));
        let mut left_at = |at_us: u64| progress.left(work, Nanos(at_us * 1_000)).predicted;
        assert_eq!(left_at(1_400), Nanos(4_600_000));
        assert_eq!(left_at(1_600), Nanos(5_000_000), "he goes on, nobody knows for how long");
    }

    #[test]
    fn after_a_neighbours_turn_the_gpu_switches_first() {
        let (mut progress, switch) = (Progress::default(), Nanos::from_micros(140));
        let mut work = Work { queued: 200_000, done: 0, beside: false };
        let mut left_of_turn = |turns: u32, at_us: u64, looks: bool| {
            work.done += work.queued; // of the turn before
            progress.begin_turn(turns, switch, Nanos(at_us * 1_000));
            if looks {
                let _ = progress.left(Work { queued: 0, ..work }, Nanos(at_us * 1_000)); // before it was counted
            }
            let later_us = [100, 140, 200, 340];
            later_us.map(|us| progress.left(work, Nanos((at_us + us) * 1_000)).predicted.0 / 1_000)
        };
        assert_eq!(left_of_turn(7, 1_000, true), [200, 200, 140, 0]);
        assert_eq!(left_of_turn(7, 2_000, true), [100, 60, 0, 0], "none was in between");
        assert_eq!(left_of_turn(9, 9_000, false), [200, 200, 140, 0], "what was done is seen late");
    }
}
