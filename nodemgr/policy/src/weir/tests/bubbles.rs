//! Bubbles: who fills them, how soon, and what that costs.

use weir_protocol::units::Nanos;

use super::{BETTER, FILLER, iterate, iterate_from, level};
use crate::Sample;
use crate::lend::FULL;
use crate::story::{Doing, Story, filler, latency, primary, slo};

#[test]
fn bubbles_are_filled_at_a_fiftieth_of_the_primarys_time() {
    // design 10: policy.idle_filled_percent over what can be filled: the gap less a tick until it is seen, what is in flight,
    // and two switches. policy.primary_loss_percent.
    for busy_us in [3_300, 40_300] {
        for bubble_us in [2_000, 3_000, 5_200, 10_000, 20_000, 50_000, 200_000] {
            let mut story = Story::new("weir", &[primary(100), filler()]);
            iterate(&mut story, 2_000, busy_us, bubble_us);
            (story.idle, story.filled, story.lost) = Default::default();
            iterate(&mut story, 2_000, busy_us, bubble_us);
            let fillable = 100 * (bubble_us - 1_500) / bubble_us;
            let (filled, lost) = (story.filled_percent(), story.lost.0 * 1_000 / 2_000_000_000);
            assert!(filled * 10 >= fillable * 9, "{busy_us}/{bubble_us}: {filled} % of {fillable} %");
            assert!(lost <= 20, "{busy_us}/{bubble_us}: lost {lost} thousandths");
        }
    }
}

#[test]
fn bubbles_that_nobody_foretells_cost_no_more() {
    // design 10, policy.primary_loss_percent; gaps without a rhythm, drawn from a fixed sequence.
    let lengths: Vec<u64> = (0..60u64).map(|n| 1_300 + n * n * 7_919 % 23_000).collect();
    let mut story = Story::new("weir", &[primary(100), filler()]);
    let period: u64 = lengths.iter().map(|gap| gap + 6_000).sum();
    story.play(6_000, |who, at| {
        let mut at = at % period;
        let length = lengths.iter().find(|gap| {
            let here = at < *gap + 6_000;
            at = if here { at } else { at - *gap - 6_000 };
            here
        });
        if who == FILLER || length.is_some_and(|_| at < 6_000) { Doing::Works } else { Doing::Idle }
    });
    let (filled, lost) = (story.filled_percent(), story.lost.0 * 1_000 / 6_000_000_000);
    assert!(lost <= 20, "lost {lost} thousandths");
    assert!(filled > 20, "and yet {filled} % are filled");
}

#[test]
fn a_filler_is_told_once_when_a_better_with_a_rhythm_will_be_back() {
    // Its gate sees to it that no unit outlasts that, of whatever length.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    iterate(&mut story, 1_803, 5_000, 10_000);
    let told = |story: &Story| story.decision(FILLER).grant.back_at.0;
    assert_eq!(told(&story), 0, "it works");
    let mut heard = Vec::new();
    for ms in 3..14 {
        iterate_from(&mut story, ms, 5_000, 10_000);
        heard.push(told(&story));
    }
    heard.dedup();
    let [0, back_at] = heard[..] else { panic!("{heard:?}") };
    let late = back_at.cast_signed() - 1_815_000_000;
    assert!((-2_000_000..=0).contains(&late), "{late} ns after it was back");
}

#[test]
fn fillers_that_keep_off_by_the_board_stay_open_while_a_better_works() {
    // design 10, gate.silence: the board closes them within the launch, and opens them when it is drained.
    for better in [primary(50), latency(50)] {
        let mut story = Story::new("weir", &[better, filler()]);
        story.run(50, &[FILLER]);
        assert!(story.is_open(FILLER) && level(&story) == FULL);
        story.run(1, &[BETTER, FILLER]);
        assert_eq!((story.is_open(FILLER), story.percent(FILLER), story.state(FILLER)), (true, 100, "BUSY"));
    }
}

#[test]
fn a_burst_that_is_over_within_a_tick_closes_no_filler_that_keeps_off_by_the_board() {
    let mut story = Story::new("weir", &[primary(50), filler()]);
    story.run(50, &[FILLER]);
    story.play(1, |who, at| if who == FILLER || at == 300 { Doing::Works } else { Doing::Idle });
    assert_eq!((story.samples[BETTER].outstanding, story.is_open(FILLER)), (Nanos(0), true));
}

#[test]
fn a_lull_is_suspect_until_a_whole_tick_was_still() {
    // papers 2: BUSY, SUSPECT, FILL, OPEN; gpu-truths, rule 1: drained, and not only still.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    story.run(20, &[BETTER, FILLER]);
    story.run(1, &[FILLER]);
    assert_eq!((story.state(FILLER), story.is_open(FILLER)), ("SUSPECT", true), "by the board");
    story.run(1, &[FILLER]);
    assert_eq!((story.state(FILLER), level(&story)), ("FILL", FULL));
    story.run(200, &[FILLER]);
    assert_eq!((story.state(FILLER), level(&story)), ("OPEN", FULL));
}

#[test]
fn fillers_may_queue_more_the_longer_nobody_woke() {
    // gpu-truths, rule 10: 400 us when a better may wake, 5 to 20 ms when not.
    let cap = |better: Sample, idle_ms: u64| {
        let mut story = Story::new("weir", &[better, filler()]);
        story.run(10, &[BETTER, FILLER]);
        story.run(idle_ms, &[FILLER]);
        story.decision(FILLER).grant.in_flight_cap.0 / 1_000
    };
    assert_eq!([2, 50, 100, 1_000, 9_000].map(|ms| cap(primary(50), ms)), [400, 400, 400, 6_400, 12_800]);
    assert_eq!([2, 100, 9_000].map(|ms| cap(latency(50), ms)), [400, 400, 3_200], "a user may come");
    let broken = Sample { slo: slo(200, Some(250)), ..latency(50) };
    assert_eq!(cap(broken, 9_000), 400, "and waits long enough as it is");
}
