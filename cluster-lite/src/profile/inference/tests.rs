//! The search on surfaces with a known best, and where there is none.

use std::convert::Infallible;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::hgss::Tolerance;
use super::published::{MODELS, TOLERANCE};
use super::surface::Law;
use super::*;

fn find(law: &Law, grid: &Grid, bound_ms: f64) -> Result<Found, Failure<Infallible>> {
    search(grid, bound_ms, MOST_PROBES, |batch, share| Ok(law.answer(batch, share)))
}

/// Percent of the best efficiency that a probe lacks.
fn loss_percent(law: &Law, grid: &Grid, bound_ms: f64, probe: &Probe) -> f64 {
    100.0 * (1.0 - probe.efficiency() / law.best(grid, bound_ms).unwrap().efficiency())
}

#[test]
fn on_surfaces_through_the_published_points_the_best_is_found_where_dilus_search_misses_one_of_five() {
    let grid = Grid::dilu(32);
    for model in MODELS {
        let laws = model.surfaces();
        assert!(laws.len() > 100, "{}: {} surfaces", model.name, laws.len());
        for law in laws.iter().step_by(17) {
            let found = find(law, &grid, model.bound_ms).unwrap();
            let loss = loss_percent(law, &grid, model.bound_ms, &found.best);
            assert!(loss <= 2.0 && found.probes.len() <= 12, "{}: {loss} % on {law:?}", model.name);
            let (dilus, _) =
                hgss::search(&grid, model.bound_ms, TOLERANCE, |batch, share| law.answer(batch, share));
            let missed = loss_percent(law, &grid, model.bound_ms, &dilus.unwrap());
            assert_eq!(missed > 10.0, model.name == "RoBERTa-large", "{}: {missed} %", model.name);
        }
    }
}

#[test]
fn the_law_runs_through_the_points_it_was_given() {
    let points = [(0.1, 104.2), (0.3, 40.0), (1.0, 25.8)];
    for overlap in [1.0, 4.0] {
        let law = Law::through(16, &points, 20.0, overlap);
        for (share, ms) in points {
            let share = SmShare::percent((share * 100.0) as u16);
            assert!((law.latency_ms(16, share) - ms).abs() < 1e-9);
        }
        assert!(
            law.latency_ms(16, SmShare::percent(5)) > 1.5 * 104.2 - 20.0,
            "below them it goes with 1/share"
        );
    }
}

#[test]
fn a_bound_that_the_whole_gpu_misses_is_told_after_two_probes() {
    let law = Law::through(1, &[(0.1, 100.0), (1.0, 50.0)], 1.0, 1.0);
    let mut made = 0;
    let late = search(&Grid::dilu(32), 49.0, MOST_PROBES, |batch, share| {
        made += 1;
        Ok::<_, Infallible>(law.answer(batch, share))
    });
    let Err(Failure::Late { batch: 1, share: SmShare::FULL, latency_ms }) = late else { panic!("{late:?}") };
    assert!((latency_ms - 50.0).abs() < 1e-9 && made == 2);
}

#[test]
fn a_grid_of_one_batch_or_one_place_is_a_grid() {
    let law = Law::through(1, &[(0.1, 100.0), (0.5, 20.0), (1.0, 20.0)], 0.1, 1.0);
    let found = find(&law, &Grid::dilu(1), 30.0).unwrap();
    assert_eq!(found.best.share, SmShare::percent(40));
    let one = Grid { batches: vec![1], shares: vec![SmShare::FULL] };
    assert_eq!(find(&law, &one, 30.0).unwrap().probes.len(), 1);
}

#[test]
fn a_tolerance_in_parts_stops_where_an_absolute_one_never_does() {
    // Efficiencies about 0.1, falling by half from batch to batch: a fixed part of nothing, a knee that does not move.
    let law = Law { fixed: 0.0, ..Law::through(1, &[(0.1, 1000.0), (1.0, 1000.0)], 0.1, 1.0) };
    let answer = |batch, share| Answer {
        throughput: law.answer(1, share).throughput / f64::from(batch),
        ..law.answer(1, share)
    };
    let probes = |tolerance| hgss::search(&Grid::dilu(32), 1e6, tolerance, answer).1;
    assert_eq!((probes(TOLERANCE), probes(Tolerance::Relative(0.2))), (6, 2));
}

#[test]
fn on_random_surfaces_the_best_is_found_within_two_percent_and_twelve_probes() {
    let grid = Grid::dilu(32);
    for seed in 0..300 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let law = Law::random(&mut random);
        let bound = law.random_bound_ms(&grid, &mut random);
        let found = find(&law, &grid, bound).unwrap();
        assert!(found.best.answer.latency_ms <= bound && found.probes.len() <= MOST_PROBES, "{seed}");
        assert!(found.probes.contains(&found.best), "{seed}: what is answered was measured");
        let loss = loss_percent(&law, &grid, bound, &found.best);
        assert!(loss <= 2.0, "{seed}: {loss} % on {law:?} under {bound}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_measured_the_search_ends_with_a_probe_that_kept_the_bound(seed: u64, bound in 1.0f64..100.0) {
        let (mut random, grid) = (ChaCha8Rng::seed_from_u64(seed), Grid::dilu(64));
        let mut probes = 0;
        let found = search(&grid, bound, MOST_PROBES, |_, _| {
            probes += 1;
            let (throughput, latency_ms) = (random.random_range(0.1..1e3), random.random_range(0.1..120.0));
            Ok::<_, Infallible>(Answer { throughput, latency_ms, noise: random.random_range(0.0..0.5) })
        });
        prop_assert!(probes <= MOST_PROBES);
        match found {
            Ok(found) => prop_assert!(found.best.answer.latency_ms <= bound),
            Err(Failure::Late { latency_ms, .. }) => prop_assert!(latency_ms > bound && probes == 2),
            Err(Failure::Probe(never)) => match never {},
        }
    }
}
