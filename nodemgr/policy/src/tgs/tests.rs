use super::*;

use crate::story::{Doing, Story, filler, iterates, primary};

const PRODUCTION: usize = 0;
const FILLER: usize = 1;

/// Production has the GPU for this part of each 5 ms, in percent.
fn produce(story: &mut Story, ms: u64, percent: u64) {
    let busy_us = percent * 50;
    story.play(
        ms,
        |who, at| if who == FILLER { Doing::Works } else { iterates(at, busy_us, 5_000 - busy_us) },
    );
}

fn started() -> Story {
    let mut story = Story::new("tgs", &[primary(10), filler()]);
    produce(&mut story, 251, 60);
    story
}

fn rate(story: &Story) -> u32 {
    story.decision(FILLER).grant.rate.as_ppm()
}

#[test]
fn the_fillers_rate_grows_fast_while_production_does_not_miss_it() {
    // papers 4: slow start x 1.5 while production stays within 3 % of its peak.
    let mut story = started();
    let mut before = rate(&story);
    for _ in 0..4 {
        produce(&mut story, 50, 60);
        assert_eq!((story.state(FILLER), rate(&story)), ("SLOW_START", before * 3 / 2));
        before = rate(&story);
    }
}

#[test]
fn a_first_excess_ends_the_slow_start_and_later_ones_cost_8_percent() {
    // papers 4: on excess / 1.5, then additive steps, - 8 % back-off.
    let mut tgs = Tgs { peak: 1_000_000, rate: 300_000, ..Tgs::default() };
    let mut control = |missing| {
        tgs.control(missing);
        (tgs.phase, tgs.rate)
    };
    assert_eq!(control(29), (Phase::SlowStart, 450_000));
    assert_eq!(control(30), (Phase::Steady, 300_000));
    assert_eq!(control(0), (Phase::Steady, 301_000));
    assert_eq!(control(89), (Phase::Steady, 276_920));
}

#[test]
fn much_that_is_missing_costs_nine_tenths() {
    // papers 4: / 10 when the deviation is 9 % or more.
    let mut story = started();
    produce(&mut story, 100, 60);
    let before = rate(&story);
    produce(&mut story, 100, 30);
    assert_eq!(story.state(FILLER), "BACK_OFF");
    assert!(rate(&story) <= before / 10 + 5_000, "{} of {before}", rate(&story));
}

#[test]
fn a_peak_that_is_never_reached_again_is_forgotten() {
    // papers 4: after 20 samples with 12 % missing the peak has moved (x 0.8), and the rate is halved.
    let mut tgs = Tgs::default();
    let mut notes = |samples: u64, work: u64| {
        (0..samples).for_each(|_| tgs.note(work));
        (tgs.peak, tgs.phase, tgs.rate)
    };
    assert_eq!(notes(10, 600_000).0, 600_000);
    assert_eq!(notes(20, 500_000).0, 600_000, "not yet: the window still had some of it");
    assert_eq!(notes(3, 500_000), (480_000, Phase::BackOff, STEP));
    assert_eq!(notes(11, 500_000), (500_000, Phase::Steady, 12 * STEP), "the new peak");
}

#[test]
fn fillers_are_opened_when_production_is_nearly_idle_and_not_before() {
    // papers 4: opens when more than 2 of 5 samples are nearly idle, about 150 ms.
    let mut story = started();
    story.run(140, &[FILLER]);
    assert_ne!(story.state(FILLER), "OPEN");
    story.run(20, &[FILLER]);
    assert_eq!((story.state(FILLER), rate(&story)), ("OPEN", FULL));
    produce(&mut story, 200, 60);
    assert_ne!(story.state(FILLER), "OPEN", "production is back");
}

#[test]
fn bubbles_of_some_milliseconds_are_too_short_for_it() {
    // papers 4: on others' measurements TGS harvests 7.3 % where 20 % were idle. That is what it is a baseline for.
    let mut story = Story::new("tgs", &[primary(100), filler()]);
    story.play(5_000, |who, at| if who == PRODUCTION { iterates(at, 20_300, 10_000) } else { Doing::Works });
    assert!(story.filled_percent() < 20, "{} %", story.filled_percent());
}

#[test]
fn fillers_among_themselves_have_the_gpu() {
    // papers 4: opportunistic jobs are held back for production, which there is none of.
    let mut story = Story::new("tgs", &[filler(), filler()]);
    story.run(10, &[0, 1]);
    assert_eq!((story.percent(0), story.percent(1), story.state(0)), (50, 50, "OPEN"));
}
