//! True slowdown: what stretches a burst, and what does not.

use super::{BETTER, FILLER, iterate, level};
use crate::lend::FULL;
use crate::story::{Doing, Story, filler, iterates, primary};

#[test]
fn where_tenants_take_turns_a_longer_burst_shrinks_no_filler() {
    // Fillers keep off by the board: what makes a burst longer is the driver's slices, or the host.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    iterate(&mut story, 40 * 8, 20_000, 20_000);
    let slowed = |who, at| match iterates(at, 40_000, 20_000) {
        Doing::Works if who == BETTER => Doing::Slowed,
        doing if who == BETTER => doing,
        _ => Doing::Works,
    };
    story.play(400, slowed);
    assert_eq!((story.state(BETTER), level(&story)), ("RECOVERY", FULL));
}

#[test]
fn larger_batches_are_no_slowdown() {
    // papers 1.5, weakness 7: the length of a burst says nothing where requests vary.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    iterate(&mut story, 40 * 8, 20_000, 20_000);
    for busy_us in [40_000, 60_000, 30_000] {
        iterate(&mut story, 400, busy_us, 20_000);
        assert_eq!(story.state(BETTER), "RECOVERY");
        assert_ne!(story.state(FILLER), "EMERGENCY");
    }
}

#[test]
fn bursts_that_no_filler_worked_beside_are_not_stretched_by_one() {
    // gpu-truths, rule 3: only true slowdown is interference.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    let alone =
        |busy_us| move |who, at| if who == BETTER { iterates(at, busy_us, 20_000) } else { Doing::Idle };
    story.play(40 * 8, alone(20_000));
    story.play(60, alone(40_000));
    assert_eq!(story.state(BETTER), "RECOVERY");
}

#[test]
fn bursts_are_not_stretched_by_fillers_that_work_in_the_bubbles_only() {
    // gpu-truths 3: hosts hiccup. Fillers whose gates are closed cannot have made a burst twice as long.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    iterate(&mut story, 40 * 8, 20_000, 20_000);
    let slowed = |who, at| match (who, iterates(at, 40_000, 20_000)) {
        (BETTER, Doing::Works) => Doing::Slowed,
        (BETTER, _) | (_, Doing::Works) => Doing::Idle,
        _ => Doing::Works,
    };
    story.play(180, slowed);
    assert_eq!((story.state(BETTER), story.state(FILLER), level(&story)), ("RECOVERY", "FILL", FULL));
}

#[test]
fn waiting_at_our_gate_or_behind_a_neighbour_is_not_slowdown() {
    // gpu-truths, rule 3.
    for waiting in [Doing::Waits, Doing::Behind] {
        let mut story = Story::new("weir", &[primary(50), filler()]);
        iterate(&mut story, 40 * 8, 20_000, 20_000);
        let half = |at: u64| if at % 2_000 < 1_000 { Doing::Works } else { waiting };
        story.play(40, |who, at| if who == BETTER { half(at) } else { Doing::Works });
        story.run(10, &[FILLER]);
        assert_eq!(story.state(BETTER), "RECOVERY", "{waiting:?}");
    }
}
