use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use weir_protocol::units::Bytes;

use super::sweep::sweep;
use super::*;

/// PALDIA: against a simulated sweep over 1 to 8 together, on random curves and loads.
#[test]
fn the_chosen_concurrency_is_near_the_best_of_a_sweep() {
    let mut random = ChaCha12Rng::seed_from_u64(3);
    let losses: Vec<_> = (0..40).map(|_| sweep(4_000, &mut random).loss()).collect();
    let mean = losses.iter().sum::<f64>() / 40.0;
    let worst = losses.into_iter().fold(0.0, f64::max);
    assert!(mean < 0.03 && worst < 0.20, "p95 above the best: mean {mean}, worst {worst}");
}

#[test]
fn where_nobody_disturbs_all_run_together_and_where_all_do_they_queue() {
    let free = Load { rate: 320.0, service_ms: 20.0, variation: 0.5, curve: Curve::new(&[1.0; 8]).unwrap() };
    assert!(concurrency(&free, 0.95).together >= 7, "6.4 are there on average");
    let crowded = Curve::new(&[1.0, 3.0, 6.0, 10.0]).unwrap();
    assert_eq!(
        concurrency(&Load { rate: 30.0, service_ms: 20.0, variation: 0.5, curve: crowded }, 0.95).together,
        1
    );
}

#[test]
fn one_at_a_time_the_chain_is_the_known_queue() {
    // Memoryless needs, one at a time: the time in the system is exponential with rate 100 - 50 a second.
    let load = Load { rate: 50.0, service_ms: 10.0, variation: 1.0, curve: Curve::new(&[1.0]).unwrap() };
    for part in [0.5, 0.75, 0.95] {
        let (ours, known) = (queue::quantile_ms(&load, 1, part), -1_000.0 * (1.0_f64 - part).ln() / 50.0);
        assert!((ours / known - 1.0).abs() < 0.03, "{part}: {ours} ms against {known} ms");
    }
}

#[test]
fn more_than_can_be_done_is_never_promised() {
    let load =
        Load { rate: 1_000.0, service_ms: 20.0, variation: 0.5, curve: Curve::new(&[1.0, 1.5]).unwrap() };
    let choice = concurrency(&load, 0.95);
    assert_eq!((choice.together, choice.quantile_ms), (2, f64::INFINITY), "two together finish more");
}

/// With 16 GiB, half of which an instance needs.
fn class(name: &str, cost_per_h: f64, free: usize, service_ms: f64) -> Class {
    Class {
        name: name.into(),
        cost_per_h,
        free,
        memory: Bytes::gib(16),
        needs: Bytes::gib(8),
        service_ms,
        variation: 0.5,
        curve: Curve::new(&[1.0, 1.6, 2.4]).unwrap(),
    }
}

#[test]
fn the_cheapest_sufficient_class_is_taken() {
    let classes = [class("T4", 0.5, 4, 40.0), class("A10", 1.0, 4, 20.0), class("A100", 4.0, 4, 8.0)];
    let at = |rate, within_ms| {
        cheapest(&classes, rate, Promise { part: 0.95, within_ms })
            .map(|hardware| classes[hardware.class].name.as_str())
    };
    assert_eq!(at(5.0, 200.0), Some("T4"), "a light load in ample time");
    assert_eq!(at(5.0, 60.0), Some("A10"), "too slow even alone");
    assert_eq!(at(5.0, 20.0), Some("A100"), "only the fastest answers in time");
    assert_eq!(at(5.0, 7.0), None, "no device does");
    assert_eq!(at(10_000.0, 200.0), None, "no count of those that are free does");
}

#[test]
fn a_class_whose_memory_is_too_small_is_passed_over() {
    let small = Class { memory: Bytes::gib(4), ..class("T4", 0.5, 4, 40.0) };
    let judged = judge(&[small, class("A100", 4.0, 1, 8.0)], 5.0, Promise { part: 0.95, within_ms: 200.0 });
    let why = NotTaken::Memory { needed: Bytes::gib(8), had: Bytes::gib(4) };
    assert_eq!(judged[0], Judged { hardware: None, not_taken: Some(why) });
    let hardware = judged[1].hardware.as_ref().unwrap();
    assert_eq!((hardware.class, hardware.gpus, &judged[1].not_taken), (1, 1, &None));
}

