//! Clocks that power or heat holds back.

use weir_protocol::units::Nanos;

use super::{FILLER, iterate, level};
use crate::Power;
use crate::lend::FULL;
use crate::story::{Story, filler, latency, primary};

/// So many seconds in which the better iterates, or rests; at the beginning of each the clocks are read. The filler's state and
/// level in the last bubble.
fn read_clocks(
    story: &mut Story,
    seconds: std::ops::Range<u64>,
    held_back: bool,
    works: bool,
) -> (&'static str, u32) {
    read_slowed(story, seconds, if held_back { 2_000 } else { 1_000 }, works)
}

/// The same, at clocks at which work takes so much longer.
fn read_slowed(
    story: &mut Story,
    seconds: std::ops::Range<u64>,
    slowed_permille: u32,
    works: bool,
) -> (&'static str, u32) {
    let mut last = ("", 0);
    for second in seconds {
        story.signals.power = Some(Power { slowed_permille, read_at: Nanos::from_secs(second) });
        match works {
            true => iterate(story, 995, 10_000, 10_000),
            false => story.run(995, &[FILLER]),
        }
        last = (story.state(FILLER), level(story));
        story.run(5, &[FILLER]);
    }
    last
}

#[test]
fn fillers_shrink_while_clocks_are_held_back_beside_a_better_and_grow_again_when_they_are_free() {
    // gpu-truths, rule 17: filled bubbles remove the primary's cool-down; papers 1.5 for the law.
    for better in [primary(50), latency(50)] {
        let mut story = Story::new("weir", &[better, filler()]);
        assert_eq!(
            read_clocks(&mut story, 0..1, true, true),
            ("FILL", FULL),
            "nobody knows what was before it"
        );
        assert_eq!(read_clocks(&mut story, 1..2, true, true), ("CAPPED", FULL / 2));
        assert_eq!(read_clocks(&mut story, 2..30, true, true), ("CAPPED", FULL / 100), "the floor");
        assert_eq!(read_clocks(&mut story, 30..34, false, true).1, FULL / 100, "it may have been a moment");
        assert_eq!(read_clocks(&mut story, 34..35, false, true).1, FULL / 100 * 13 / 10);
        assert_eq!(read_clocks(&mut story, 35..35 + 5 * 20, false, true), ("FILL", FULL));
    }
}

#[test]
fn a_card_at_its_limit_that_loses_few_of_its_clocks_takes_nothing_from_fillers() {
    let mut story = Story::new("weir", &[primary(50), filler()]);
    assert_eq!(read_slowed(&mut story, 0..10, 1_190, true), ("FILL", FULL));
}

#[test]
fn nothing_is_taken_from_fillers_while_no_better_works_however_the_clocks_are() {
    // gpu-truths, rule 17: it is the primary's cool-down.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    assert!(read_clocks(&mut story, 0..5, true, true).1 < FULL / 10);
    assert!(read_clocks(&mut story, 5..6, true, false).1 < FULL / 10, "it worked until this reading");
    assert_eq!(read_clocks(&mut story, 6..7, true, false), ("OPEN", FULL));
}

#[test]
fn clocks_of_which_nobody_tells_any_more_take_nothing() {
    // gpu-truths, rule 17; as signals from outside that cannot be read.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    assert!(read_clocks(&mut story, 0..5, true, true).1 < FULL / 10);
    story.signals.power = None;
    iterate(&mut story, 15, 10_000, 10_000);
    assert_eq!((story.state(FILLER), level(&story)), ("FILL", FULL));
}

#[test]
fn one_reading_counts_once_however_long_it_holds() {
    // gpu-truths, rule 17: clocks are read about once a second, and this is asked a thousand times.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    read_clocks(&mut story, 0..2, true, true);
    iterate(&mut story, 3_015, 10_000, 10_000);
    assert_eq!((story.state(FILLER), level(&story)), ("CAPPED", FULL / 2));
}
