use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

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

fn class(name: &str, cost_per_h: f64, free: usize, service_ms: Option<f64>) -> Class {
    Class {
        name: name.into(),
        cost_per_h,
        free,
        service_ms,
        variation: 0.5,
        curve: Curve::new(&[1.0, 1.6, 2.4]).unwrap(),
    }
}

#[test]
fn the_cheapest_sufficient_class_is_taken() {
    let classes =
        [class("T4", 0.5, 4, Some(40.0)), class("A10", 1.0, 4, Some(20.0)), class("A100", 4.0, 4, Some(8.0))];
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
    let classes = [class("T4", 0.5, 4, None), class("A100", 4.0, 1, Some(8.0))];
    let hardware = cheapest(&classes, 5.0, Promise { part: 0.95, within_ms: 200.0 }).unwrap();
    assert_eq!((hardware.class, hardware.gpus), (1, 1));
}

#[test]
fn no_fewer_gpus_would_keep_the_promise() {
    let classes = [class("T4", 0.5, 64, Some(40.0))];
    let promise = Promise { part: 0.95, within_ms: 120.0 };
    let hardware = cheapest(&classes, 300.0, promise).unwrap();
    let with = |gpus: usize| Class { free: gpus, ..classes[0].clone() };
    assert!(cheapest(&[with(hardware.gpus - 1)], 300.0, promise).is_none(), "{hardware:?}");
}

#[test]
fn a_curve_never_falls_and_never_starts_below_one() {
    assert_eq!(Curve::new(&[1.0, 1.5, 1.2]).unwrap().slowdown(3), 1.5);
    assert_eq!(Curve::new(&[1.0, 2.0]).unwrap().slowdown(4), 4.0, "beyond what is known in proportion");
    for wrong in [&[][..], &[0.5], &[1.0, f64::NAN], &[1.0, f64::INFINITY]] {
        assert!(Curve::new(wrong).is_none(), "{wrong:?}");
    }
}
