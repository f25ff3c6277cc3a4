use super::*;
use weir_protocol::pages::Rate;
use weir_protocol::units::{Bytes, SmShare};

use crate::Sample;
use crate::story::{Doing, Story, TICK, filler, latency, primary, slo, tenant};

const ONLINE: usize = 0;
const FILLER: usize = 1;

/// Bursts of `busy_ms`, then 20 ms of nothing, `times` over; the filler has work all along.
fn bursts(story: &mut Story, busy_ms: u64, times: u64) {
    let online = |at_us| crate::story::iterates(at_us, busy_ms * 1_000, 20_000);
    story.play(times * (busy_ms + 20), |who, at_us| if who == FILLER { Doing::Works } else { online(at_us) });
}

fn beside_a_filler(online: Sample) -> Story {
    let mut story = Story::new("dilu", &[online, filler()]);
    bursts(&mut story, 40, 4);
    story
}

fn level(story: &Story) -> u32 {
    story.decision(FILLER).grant.rate.as_ppm()
}

#[test]
fn stretched_bursts_are_an_emergency_that_shrinks_the_filler_and_recovery_gives_it_back() {
    // papers 1.5, the table of states.
    let mut story = beside_a_filler(latency(40));
    let before = level(&story);
    assert_eq!(
        (story.state(FILLER), before),
        ("RECOVERY", 60_000),
        "a tenth of the 60 % that nobody requested"
    );
    bursts(&mut story, 80, 1);
    assert_eq!(story.state(FILLER), "EMERGENCY");
    let half = level(&story);
    assert!(half.abs_diff(before / 2) < before / 50, "twice as long: half, and not {half} of {before}");
    bursts(&mut story, 52, 1);
    assert_eq!((story.state(FILLER), level(&story)), ("CONTENTION", half), "1.3: as it was");
    bursts(&mut story, 40, 4);
    assert_eq!((story.state(FILLER), level(&story)), ("RECOVERY", half), "four calm bursts: not yet");
    bursts(&mut story, 40, 1);
    assert_eq!(level(&story) / 100, half * 13 / 1_000, "the fifth");
}

#[test]
fn four_times_as_long_is_another_workload_and_what_is_short_says_nothing() {
    // papers 1.5: a ratio of 4 and more is ignored, and so are bursts below 30 ms.
    let mut story = beside_a_filler(latency(40));
    let before = level(&story);
    bursts(&mut story, 200, 1);
    assert_eq!((story.state(FILLER), level(&story)), ("CONTENTION", before));
    bursts(&mut story, 20, 8);
    assert_eq!((story.state(FILLER), level(&story)), ("CONTENTION", before));
}

#[test]
fn fillers_get_their_limits_once_all_betters_were_silent_for_600_ms() {
    // papers 1.5: low tasks get their limits when all high ones have been silent for more than 120 samples.
    let mut story = beside_a_filler(latency(40));
    story.run(580, &[FILLER]); // and 20 ms before
    assert_eq!(level(&story), 60_000);
    story.run(2, &[FILLER]);
    assert_eq!(level(&story), 1_000_000);
    assert_eq!(story.decision(FILLER).grant.in_flight_cap, IN_FLIGHT_CAP);
    story.run(1, &[ONLINE, FILLER]);
    assert!(level(&story) <= 600_000, "the online tenant is back, and gets its request");
    assert_eq!(story.decision(FILLER).grant.in_flight_cap, SHORT_CAP);
}

#[test]
fn a_level_is_time_and_so_is_what_it_leaves() {
    // papers 1.5, weakness 1: blocks are not time. What the filler may have and what the other may have add up to the GPU.
    let mut story = beside_a_filler(latency(40));
    story.run(10, &[ONLINE, FILLER]);
    let granted = |who: usize| story.decision(who).grant.rate.as_ppm();
    assert_eq!(granted(ONLINE) + granted(FILLER) - 10_000, Rate::FULL.as_ppm(), "the floor comes on top");
}

#[test]
fn an_emergency_on_one_gpu_throttles_nobody_on_another() {
    // papers 1.5, weakness 2: the level is one for all GPUs.
    let (mut here, mut there) = (beside_a_filler(latency(40)), beside_a_filler(latency(40)));
    bursts(&mut here, 80, 1);
    bursts(&mut there, 40, 1);
    assert_eq!((here.state(FILLER), there.state(FILLER)), ("EMERGENCY", "RECOVERY"));
    assert!(level(&there) > level(&here));
}