#[test]
fn no_fewer_gpus_would_keep_the_promise() {
    let classes = [class("T4", 0.5, 64, 40.0)];
    let promise = Promise { part: 0.95, within_ms: 120.0 };
    let hardware = cheapest(&classes, 300.0, promise).unwrap();
    let with = |gpus: usize| Class { free: gpus, ..classes[0].clone() };
    assert!(cheapest(&[with(hardware.gpus - 1)], 300.0, promise).is_none(), "{hardware:?}");
}

/// Of 5 requests a second, 95 % in 60 ms.
fn judged(classes: &[Class]) -> Vec<Judged> {
    judge(classes, 5.0, Promise { part: 0.95, within_ms: 60.0 })
}

#[test]
fn a_class_that_keeps_the_promise_with_no_number_of_gpus_says_what_its_best_is() {
    let slow = judged(&[class("slow", 0.5, 1_000, 80.0), class("none", 0.5, 0, 20.0)]);
    let Some(NotTaken::Slo { gpus: 1_000, best_ms, bound_ms: 60.0 }) = slow[0].not_taken else {
        panic!("{slow:?}")
    };
    assert!((80.0..200.0).contains(&best_ms), "its needs vary, alone as well: {best_ms}");
    let nothing = NotTaken::Slo { gpus: 0, best_ms: f64::INFINITY, bound_ms: 60.0 };
    assert_eq!(slow[1].not_taken, Some(nothing), "where none is free more comes than they finish");
}

#[test]
fn a_class_that_costs_more_than_the_cheapest_says_so_and_of_two_at_one_cost_the_slower_does() {
    let classes = [class("A10", 1.0, 4, 20.0), class("A100", 1.0, 4, 8.0), class("H100", 2.0, 4, 4.0)];
    let found = judged(&classes);
    let why = |at: usize| match &found[at].not_taken {
        Some(NotTaken::Cost {
            cost_per_hour,
            predicted_ms,
            taken,
            taken_cost_per_hour,
            taken_predicted_ms,
        }) => {
            assert_eq!((taken.as_str(), *taken_cost_per_hour), ("A100", 1.0));
            (*cost_per_hour, predicted_ms > taken_predicted_ms)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!((why(0), &found[1].not_taken, why(2)), ((1.0, true), &None, (2.0, false)));
    let twice = judged(&[classes[1].clone(), classes[1].clone()]);
    assert!(
        twice[0].not_taken.is_none() && twice[1].not_taken.is_some(),
        "of two alike the first: {twice:?}"
    );
}

#[test]
fn hardware_tells_the_concurrencies_among_which_it_was_chosen() {
    let found = judged(&[class("A10", 1.0, 4, 20.0)]);
    let Hardware { choice, considered, .. } = found[0].hardware.as_ref().unwrap();
    assert_eq!(considered.iter().map(|one| one.together).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(considered.contains(choice));
    let least = considered.iter().map(|one| one.quantile_ms).fold(f64::INFINITY, f64::min);
    let fewer = considered.iter().take_while(|one| one.together < choice.together);
    assert!(choice.quantile_ms <= least * (1.0 + ALIKE), "{considered:?}");
    assert!(fewer.into_iter().all(|one| one.quantile_ms > least * (1.0 + ALIKE)), "{considered:?}");
}

#[test]
fn a_curve_never_falls_and_never_starts_below_one() {
    assert_eq!(Curve::new(&[1.0, 1.5, 1.2]).unwrap().slowdown(3), 1.5);
    assert_eq!(Curve::new(&[1.0, 2.0]).unwrap().slowdown(4), 4.0, "beyond what is known in proportion");
    for wrong in [&[][..], &[0.5], &[1.0, f64::NAN], &[1.0, f64::INFINITY]] {
        assert!(Curve::new(wrong).is_none(), "{wrong:?}");
    }
}
