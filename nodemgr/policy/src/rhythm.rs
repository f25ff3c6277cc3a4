//! How long the bubble that has just begun will be, from the iteration before.
//!
//! An iteration of training has a few bubbles (an exchange of gradients, the start and end of a pipeline, a write to disk),
//! and the next iteration has them again. So the bubble that begins now is as long as the one an iteration ago, once it
//! is known how many bubbles an iteration has: the number for which the past predicts itself best.
//!
//! ```text
//!   gaps      4  4 30  4  4 30  4  4       lag 1: |4-4| |4-30| ...  bad
//!                      ^________^          lag 3: 0                 so the next is the one 3 back: 30
//! ```

use weir_protocol::units::Nanos;

use crate::history::History;

/// Gaps kept.
const KEPT: usize = 40;

/// Most bubbles in an iteration: a pipeline with a bubble after each micro-batch, an exchange and an end.
const LAGS: usize = 16;

/// A number of bubbles counts as shown by so many gaps that were foretold.
const LEAST_SHOWN: usize = 3;

/// A bubble is foretold from so many iterations: each edge is seen up to a tick late, and the mean of some is not.
const AVERAGED: usize = 4;

/// Of numbers that foretell nearly as well as the best one, to this and twice, the least holds: many bubbles seen at ticks
/// fit any number by chance.
const ALIKE: Nanos = Nanos::from_micros(500);

/// A prediction may be wrong by an eighth, and by this: the edges of a gap are seen a tick late.
const TOLERANCE: Nanos = Nanos::from_micros(1_500);

/// What is foretold of a bubble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foretold {
    /// How long it will be.
    pub length: Nanos,
    /// By how much such words have been wrong, on average.
    pub error: Nanos,
}

/// The gaps of one tenant.
#[derive(Clone, Debug, Default)]
pub struct Rhythm {
    gaps: History<KEPT>,
    next: Option<Foretold>,
}

impl Rhythm {
    /// A gap was so long.
    pub fn note(&mut self, gap: Nanos) {
        self.gaps.push(gap);
        self.next = foretell(self.gaps.newest_first());
    }

    /// How long the gap that comes next, or has begun, will be; none while there is no rhythm.
    pub fn next(&self) -> Option<Foretold> {
        self.next
    }
}

fn foretell(gaps: &[Nanos]) -> Option<Foretold> {
    let lags = (1..=LAGS).filter(|lag| gaps.len() >= lag + LEAST_SHOWN);
    let mut errors = lags.map(|lag| (lag, error(gaps, lag)));
    let best = errors.clone().map(|(_, error)| error).min()?;
    let (lag, error) =
        errors.find(|(_, error)| error.0 <= best.0.saturating_mul(2).saturating_add(ALIKE.0))?;
    let length = mean(gaps.iter().skip(lag - 1).step_by(lag).take(AVERAGED));
    (error <= TOLERANCE.max(Nanos(length.0 / 8))).then_some(Foretold { length, error })
}

fn mean<'a>(gaps: impl Iterator<Item = &'a Nanos> + Clone) -> Nanos {
    let count = gaps.clone().count().max(1) as u128;
    let sum: u128 = gaps.map(|gap| u128::from(gap.0)).sum();
    Nanos(u64::try_from(sum / count).unwrap_or(u64::MAX))
}

/// Mean distance between each gap and the one `lag` before it.
fn error(gaps: &[Nanos], lag: usize) -> Nanos {
    let pairs = gaps.iter().zip(&gaps[lag..]);
    let count = (gaps.len() - lag) as u64; // at least LEAST_SHOWN
    let sum = pairs.map(|(new, old)| new.0.abs_diff(old.0)).fold(0, u64::saturating_add);
    Nanos(sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(gaps_ms: &[u64]) -> Option<u64> {
        let mut rhythm = Rhythm::default();
        gaps_ms.iter().for_each(|gap| rhythm.note(Nanos::from_millis(*gap)));
        rhythm.next().map(|foretold| foretold.length.0 / 1_000_000)
    }

    #[test]
    fn a_bubble_is_as_long_as_the_one_an_iteration_ago() {
        // papers 2: the length of a bubble is predicted from the iteration's period.
        assert_eq!(after(&[5, 5, 5, 5]), Some(5));
        assert_eq!(after(&[4, 4, 30, 4, 4, 30, 4, 4]), Some(30));
        assert_eq!(after(&[4, 4, 30, 4, 4, 30, 4, 4, 30]), Some(4));
    }

    /// papers 2: bubble-length prediction from the iteration period; the lag is Weir's own.
    #[test]
    fn a_pipeline_of_thirteen_micro_batches_has_a_rhythm() {
        let iteration = [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 60];
        let gaps = [iteration, iteration].concat();
        assert_eq!((after(&gaps), after(&gaps[..25])), (Some(5), Some(60)));
        assert_eq!(after(&iteration), None, "not shown yet");
    }

    /// papers 2: bubble-length prediction from the iteration period; the lag is Weir's own.
    #[test]
    fn a_new_rhythm_is_found_once_the_old_one_is_forgotten() {
        let mut gaps = vec![5; KEPT];
        gaps.extend([60; KEPT]);
        assert_eq!(after(&gaps), Some(60));
    }

    /// papers 2: bubble-length prediction from the iteration period; the lag is Weir's own.
    #[test]
    fn what_has_no_rhythm_is_not_foretold() {
        assert_eq!(after(&[]), None);
        assert_eq!(after(&[5, 5, 5]), None, "not shown yet");
        assert_eq!(after(&[3, 90, 14, 41, 7, 120, 66, 2, 31, 55, 9, 77]), None);
    }

    /// papers 2: bubble-length prediction from the iteration period; the lag is Weir's own.
    #[test]
    fn the_mean_of_some_iterations_is_more_exact_than_a_tick() {
        let mut rhythm = Rhythm::default();
        [5, 5, 6, 5, 6, 6, 5, 6].iter().for_each(|gap| rhythm.note(Nanos::from_millis(*gap)));
        let foretold = rhythm.next().expect("a rhythm");
        assert!(
            foretold.length.0.abs_diff(5_500_000) <= 250_000,
            "5.5 ms, seen at ticks of 1 ms: {foretold:?}"
        );
    }

    /// papers 2: bubble-length prediction from the iteration period; the lag is Weir's own.
    #[test]
    fn any_gaps_will_do() {
        let mut rhythm = Rhythm::default();
        (0..100).for_each(|n| rhythm.note(Nanos(if n % 2 == 0 { u64::MAX } else { 0 })));
        assert_eq!(rhythm.next().map(|foretold| foretold.length), Some(Nanos(u64::MAX)));
    }
}
