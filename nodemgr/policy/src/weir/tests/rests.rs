//! Who rests, and what is remembered: it all comes to the same as without.

use proptest::prelude::*;
use weir_protocol::pages::Stall;
use weir_protocol::units::Nanos;

use super::super::{Weir, is_static};
use super::{BETTER, FILLER};
use crate::asked::Asked;
use crate::story::{Story, filler, latency, primary, slo};
use crate::{Mode, Observation, Policy, Sample, Signals};

/// Weir's own: docs/time.md, rest (design 10, `manager.core_percent`).
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
    /// Weir's own: docs/time.md, rest (design 10, `manager.core_percent`).
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
    /// Weir's own: docs/time.md, rest (design 10, `manager.core_percent`).
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

/// Weir's own: docs/time.md, rest (design 10, `manager.core_percent`).
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
