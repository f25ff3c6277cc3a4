use super::*;
use proptest::prelude::*;
use weir_protocol::pages::{Gate, Rate, Stall};
use weir_protocol::units::SmShare;

use crate::story::{Doing, Story, filler, iterates, latency, primary, slo};
use crate::{Mode, Power, Signals};

const BETTER: usize = 0;
const FILLER: usize = 1;

/// The first tenant iterates, all others have work all along.
fn iterate(story: &mut Story, ms: u64, busy_us: u64, bubble_us: u64) {
    story.play(ms, |who, at| if who == BETTER { iterates(at, busy_us, bubble_us) } else { Doing::Works });
}

fn level(story: &Story) -> u32 {
    story.decision(FILLER).grant.rate.as_ppm()
}

#[test]
fn bubbles_are_filled_at_less_than_a_hundredth_of_the_primarys_time() {
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
            assert!(lost < 10, "{busy_us}/{bubble_us}: lost {lost} thousandths");
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
    assert!(lost < 10, "lost {lost} thousandths");
    assert!(filled > 20, "and yet {filled} % are filled");
}

#[test]
fn fillers_are_closed_in_the_tick_in_which_a_better_works() {
    // papers 2; design 10, gate.silence.
    for better in [primary(50), latency(50)] {
        let mut story = Story::new("weir", &[better, filler()]);
        story.run(50, &[FILLER]);
        assert!(story.is_open(FILLER) && level(&story) == FULL);
        story.run(1, &[BETTER, FILLER]);
        assert_eq!((story.is_open(FILLER), story.percent(FILLER), story.state(FILLER)), (false, 1, "BUSY"));
    }
}

#[test]
fn fillers_are_closed_in_the_tick_of_a_burst_that_is_already_over() {
    // papers 2: within one tick of a launch, however short the work was.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    story.run(50, &[FILLER]);
    story.play(1, |who, at| if who == FILLER || at == 300 { Doing::Works } else { Doing::Idle });
    assert_eq!((story.samples[BETTER].outstanding, story.is_open(FILLER)), (Nanos(0), false));
}

#[test]
fn a_lull_is_suspect_until_a_whole_tick_was_still() {
    // papers 2: BUSY, SUSPECT, FILL, OPEN; gpu-truths, rule 1: drained, and not only still.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    story.run(20, &[BETTER, FILLER]);
    story.run(1, &[FILLER]);
    assert_eq!((story.state(FILLER), story.is_open(FILLER)), ("SUSPECT", false), "it moved in this tick");
    story.run(1, &[FILLER]);
    assert_eq!((story.state(FILLER), level(&story)), ("FILL", FULL));
    story.run(200, &[FILLER]);
    assert_eq!((story.state(FILLER), level(&story)), ("OPEN", FULL));
}

#[test]
fn fillers_may_queue_more_the_longer_nobody_woke() {
    // gpu-truths, rule 10: 300 us when a better may wake, 5 to 20 ms when not.
    let cap = |better: Sample, idle_ms: u64| {
        let mut story = Story::new("weir", &[better, filler()]);
        story.run(10, &[BETTER, FILLER]);
        story.run(idle_ms, &[FILLER]);
        story.decision(FILLER).grant.in_flight_cap.0 / 1_000
    };
    assert_eq!([2, 50, 100, 1_000, 9_000].map(|ms| cap(primary(50), ms)), [300, 300, 600, 4_800, 19_200]);
    assert_eq!([2, 100, 9_000].map(|ms| cap(latency(50), ms)), [300, 600, 4_800], "a user may come");
    let broken = Sample { slo: slo(200, Some(250)), ..latency(50) };
    assert_eq!(cap(broken, 9_000), 300, "and waits long enough as it is");
}

