//! What promises leave, and what comes first when they are broken.

use weir_protocol::pages::Gate;
use weir_protocol::units::{Nanos, Tokens};

use super::{BETTER, FILLER, level};
use crate::lend::FULL;
use crate::story::{Story, filler, latency, primary, slo};
use crate::{Mode, Sample};

/// Busy all the time, told that users wait so long, for so many seconds; for how many ms its bursts are put off.
fn serve(story: &mut Story, recent_ms: u64, seconds: u64) -> u64 {
    story.samples[BETTER].slo = slo(200, Some(recent_ms));
    story.run(seconds * 1_000 + 1, &[BETTER, FILLER]);
    story.decision(BETTER).grant.hold.0 / 1_000_000
}

#[test]
fn what_a_promise_leaves_is_spent_step_by_step_and_taken_back_as_it_is_used_up() {
    // gpu-truths 2a: slack = SLO - step time; design 10, policy.slo_goodput_percent.
    let mut story = Story::new("weir", &[latency(50), filler()]);
    let at_150 = serve(&mut story, 150, 1);
    assert!((5..50).contains(&at_150), "{at_150} ms");
    assert_eq!(
        (story.state(FILLER), story.is_open(FILLER)),
        ("BUSY", true),
        "by the board nobody is beside it while it works"
    );
    story.run(1, &[FILLER]);
    assert_eq!((story.state(FILLER), story.is_open(FILLER), level(&story)), ("SLACK", true, FULL));
    let at_198 = serve(&mut story, 198, 3);
    assert!(at_198 < at_150, "{at_198} ms are less than {at_150}");
    serve(&mut story, 210, 1);
    assert_eq!((story.state(FILLER), story.state(BETTER)), ("EMERGENCY", "EMERGENCY"));
    assert!(!story.is_open(FILLER));
    assert_eq!(serve(&mut story, 210, 60), 0);
}

#[test]
fn nobody_is_put_off_where_no_filler_would_use_the_time() {
    // gpu-truths 2a: slack is spent on fillers, and for nothing else.
    let mut story = Story::new("weir", &[latency(50), filler()]);
    assert!(serve(&mut story, 100, 5) > 0);
    story.run(20, &[BETTER]);
    assert_eq!(story.decision(BETTER).grant.hold, Nanos(0));
}

#[test]
fn slack_is_nobodys_beside_a_better_that_has_none() {
    // gpu-truths 2a: what one tenant can spare is not another's to lose.
    let slack = Sample { slo: slo(200, Some(20)), ..latency(60) };
    for other in [primary(20), latency(20)] {
        let mut story = Story::new("weir", &[slack, filler(), other]);
        story.run(20_000, &[BETTER, FILLER, 2]);
        assert_eq!(story.state(FILLER), "BUSY");
        assert_eq!(story.decision(BETTER).grant.hold, Nanos(0));
    }
}

#[test]
fn where_kernels_run_at_once_what_a_promise_leaves_is_spent_beside_it_and_nobody_is_put_off() {
    // gpu-truths 2a and rule 12; design 10, policy.frontier_points: under MPS `static` lets both run.
    let mut story = Story::new("weir", &[latency(50), filler()]);
    story.mode = Mode::Overlap;
    serve(&mut story, 100, 1);
    let beside = |story: &Story| (story.state(FILLER), story.decision(FILLER).grant.gate);
    assert_eq!(beside(&story), ("BESIDE", Gate::Lent));
    let first = level(&story);
    serve(&mut story, 100, 20);
    assert_eq!((first < FULL, level(&story)), (true, FULL), "whom nobody slows down has all of it to spare");
    assert_eq!(story.decision(BETTER).grant.hold, Nanos(0), "that would save nothing");
    story.run(1, &[FILLER]);
    assert_eq!(beside(&story), ("SLACK", Gate::Lent), "whoever comes next needs not have it away at once");
    let before = level(&story);
    serve(&mut story, 199, 5);
    assert!(level(&story) < before, "above the goal, below the bound");
    serve(&mut story, 210, 1);
    assert_eq!(beside(&story), ("EMERGENCY", Gate::Closed));
}

/// design 8: the most filler work subject to the SLO; gpu-truths 2b where kernels run at once.
#[test]
fn where_kernels_run_at_once_nobody_is_beside_one_who_has_promised_nothing() {
    let slack = Sample { slo: slo(200, Some(20)), ..latency(60) };
    for other in [primary(20), latency(20)] {
        let mut story = Story::new("weir", &[slack, filler(), other]);
        story.mode = Mode::Overlap;
        story.run(20_000, &[BETTER, FILLER, 2]);
        assert_eq!(story.state(FILLER), "BUSY");
        story.run(20, &[BETTER, FILLER]);
        assert_eq!(story.state(FILLER), "BESIDE");
    }
}

/// design 8: the most filler work subject to the SLO; gpu-truths 2b where kernels run at once.
#[test]
fn where_kernels_run_at_once_a_broken_promise_takes_nothing_from_the_others() {
    // Under MPS the partition is what holds it back, not what another one gets.
    let broken = Sample { slo: slo(200, Some(400)), ..latency(20) };
    for (mode, others) in [(Mode::TimeSlicing, 30), (Mode::Overlap, 60)] {
        let mut story = Story::new("weir", &[broken, primary(30)]);
        story.mode = mode;
        story.run(10, &[0, 1]);
        assert_eq!(story.percent(1), others);
    }
}

#[test]
fn who_breaks_its_promise_borrows_first() {
    // design 8: latency against SLO first.
    let mut story = Story::new("weir", &[latency(20), filler(), primary(30)]);
    story.run(10, &[BETTER, 2]);
    assert_eq!((story.percent(BETTER), story.percent(2)), (40, 60), "as static");
    story.samples[BETTER].slo = slo(200, Some(250));
    story.run(10, &[BETTER, 2]);
    assert_eq!((story.percent(BETTER), story.percent(2)), (70, 30));
}

#[test]
fn who_promised_something_has_its_bursts_whole_beside_another_better_and_no_more_than_its_share() {
    // design 8: latency against SLO first; design 5: a request is guaranteed whatever the class.
    let promised = |ms| Sample { slo: slo(ms, None), ..latency(30) };
    let grants = |samples: &[Sample]| {
        let mut story = Story::new("weir", samples);
        story.run(10, &[0, 1]);
        [0, 1].map(|who| story.decision(who).grant)
    };
    let [server, training] = grants(&[promised(40), primary(50)]);
    assert_eq!((server.turn, server.capacity), (Nanos::from_millis(40), Tokens(100_000_000)));
    assert_eq!((training.turn, training.in_flight_cap), (Nanos(0), Nanos::from_millis(5)));
    let [slow, _] = grants(&[promised(200), primary(50)]);
    assert_eq!(slow.turn, Nanos::from_millis(50), "others wait for it");
    let [silent, training] = grants(&[latency(30), primary(50)]);
    assert_eq!(
        (silent.turn, training.in_flight_cap),
        (Nanos(0), Nanos::from_millis(20)),
        "nothing was promised"
    );
    let [alone, _] = grants(&[promised(40), filler()]);
    assert_eq!(alone.turn, Nanos(0), "fillers give way");
}
