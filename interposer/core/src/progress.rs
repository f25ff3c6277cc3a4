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

/// How far a tenant's work has come: what of it was seen to be done, and when what is queued began to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    done: u64,
    began: Nanos,
    queued: u64, // when something was last seen to be done; only that can have run since
    asked: Nanos,
}

impl Progress {
    /// What is launched from now on begins now: there was nothing before it.
    pub fn begin(&mut self, now: Nanos) {
        (self.began, self.queued) = (now, 0);
    }

    /// Predicted work that is not done yet, less the time since it began to run.
    pub fn left(&mut self, work: Work, now: Nanos) -> Nanos {
        if work.queued == 0 || work.beside {
            self.begin(now);
        } else if self.done != work.done {
            // As predicted, but not before it was last seen not to be done.
            let ended = self.began.0.saturating_add(work.done.saturating_sub(self.done));
            let steady = now.since(self.asked) < STEADY;
            self.began = if steady { Nanos(ended.max(self.asked.0).min(now.0)) } else { now };
            self.queued = 0;
        }
        if self.queued == 0 {
            self.queued = work.queued;
        }
        (self.done, self.asked) = (work.done, now);
        Nanos(work.queued.saturating_sub(now.since(self.began).0.min(self.queued)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_a_neighbours_work_nothing_is_done_until_it_is_seen() {
        let mut progress = Progress::default();
        let work = |done: u64, beside: bool| Work { queued: 1_000_000, done, beside };
        let mut left_at = |at_us: u64, work: Work| progress.left(work, Nanos(at_us * 1_000));
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
            progress.left(work, Nanos(at_us * 1_000)).0 / 1_000
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
}