#[test]
fn stretched_bursts_are_an_emergency_that_shrinks_the_filler_and_recovery_gives_it_back() {
    // papers 1.5, the table of states; design 8.
    let mut story = Story::new("weir", &[primary(50), filler()]);
    iterate(&mut story, 40 * 8, 20_000, 20_000);
    assert_eq!((story.state(BETTER), level(&story)), ("RECOVERY", FULL));
    let slowed = |who, at| match iterates(at, 40_000, 20_000) {
        Doing::Works if who == BETTER => Doing::Slowed,
        doing if who == BETTER => doing,
        _ => Doing::Works,
    };
    story.play(40, slowed);
    assert_eq!((story.state(FILLER), story.percent(FILLER)), ("EMERGENCY", 1));
    iterate(&mut story, 20, 1, 100_000);
    assert_eq!(
        (story.state(BETTER), story.percent(FILLER)),
        ("EMERGENCY", 50),
        "twice as long: half of the bubble"
    );
    iterate(&mut story, 40 * 30, 20_000, 20_000);
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
        ("BUSY", false),
        "while it works nobody is beside it"
    );
    story.run(1, &[FILLER]);
    assert_eq!((story.state(FILLER), story.is_open(FILLER), level(&story)), ("SLACK", true, FULL));
    let at_198 = serve(&mut story, 198, 3);
    assert!(at_198 < at_150, "{at_198} ms are less than {at_150}");
    serve(&mut story, 210, 1);
    assert_eq!((story.state(FILLER), story.state(BETTER)), ("EMERGENCY", "EMERGENCY"));
    assert!(!story.is_open(FILLER));
    assert_eq!(serve(&mut story, 210, 30), 0);
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
        assert_eq!((story.state(FILLER), story.is_open(FILLER)), ("BUSY", false));
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

#[test]
fn where_kernels_run_at_once_nobody_is_beside_one_who_has_promised_nothing() {
    let slack = Sample { slo: slo(200, Some(20)), ..latency(60) };
    for other in [primary(20), latency(20)] {
        let mut story = Story::new("weir", &[slack, filler(), other]);
        story.mode = Mode::Overlap;
        story.run(20_000, &[BETTER, FILLER, 2]);
        assert_eq!((story.state(FILLER), story.is_open(FILLER)), ("BUSY", false));
        story.run(20, &[BETTER, FILLER]);
        assert_eq!(story.state(FILLER), "BESIDE");
    }
}

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

#[test]
fn an_online_filler_that_is_late_fills_before_the_others() {
    // papers 2: online and offline fillers; a filler with an SLO is online.
    let online = Sample { slo: slo(200, Some(250)), limit: SmShare::percent(80), ..filler() };
    let mut story = Story::new("weir", &[primary(50), filler(), online]);
    story.run(50, &[FILLER, 2]);
    assert_eq!((story.percent(FILLER), story.percent(2)), (20, 80));
    story.samples[2].slo = slo(200, Some(100));
    story.run(1, &[FILLER, 2]);
    assert_eq!((story.percent(FILLER), story.percent(2)), (50, 50));
}

#[test]
fn debt_never_delays_a_latency_tenant_in_favour_of_a_filler() {
    // gpu-truths, rule 4.
    let mut story = Story::new("weir", &[latency(30), filler()]);
    story.run(100, &[BETTER, FILLER]);
    assert_eq!(story.decision(BETTER).grant.rate, Rate::FULL, "not metered at all");
    let half = Sample { request: SmShare::percent(20), ..filler() };
    let mut story = Story::new("weir", &[latency(30), half]);
    story.run(100, &[BETTER, FILLER]);
    let grant = story.decision(BETTER).grant;
    assert_eq!(grant.rate, Rate::ppm(800_000), "the filler's own guarantee");
    assert_eq!(grant.capacity, Tokens(8_000_000_000), "ten seconds of it may be used at once");
}

#[test]
fn outside_signals_scale_what_all_fillers_have_together() {
    // design 8: power, carbon, price.
    let mut story = Story::new("weir", &[primary(50), filler(), filler()]);
    story.signals.best_effort_permille = 300;
    story.run(50, &[1, 2]);
    assert_eq!((story.percent(1), story.percent(2)), (15, 15));
    story.signals.best_effort_permille = 0;
    story.run(1, &[1, 2]);
    assert_eq!((story.percent(1), story.percent(2)), (1, 1), "the floor stays");
}

