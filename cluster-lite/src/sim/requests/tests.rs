//! What holds of every simulation, and cases with a known answer.

use std::sync::Arc;

use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weir_protocol::units::Nanos;

use super::{Hosted, Scenario, model, run};
use crate::scale::{SCALERS, scaler};
use crate::trace::requests::{Arrivals, Request, Shape, Size, Sizes, Trace, draw};

fn hosted(name: &str, trace: Trace, floor: u32, ceiling: u32) -> Hosted {
    Hosted { model: model(name).unwrap(), trace: Arc::new(trace), floor, ceiling }
}

fn drawn(arrivals: Arrivals, sizes: Sizes, seed: u64) -> Trace {
    draw("drawn", arrivals, sizes, &mut ChaCha8Rng::seed_from_u64(seed))
}

fn at(milliseconds: &[u64]) -> Trace {
    let request = |ms: &u64| Request { at: Nanos::from_millis(*ms), size: Size::Relative(1.0) };
    Trace { requests: milliseconds.iter().map(request).collect(), ..Trace::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn no_request_is_lost_and_nobody_goes_out_of_bounds(
        seed in 0..1000u64, scale in 0.1..20.0f64, gpus in 1..6usize, floor in 0..2u32, more in 0..6u32,
        queue in prop_oneof![Just(5usize), Just(100_000)], parks: bool,
    ) {
        let shaped = |shape| drawn(Arrivals::Shaped { shape, seconds: 0, scale }, Sizes::LogNormal(1.0), seed);
        let services = vec![
            hosted("roberta-large", shaped(Shape::Bursty), floor, floor + more),
            hosted("llama2-7b", shaped(Shape::Sporadic), 0, 4),
        ];
        let mut scenario = Scenario { queue, ..Scenario::new(services, gpus) };
        scenario.unpark = scenario.unpark.filter(|_| parks);
        for row in SCALERS {
            let outcome = run(&scenario, row, seed).unwrap();
            for (service, hosted) in outcome.services.iter().zip(&scenario.services) {
                prop_assert_eq!(service.arrived, hosted.trace.requests.len() as u64);
                prop_assert_eq!(service.arrived, service.served + service.waiting + service.refused);
                prop_assert!(service.violations <= service.arrived);
                prop_assert!(service.most_instances <= hosted.ceiling.max(1), "{}", row.name);
            }
            #[allow(clippy::cast_precision_loss, reason = "six at most")]
            let most = outcome.seconds * gpus as f64;
            prop_assert!(outcome.sum(|service| service.gpu_seconds) <= most + 1e-6, "no GPU is sold twice");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_seed_other_starts() {
    let trace =
        drawn(Arrivals::Shaped { shape: Shape::Periodic, seconds: 0, scale: 10.0 }, Sizes::Pareto(1.5), 3);
    let scenario = Scenario::new(vec![hosted("roberta-large", trace, 0, 8)], 4);
    let row = scaler("weir").unwrap();
    let run = |seed| super::run(&scenario, row, seed).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn one_server_waits_as_long_as_queueing_theory_says() {
    // M/D/1: one request at a time, equal sizes, Poisson arrivals at 70 % load.
    let model = model("diffusion").unwrap();
    let took = model.alone_ms(Size::Relative(0.01)) / model.speed().at(model.request) / 1e3;
    let seconds = 40_000;
    let mut trace = drawn(Arrivals::Gamma { seconds, rate: 0.7 / took, cv: 1.0 }, Sizes::Equal, 5);
    trace.requests.iter_mut().for_each(|request| request.size = Size::Relative(0.01));
    // Requests of the time before the first start would wait for that.
    let moved = |request: Request| Request { at: Nanos(request.at.0 + 200_000_000_000), ..request };
    trace.requests = trace.requests.into_iter().map(moved).collect();
    let scenario = Scenario::new(vec![hosted("diffusion", trace, 1, 1)], 1);
    let service = run(&scenario, scaler("horizontal").unwrap(), 1).unwrap().services.remove(0);
    // P(no wait) = 1 - load, so that the 30th percentile is the service time; the median of the sojourn by Erlang's
    // formula for M/D/1: P(wait <= t) = (1 - load) e^(load t / took) for t < took.
    let median_wait = took * (0.5f64 / 0.3).ln() / 0.7;
    let found = service.latency.p50_ms / 1e3;
    assert!((found / (took + median_wait) - 1.0).abs() < 0.03, "{found} s instead of {}", took + median_wait);
}

#[test]
fn a_request_to_a_service_at_zero_waits_for_one_cold_start() {
    let scenario =
        Scenario { prediction_sigma: 0.0, ..Scenario::new(vec![hosted("bert-base", at(&[5_000]), 0, 4)], 1) };
    let service = run(&scenario, scaler("weir").unwrap(), 1).unwrap().services.remove(0);
    assert_eq!((service.served, service.violations, service.cold_starts), (1, 1, 1));
    assert!(service.latency.p50_ms > 5_000.0);
}

#[test]
fn a_parked_instance_answers_in_seconds_where_a_cold_one_takes_tens() {
    let trace = at(&[0, 200_000]);
    let scenario = Scenario::new(vec![hosted("bert-base", trace, 0, 4)], 1);
    let service = run(&scenario, scaler("weir").unwrap(), 1).unwrap().services.remove(0);
    assert_eq!((service.cold_starts, service.unparks), (1, 1));
    let cold = Scenario { unpark: None, ..scenario };
    let service = run(&cold, scaler("weir").unwrap(), 1).unwrap().services.remove(0);
    assert_eq!((service.cold_starts, service.unparks), (2, 0));
}

#[test]
fn a_full_gpu_is_never_sold_twice_and_starts_again_where_there_is_room() {
    let rush = drawn(Arrivals::Gamma { seconds: 300, rate: 400.0, cv: 1.0 }, Sizes::Equal, 1);
    let scenario = Scenario::new(vec![hosted("roberta-large", rush, 0, 50)], 2);
    let service = run(&scenario, scaler("horizontal").unwrap(), 1).unwrap().services.remove(0);
    assert!(service.unplaced > 0, "two GPUs do not hold what is asked of them");
    assert!(service.gpu_seconds <= 2.0 * 420.0);
}
