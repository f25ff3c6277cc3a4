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
    given: u64,                // work that the process had been given before it
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

/// A burst as far as it is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    /// When it began to run, on the GPU's clock.
    pub began: f64,
    /// Work that the process has been given since it was idle.
    pub given: f64,
}

impl Burst {
    /// The process was idle, had been `given` so much work, and begins anew.
    pub fn begin(&mut self, given: u64) {
        *self = Self { number: self.number.wrapping_add(1), given, began: None };
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

    /// The burst of this number, if it is known when it began; the process has been `given` so much by now.
    pub fn ran(&self, number: u32, given: u64) -> Option<Ran> {
        let given = given.wrapping_sub(self.given) as f64;
        self.began.filter(|_| number == self.number).map(|(_, began)| Ran { began, given })
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
        burst.begin(5_000);
        let number = burst.number();
        burst.note(number, &first(900_000.0, 100_000.0, 1.0, 4));
        assert!(burst.ran(number, 6_000).is_none(), "it may have taken four times as long");
        burst.note(burst.number(), &first(621_000.0, 10_000.0, 0.5, 4));
        burst.note(burst.number(), &first(605_000.0, 5_000.0, 0.2, 4));
        burst.note(burst.number(), &first(622_000.0, 10_000.0, 0.5, 4));
        let ran = burst.ran(number, 6_000).unwrap();
        assert_eq!((ran.began, ran.given), (600_000.0, 1_000.0));
        burst.begin(6_000);
        assert!(burst.ran(number, 7_000).is_none() && burst.ran(burst.number(), 7_000).is_none());
    }

    #[test]
    fn beside_one_other_stream_a_narrow_launch_leaves_little_doubt_however_long_it_is() {
        let mut burst = Burst::default();
        burst.note(burst.number(), &first(400_000.0, 300_000.0, 0.1, 2));
        assert_eq!(burst.ran(burst.number(), 0).map(|ran| ran.began), Some(100_000.0));
    }
}
