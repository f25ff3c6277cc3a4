//! Bursts: what a process does on a GPU from when it was idle until it is idle again, as in a turn of its own.
//!
//! A burst that comes while a neighbour is at work waits for that, and for the GPU to switch, with all of its streams at once.
//! When it began to run no event says: one on an idle stream is reached at once (gpu-truths, rule 5). A launch onto an idle stream
//! that has a mark right behind it ran when that was reached, and as long as it takes, or longer beside the other streams. So of all
//! streams that waited, the one whose launch leaves the least doubt says when the burst began.

/// A burst is known to begin if no more doubt is left of when, ns: less than a switch takes at least.
const CLEAR_NS: f64 = 40_000.0;

/// The burst that began last.
#[derive(Debug, Default)]
pub(super) struct Burst {
    number: u32,
    began: Option<(f64, f64)>, // doubt, and when, on the GPU's clock
}

/// A launch onto an idle stream that waited, with a mark right behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    /// When the mark was reached, on the GPU's clock.
    pub to: f64,
    /// What the launch takes by itself, ns, ...
    pub takes: f64,
    /// ... and the part of the GPU that it holds then.
    pub weight: f64,
    /// Streams of the process.
    pub streams: usize,
}

/// A burst as far as it is over, up to some moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    /// When it began to run, on the GPU's clock.
    pub began: f64,
    /// What was charged for the work of it that was done by then, in all streams, ns.
    pub done: f64,
}

/// One stream in a burst: work, in ns that were charged for it, since the burst began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// Up to its last mark that was put ...
    pub marked: f64,
    /// ... and up to its last one that was reached ...
    pub reached: f64,
    /// ... at this moment, on the GPU's clock, if any was.
    pub reached_at: Option<f64>,
}

impl Lane {
    /// Work done by a moment, at such a pace since the last mark that was reached. What is queued beyond that has not run.
    pub fn done_by(self, moment: f64, began: f64, pace: f64) -> f64 {
        let since = moment - self.reached_at.map_or(began, |at| at.max(began));
        (self.reached + pace * since).clamp(0.0, self.marked.max(0.0))
    }
}

impl Burst {
    /// The process was idle, and begins anew.
    pub fn begin(&mut self) {
        *self = Self { number: self.number.wrapping_add(1), began: None };
    }

    /// Tells it from others.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// A launch of the burst of this number that waited says when that began.
    pub fn note(&mut self, number: u32, first: &First) {
        let doubt = first.doubt();
        if number == self.number && doubt < self.began.map_or(CLEAR_NS, |(doubt, _)| doubt) {
            self.began = Some((doubt, first.to - first.takes));
        }
    }

    /// When the burst of this number began to run, if it is known.
    pub fn began(&self, number: u32) -> Option<f64> {
        self.began.filter(|_| number == self.number).map(|(_, began)| began)
    }
}

impl First {
    /// It took so much longer at most: the other streams may want all of the GPU each.
    fn doubt(&self) -> f64 {
        let others = self.streams.saturating_sub(1) as f64;
        self.takes * (self.weight + others - 1.0).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(to: f64, takes: f64, weight: f64, streams: usize) -> First {
        First { to, takes, weight, streams }
    }

    #[test]
    fn the_launch_that_leaves_the_least_doubt_says_when_a_burst_began() {
        let mut burst = Burst::default();
        burst.begin();
        let number = burst.number();
        burst.note(number, &first(900_000.0, 100_000.0, 1.0, 4));
        assert!(burst.began(number).is_none(), "it may have taken four times as long");
        burst.note(burst.number(), &first(621_000.0, 10_000.0, 0.5, 4));
        burst.note(burst.number(), &first(605_000.0, 5_000.0, 0.2, 4));
        burst.note(burst.number(), &first(622_000.0, 10_000.0, 0.5, 4));
        assert_eq!(burst.began(number), Some(600_000.0));
        burst.begin();
        assert!(burst.began(number).is_none() && burst.began(burst.number()).is_none());
    }

    #[test]
    fn what_a_stream_has_queued_has_not_run() {
        let lane = Lane { marked: 9e6, reached: 1e6, reached_at: Some(2e6) };
        assert_eq!(lane.done_by(3e6, 0.0, 0.5), 1.5e6);
        assert_eq!(lane.done_by(100e6, 0.0, 0.5), 9e6);
        let begins = Lane { marked: 9e6, reached: 0.0, reached_at: Some(-50e6) };
        assert_eq!(begins.done_by(2e6, 1e6, 0.5), 0.5e6, "it was idle before the burst");
    }

    #[test]
    fn beside_one_other_stream_a_narrow_launch_leaves_little_doubt_however_long_it_is() {
        let mut burst = Burst::default();
        burst.note(burst.number(), &first(400_000.0, 300_000.0, 0.1, 2));
        assert_eq!(burst.began(burst.number()), Some(100_000.0));
    }
}
