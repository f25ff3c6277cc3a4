use super::*;
use weir_protocol::pages::{Gate, Rate};

use crate::story::{Doing, Story, filler, iterates, latency, primary, slo};

const TRAINING: usize = 0;
const FILLER: usize = 1;

fn iterate(story: &mut Story, ms: u64, busy_us: u64, bubble_us: u64) {
    story.play(ms, |who, at| if who == TRAINING { iterates(at, busy_us, bubble_us) } else { Doing::Works });
}

/// The filler's state and rate at each of so many ticks in which training does nothing.
fn lull(story: &mut Story, ms: u64) -> Vec<(&'static str, u32)> {
    let tick = |_| {
        story.run(1, &[FILLER]);
        (story.state(FILLER), story.decision(FILLER).grant.rate.as_ppm())
    };
    (0..ms).map(tick).collect()
}

#[test]
fn tokens_start_small_and_double_with_each_tick_of_a_bubble() {
    // papers 2: BUSY, SUSPECT, FILL (tokens double from a small seed), OPEN.
    let mut story = Story::new("specinf", &[primary(60), filler()]);
    story.run(20, &[TRAINING, FILLER]);
    assert_eq!((story.state(FILLER), story.is_open(FILLER)), ("BUSY", false));
    let seen = lull(&mut story, 102);
    assert_eq!(seen[0], ("SUSPECT", 10_000), "drained: it may go on at once");
    let fill = [62_500, 125_000, 250_000, 500_000, 1_000_000, 1_000_000].map(|rate| ("FILL", rate));
    assert_eq!(seen[1..7], fill);
    assert_eq!((seen[99], seen[101]), (("FILL", 1_000_000), ("OPEN", 1_000_000)));
    assert_eq!(story.decision(FILLER).grant.in_flight_cap, LONG_CAP);
}

#[test]
fn the_barrier_closes_in_the_tick_in_which_training_launches() {
    // papers 2: any training launch closes the barrier at once.
    let mut story = Story::new("specinf", &[primary(60), filler()]);
    story.run(500, &[FILLER]);
    assert!(story.is_open(FILLER));
    story.run(1, &[TRAINING, FILLER]);
    assert_eq!((story.state(FILLER), story.is_open(FILLER), story.percent(FILLER)), ("BUSY", false, 1));
    assert_eq!(story.decision(FILLER).grant.in_flight_cap, SHORT_CAP);
    assert_eq!(lull(&mut story, 2)[1], ("FILL", 62_500), "and the tokens start small again");
}

#[test]
fn filling_stops_before_the_foretold_end_of_a_bubble() {
    // papers 2: the length of a bubble is predicted from the iteration's period.
    for (busy_us, bubble_us) in [(20_300, 10_000), (33_100, 30_400), (100_300, 60_000)] {
        let mut story = Story::new("specinf", &[primary(60), filler()]);
        iterate(&mut story, 2_000, busy_us, bubble_us);
        (story.idle, story.filled, story.lost) = Default::default();
        iterate(&mut story, 2_000, busy_us, bubble_us);
        let lost = story.lost.0 * 1_000 / 2_000_000_000;
        assert!(
            lost <= 2,
            "{busy_us}/{bubble_us}: lost {lost} thousandths, but for the first bubble nothing"
        );
        assert!(story.filled_percent() >= 30, "{bubble_us}: {} %", story.filled_percent());
    }
}

#[test]
fn bubbles_from_ten_to_two_hundred_milliseconds_are_mostly_filled() {
    // papers 2: sweep bubble lengths. Growing tokens cost the first ticks, foretelling the last ones.
    let filled = [10_000, 20_000, 50_000, 200_000].map(|bubble_us| {
        let mut story = Story::new("specinf", &[primary(60), filler()]);
        iterate(&mut story, 2_000, 30_300, bubble_us);
        story.filled_percent()
    });
    assert!(filled.is_sorted(), "{filled:?}: the longer, the more");
    assert!(filled[0] > 30 && filled[3] > 90, "{filled:?}");
}

#[test]
fn a_bubble_that_lasts_longer_than_foretold_is_filled_on() {
    // papers 2: filling stops before the predicted end; what follows a wrong prediction is ours.
    let mut story = Story::new("specinf", &[primary(60), filler()]);
    iterate(&mut story, 1_000, 20_000, 20_000);
    story.run(20, &[TRAINING, FILLER]);
    let states: Vec<_> = lull(&mut story, 40).into_iter().map(|(state, _)| state).collect();
    assert_eq!((states[5], states[19], states[39]), ("FILL", "SUSPECT", "FILL"));
}

#[test]
fn an_online_filler_has_a_reserved_share_outside_of_bubbles_and_an_offline_one_has_not() {
    // papers 2: for online requests a small reserved share outside of bubbles bounds waiting.
    let online = crate::Sample { slo: slo(500, None), ..filler() };
    let mut story = Story::new("specinf", &[primary(60), filler(), online]);
    story.run(20, &[TRAINING, FILLER, 2]);
    let closed = |who: usize| {
        let grant = story.decision(who).grant;
        assert_eq!(grant.gate, Gate::Closed);
        grant.fallback_rate.min(grant.rate)
    };
    assert_eq!((closed(FILLER), closed(2)), (Rate::ppm(10_000), Rate::from(RESERVE)));
    let mut story = Story::new("specinf", &[primary(100), filler(), online]);
    story.run(20, &[TRAINING, FILLER, 2]);
    assert_eq!(story.percent(2), 1, "what training requested is not reserved for others");
}

#[test]
fn the_last_of_several_betters_makes_the_bubble() {
    // gpu-truths, rule 1: a bubble is a context that is drained, here of all who are not fillers.
    let mut story = Story::new("specinf", &[primary(40), filler(), latency(40)]);
    story.run(50, &[2, FILLER]);
    assert_eq!(story.state(FILLER), "BUSY");
    story.run(3, &[FILLER]);
    assert_eq!(story.state(FILLER), "FILL");
}
