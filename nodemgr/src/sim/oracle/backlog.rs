//! How late a server's next work may begin so that its request is kept, whatever its promise would allow.
//!
//! A request is a guarantee over a long run: of each time that lasts at least so long and in which the tenant has something to
//! do throughout, it has its share (design 5 and 10). Work that begins late goes on at once from then on, so that of all such
//! times two decide: those that end with the wait, and the first one that ends after it.

use weir_simgpu_model::Nanos;

/// What is guaranteed.
#[derive(Clone, Copy, Debug)]
pub struct Guarantee {
    /// Thousandths of the GPU's time.
    pub permille: u64,
    /// In each backlogged time of at least this length.
    pub long_run: Nanos,
}

/// A server's work since it last had nothing to do.
#[derive(Debug, Default)]
pub struct Backlog {
    since: Option<Nanos>,
    bursts: Vec<Burst>,
}

#[derive(Debug)]
struct Burst {
    begun: Nanos,
    ended: Nanos,
    done: Nanos, // work by its end
    most: i128,  // the largest surplus by its end, in thousandths of a nanosecond
}

impl Backlog {
    /// The server works.
    pub fn work(&mut self, guarantee: Guarantee, (begun, ended): (Nanos, Nanos)) {
        self.since.get_or_insert(begun);
        let done = self.done() + ended - begun;
        let most = self.bursts.last().map_or(0, |last| last.most).max(self.surplus(guarantee, done, ended));
        self.bursts.push(Burst { begun, ended, done, most });
    }

    /// When its next work begins, which is wanted then: no later than the guarantee allows, to so many nanoseconds.
    pub fn bounds(&self, guarantee: Guarantee, wanted: Nanos, exact: Nanos) -> Nanos {
        let Some(last) = self.bursts.last() else { return wanted };
        let (mut early, mut late) = (last.ended, wanted.max(last.ended));
        if self.allows(guarantee, late) {
            return wanted;
        }
        while late - early > exact.max(1) {
            let middle = early.midpoint(late);
            *(if self.allows(guarantee, middle) { &mut early } else { &mut late }) = middle;
        }
        early
    }

    /// Whether the guarantee is kept if the next work begins then and goes on at once.
    fn allows(&self, guarantee: Guarantee, begins: Nanos) -> bool {
        let since = self.since.unwrap_or(begins);
        let done = self.done();
        match begins.checked_sub(since + guarantee.long_run) {
            // The first of them ends later: what it has lacked, and no more, may be lacking at its end.
            None => {
                (begins - since - done) * 1_000
                    <= guarantee.long_run * (1_000 - guarantee.permille.min(1_000))
            }
            Some(before) => self.surplus(guarantee, done, begins) >= self.most_by(guarantee, since + before),
        }
    }

    /// The least work in so long a time, of all such times in which the server had something to do throughout.
    pub fn least(&self, long_run: Nanos) -> Option<Nanos> {
        let (since, end) = (self.since?, self.bursts.last()?.ended);
        let ends = self.bursts.iter().flat_map(|burst| [burst.begun, burst.ended.saturating_add(long_run)]);
        let within = ends.filter(|at| (since + long_run..=end).contains(at));
        within.map(|at| self.done_by(at) - self.done_by(at - long_run)).min()
    }

    /// Work by then.
    fn done_by(&self, at: Nanos) -> Nanos {
        let over = self.bursts.partition_point(|burst| burst.ended <= at);
        let under_way = self.bursts.get(over).map_or(0, |burst| at.saturating_sub(burst.begun));
        under_way + over.checked_sub(1).map_or(0, |last| self.bursts[last].done)
    }

    fn done(&self) -> Nanos {
        self.bursts.last().map_or(0, |last| last.done)
    }

    /// What has been done by then beyond what is guaranteed since the beginning, in thousandths of a nanosecond.
    fn surplus(&self, guarantee: Guarantee, done: Nanos, at: Nanos) -> i128 {
        let length = at - self.since.unwrap_or(at);
        i128::from(done) * 1_000 - i128::from(length) * i128::from(guarantee.permille)
    }

    /// The largest surplus up to then.
    fn most_by(&self, guarantee: Guarantee, at: Nanos) -> i128 {
        let over = self.bursts.partition_point(|burst| burst.ended <= at);
        let before = over.checked_sub(1).map_or(0, |last| self.bursts[last].most);
        match self.bursts.get(over).filter(|burst| burst.begun < at) {
            Some(burst) => before.max(self.surplus(guarantee, burst.done - (burst.ended - at), at)),
            None => before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: Guarantee = Guarantee { permille: 600, long_run: 100 };

    #[test]
    fn of_a_long_run_nobody_lacks_more_than_is_not_guaranteed() {
        let mut backlog = Backlog::default();
        backlog.work(MOST, (0, 10));
        assert_eq!(backlog.bounds(MOST, 1_000, 1), 50, "40 of the first hundred");
        assert_eq!(backlog.bounds(MOST, 30, 1), 30, "nobody wants more");
        backlog.work(MOST, (50, 110));
        assert_eq!(backlog.bounds(MOST, 1_000, 1), 110, "60 of a hundred since 10");
        assert_eq!(backlog.bounds(Guarantee { permille: 0, ..MOST }, 1_000, 1), 1_000);
    }

    proptest! {
        #[test]
        fn whatever_is_wanted_each_long_run_has_its_share(steps in prop::collection::vec((0u64..80, 1u64..9), 1..40)) {
            let (mut backlog, mut now, mut busy) = (Backlog::default(), 0, Vec::new());
            for (wait, work) in steps {
                let begins = if now == 0 { 0 } else { backlog.bounds(MOST, now + wait, 1) };
                busy.extend((now..begins).map(|_| 0).chain((0..work).map(|_| 1u64)));
                now = begins + work;
                backlog.work(MOST, (begins, now));
            }
            for length in 100..busy.len() {
                for window in busy.windows(length) {
                    prop_assert!(window.iter().sum::<u64>() * 1_000 >= 600 * length as u64);
                }
            }
        }
    }
}
