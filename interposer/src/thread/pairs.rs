//! Streams in which kernels overlap the one before them: programmatic dependent launch, which a command of ours between the
//! two would undo (gpu-truths, rule 5).
//!
//! At the first of a pair nobody knows that a second will come. So a thread keeps in mind to which streams it has launched
//! seconds: there marks stand before the next launch that is none, not behind a launch.

use std::cell::Cell;

/// Streams that a thread keeps in mind.
const STREAMS: usize = 4;

/// What a launch says of its neighbours in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// It may begin before the one before it has ended.
    pub follows: bool,
    /// Others may begin before it has ended, in whatever stream.
    pub leads: bool,
}

/// The streams of one thread.
pub struct Pairs {
    met: Cell<u32>, // seconds so far; 0: most programs have none, and look no further
    known: [Known; STREAMS],
}

struct Known {
    stream: Cell<u64>,
    met: Cell<u32>, // when a second came last, by the other count; 0: of no stream
}

impl Pairs {
    /// None.
    pub const fn new() -> Self {
        let known = [const { Known { stream: Cell::new(0), met: Cell::new(0) } }; STREAMS];
        Self { met: Cell::new(0), known }
    }

    /// Whether launches of this stream come in pairs, as far as is known.
    pub fn expects(&self, stream: u64) -> bool {
        self.find(stream).is_some()
    }

    /// A launch goes to the stream; says the same, with what is known by now.
    #[inline]
    pub fn meets(&self, stream: u64, pair: Pair) -> bool {
        if pair.follows {
            self.note(stream);
        }
        pair.follows || pair.leads || (self.met.get() > 0 && self.expects(stream))
    }

    /// A second one: the stream takes the place of the one that has met none for longest.
    #[cold]
    fn note(&self, stream: u64) {
        self.met.set(self.met.get().saturating_add(1));
        let longest = || self.known.iter().min_by_key(|known| known.met.get());
        if let Some(known) = self.find(stream).or_else(longest) {
            known.stream.set(stream);
            known.met.set(self.met.get());
        }
    }

    fn find(&self, stream: u64) -> Option<&Known> {
        self.known.iter().find(|known| known.met.get() > 0 && known.stream.get() == stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Pair = Pair { follows: true, leads: false };

    #[test]
    fn a_stream_of_pairs_is_remembered_however_many_others_come_before_the_next() {
        let pairs = Pairs::new();
        assert!(!pairs.meets(7, Pair::default()) && pairs.meets(7, SECOND) && pairs.expects(7));
        assert!((0..1_000).all(|_| pairs.meets(7, Pair::default()) && !pairs.meets(8, Pair::default())));
    }

    #[test]
    fn of_more_streams_than_there_is_room_for_the_last_ones_are_remembered() {
        let pairs = Pairs::new();
        for stream in 0..=STREAMS as u64 {
            assert!(pairs.meets(stream, SECOND));
            (0..=STREAMS as u64).filter(|other| *other != stream).for_each(|other| {
                pairs.meets(other, Pair::default());
            });
        }
        let remembered: Vec<_> = (0..=STREAMS as u64).filter(|stream| pairs.expects(*stream)).collect();
        assert_eq!(remembered, [1, 2, 3, 4]);
    }

    #[test]
    fn a_launch_with_an_event_for_its_followers_is_a_first_one_by_itself() {
        let pairs = Pairs::new();
        assert!(pairs.meets(7, Pair { follows: false, leads: true }) && !pairs.expects(7));
    }
}
