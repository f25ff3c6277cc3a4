//! Stories of `weir`: the first tenant is the better one, the second a filler.

mod bubbles;
mod clocks;
mod promises;
mod rests;
mod shares;
mod stretched;

use crate::story::{Doing, Story, iterates};

const BETTER: usize = 0;
const FILLER: usize = 1;

/// The first tenant iterates, all others have work all along.
fn iterate(story: &mut Story, ms: u64, busy_us: u64, bubble_us: u64) {
    story.play(ms, |who, at| if who == BETTER { iterates(at, busy_us, bubble_us) } else { Doing::Works });
}

/// The millisecond that begins then, of such an iteration.
fn iterate_from(story: &mut Story, ms: u64, busy_us: u64, bubble_us: u64) {
    let better = |at: u64| iterates(ms * 1_000 + at, busy_us, bubble_us);
    story.play(1, |who, at| if who == BETTER { better(at) } else { Doing::Works });
}

fn level(story: &Story) -> u32 {
    story.decision(FILLER).grant.rate.as_ppm()
}