#[test]
fn requests_and_limits_bind_between_two_online_tenants() {
    // papers 1.5, weakness 3: caps far above any real rate.
    let limited = Sample { limit: SmShare::percent(30), ..latency(30) };
    let mut story = Story::new("dilu", &[latency(50), limited]);
    story.run(10, &[0, 1]);
    assert_eq!((story.percent(0), story.percent(1)), (70, 30));
}

#[test]
fn a_busy_neighbour_never_counts_as_idle() {
    // papers 1.5, weakness 4: whoever was idle for a moment cleared nothing.
    let mut story = Story::new("dilu", &[latency(20), filler(), latency(20)]);
    story.run(2_000, &[2, FILLER]);
    assert_eq!(level(&story), 60_000, "one is silent for 2 s, the other is not");
}

#[test]
fn whoever_is_busy_alone_gets_its_limit() {
    // papers 1.5, weakness 5: a busy tenant saw its own work as another's.
    let mut story = Story::new("dilu", &[latency(20), filler(), latency(20)]);
    story.run(10, &[ONLINE]);
    assert_eq!(story.percent(ONLINE), 100);
    story.run(10, &[ONLINE, 2]);
    assert_eq!((story.percent(ONLINE), story.percent(2)), (50, 50));
}

#[test]
fn who_tells_a_latency_is_judged_by_it_and_not_by_bursts() {
    // papers 1.5, weakness 7: a burst's length breaks as a proxy when batches change.
    let mut story = beside_a_filler(Sample { slo: slo(200, Some(100)), ..latency(40) });
    bursts(&mut story, 100, 2);
    assert_eq!(story.state(FILLER), "RECOVERY", "bursts of 2.5 times, and users served in half the time");
    story.samples[ONLINE].slo = slo(200, Some(200));
    story.run(1, &[ONLINE, FILLER]);
    assert_eq!(story.state(FILLER), "EMERGENCY", "the promise is broken, however long bursts are");
    story.samples[ONLINE].slo = slo(200, Some(170));
    story.run(1, &[ONLINE, FILLER]);
    assert_eq!(story.state(FILLER), "CONTENTION");
}

#[test]
fn work_under_way_is_work_however_it_was_launched_and_memory_is_in_each_grant() {
    // papers 1.5, weakness 8: graphs pass, memory is free.
    let held = Sample { memory_limit: Bytes::gib(7), ..tenant() };
    let mut story = Story::new("dilu", &[held, filler()]);
    story.run(2_000, &[ONLINE]); // one graph after the other: nothing was launched by kernel
    assert!(level(&story) < 200_000, "the GPU is busy, the filler is not opened");
    assert_eq!(story.decision(ONLINE).grant.memory_limit, Bytes::gib(7));
}

#[test]
fn a_burst_is_judged_in_the_tick_in_which_it_is_stretched() {
    // papers 1.5, weakness 9: 5 ms to tell, 2 ms to ask, and what is queued.
    let mut story = beside_a_filler(latency(40));
    story.run(63, &[ONLINE, FILLER]);
    assert_eq!(story.state(FILLER), "RECOVERY");
    story.run(2, &[ONLINE, FILLER]);
    assert_eq!(story.state(FILLER), "EMERGENCY", "at 1.6 times 40 ms, while it still goes on");
    assert_eq!(story.decision(FILLER).grant.in_flight_cap, SHORT_CAP);
    let once = level(&story);
    story.run(1, &[ONLINE, FILLER]);
    assert_eq!(level(&story), once, "judged once");
}

#[test]
fn waiting_at_our_gate_or_behind_a_neighbour_is_not_interference() {
    // gpu-truths, rule 3: with plain slicing a busy filler doubles each burst, which would be an emergency for ever.
    for waiting in [Doing::Waits, Doing::Behind] {
        let mut story = beside_a_filler(latency(40));
        let online = |at_us: u64| match at_us {
            0..80_000 if at_us % 2_000 < 1_000 => Doing::Works,
            0..80_000 => waiting,
            _ => Doing::Idle,
        };
        story.play(100, |who, at_us| if who == FILLER { Doing::Works } else { online(at_us) });
        assert_eq!(story.state(FILLER), "RECOVERY", "{waiting:?}");
    }
}

#[test]
fn a_primary_with_all_of_the_gpu_leaves_the_filler_its_floor() {
    // design 5: a closed filler keeps a floor of 1 %.
    let mut story = Story::new("dilu", &[primary(100), filler()]);
    story.run(10, &[0, 1]);
    assert_eq!((story.percent(0), story.percent(1)), (100, 1));
    assert!(story.decision(0).grant.rate == Rate::FULL && TICK > SHORT_CAP);
}