/// So many seconds in which the better iterates, or rests; at the beginning of each the clocks are read. The filler's state and
/// level in the last bubble.
fn read_clocks(
    story: &mut Story,
    seconds: std::ops::Range<u64>,
    held_back: bool,
    works: bool,
) -> (&'static str, u32) {
    let mut last = ("", 0);
    for second in seconds {
        story.signals.power = Some(Power { held_back, read_at: Nanos::from_secs(second) });
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

#[test]
fn without_betters_fillers_share_the_gpu_as_static_does() {
    // design 8: unused share is lent in proportion to requests.
    let twenty = Sample { request: SmShare::percent(20), ..filler() };
    let mut story = Story::new("weir", &[twenty, filler()]);
    story.run(10, &[0, 1]);
    assert_eq!((story.percent(0), story.percent(1)), (95, 5));
    assert_eq!((story.state(0), story.decision(0).grant.in_flight_cap), ("OPEN", Nanos::from_micros(19_200)));
}

#[test]
fn it_rests_where_it_has_neither_a_bubble_to_fill_nor_a_promise_to_keep() {
    let promised = Sample { slo: slo(200, None), ..latency(10) };
    assert!(is_static(&[primary(10), latency(10)]) && is_static(&[filler(), filler()]));
    assert!(!is_static(&[primary(10), filler()]) && !is_static(&[primary(10), promised]));
}

prop_compose! {
    /// What each of four tenants does in a tick, as two ticks often have it.
    fn any_tick()(
        moves in prop::array::uniform4(0u64..4),
        broken in any::<bool>(),
        best_effort_permille in prop::sample::select(vec![1_000u16, 1_000, 300]),
    ) -> ([u64; 4], bool, u16) {
        (moves, broken, best_effort_permille)
    }
}

proptest! {
    #[test]
    fn what_is_remembered_of_the_last_division_is_what_another_one_would_come_to(
        ticks in prop::collection::vec((any_tick(), 1u64..40), 1..20),
    ) {
        let (mut policy, mut forgetful) = (Weir::default(), Weir::default());
        let mut samples = [latency(300), primary(200), filler(), filler()];
        samples.iter_mut().zip(1..).for_each(|(sample, tenant)| sample.tenant = tenant);
        let mut now = Nanos::from_secs(1);
        for ((moves, broken, best_effort_permille), times) in ticks {
            samples[0].slo = slo(200, Some(if broken { 210 } else { 120 }));
            for _ in 0..times {
                now.0 += 1_000_000;
                for (sample, moves) in samples.iter_mut().zip(moves) {
                    let idle = sample.idle_for.0 + 1_000_000;
                    (sample.idle_for, sample.outstanding) = match moves {
                        0 => (Nanos(idle), Nanos(0)),
                        1 => (Nanos(0), Nanos(0)),
                        _ => (Nanos(0), Nanos(300_000)),
                    };
                    let worked = if moves == 0 { 0 } else { 250_000 * moves };
                    sample.work.charged.0 += worked.cast_signed();
                    sample.work.stalls[Stall::Compute as usize].0 += worked;
                    sample.work.stalls[Stall::Neighbour as usize].0 += worked / 9;
                }
                let signals = Signals { best_effort_permille, ..Signals::default() };
                let seen = Observation { now, mode: Mode::TimeSlicing, signals, samples: &samples };
                forgetful.asked = Asked::default();
                prop_assert_eq!(policy.decide(&seen), forgetful.decide(&seen));
            }
        }
    }
}

/// What a tenant does between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    Works,
    Waits,
}

prop_compose! {
    /// What each of five tenants does, for so many looks that are so far apart.
    fn any_while()(
        does in prop::array::uniform5(prop::sample::select(vec![Does::Nothing, Does::Nothing, Does::Works, Does::Waits])),
        apart_ms in prop::sample::select(vec![1u64, 1, 20, 90, 150]),
        looks in 1usize..60,
        mode in prop::sample::select(vec![Mode::TimeSlicing, Mode::TimeSlicing, Mode::TimeSlicing, Mode::Overlap]),
        late in any::<bool>(),
    ) -> ([Does; 5], u64, usize, Mode, bool) {
        (does, apart_ms, looks, mode, late)
    }
}

proptest! {
    #[test]
    fn a_look_at_those_who_do_not_rest_comes_to_the_same_as_one_at_all(
        whiles in prop::collection::vec(any_while(), 1..12),
        promises in any::<bool>(),
    ) {
        let (mut all, mut some) = (Weir::default(), Weir::default());
        let mut samples = [latency(100), primary(200), primary(100), filler(), filler()];
        samples.iter_mut().zip(1..).for_each(|(sample, tenant)| sample.tenant = tenant);
        let mut told = samples; // as it is told to the one that is asked about some
        let (mut now, mut last, mut first) = (Nanos::from_secs(5), Vec::new(), true);
        for (does, apart_ms, looks, mode, late) in whiles {
            for _ in 0..looks {
                now.0 += apart_ms * 1_000_000;
                let mut moved = Vec::new();
                for (at, (sample, does)) in samples.iter_mut().zip(does).enumerate() {
                    if does == Does::Nothing {
                        sample.idle_for.0 += apart_ms * 1_000_000;
                        if std::mem::take(&mut sample.outstanding) == Nanos(0) && sample.slo.is_none() {
                            continue;
                        }
                    } else {
                        let time = apart_ms * 900_000;
                        let stall = if does == Does::Works { Stall::Compute } else { Stall::Neighbour };
                        sample.idle_for = Nanos(0);
                        sample.outstanding = Nanos(300_000);
                        sample.work.charged.0 += time.cast_signed() / 2;
                        sample.work.stalls[stall as usize].0 += time;
                    }
                    moved.push(at);
                }
                if promises {
                    samples[0].slo = slo(200, Some(if late { 210 } else { 120 }));
                }
                let known: Option<Vec<usize>> = some.awake(now, mode).map(<[usize]>::to_vec);
                let known = known.filter(|_| !first);
                for at in 0..samples.len() {
                    if known.as_ref().is_none_or(|known| known.contains(&at) || moved.contains(&at)) {
                        told[at] = samples[at];
                    }
                }
                let signals = Signals::default();
                let expected = all.decide(&Observation { now, mode, signals, samples: &samples }).to_vec();
                let seen = Observation { now, mode, signals, samples: &told };
                let answer = if known.is_some() { some.follow(&seen, &moved) } else { Some(some.decide(&seen)) };
                last = answer.map_or(last, <[_]>::to_vec);
                prop_assert_eq!(&last, &expected);
                first = false;
            }
        }
    }
}

#[test]
fn who_is_still_for_long_rests_until_it_moves() {
    let mut story = Story::new("weir", &[primary(50), filler(), primary(10)]);
    story.run(100, &[BETTER, FILLER, 2]);
    let mut policy = Weir::default();
    let mut samples = story.samples.clone();
    samples.iter_mut().zip(1..).for_each(|(sample, tenant)| sample.tenant = tenant);
    for tick in 0..4_000 {
        samples[2].idle_for = Nanos::from_millis(tick);
        samples[2].outstanding = Nanos(0);
        let (mode, signals, now) = (Mode::TimeSlicing, Signals::default(), Nanos::from_millis(10_000 + tick));
        let seen = Observation { now, mode, signals, samples: &samples };
        match tick {
            0 => drop(policy.decide(&seen).to_vec()),
            _ => drop(policy.follow(&seen, &[0, 1]).map(<[_]>::to_vec)),
        }
    }
    assert_eq!(policy.awake, [0, 1]);
    let (mode, signals, now) = (Mode::TimeSlicing, Signals::default(), Nanos::from_millis(14_001));
    samples[2].idle_for = Nanos(0);
    policy.follow(&Observation { now, mode, signals, samples: &samples }, &[0, 1, 2]);
    assert_eq!(policy.awake, [0, 1, 2]);
}
