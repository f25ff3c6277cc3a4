//! Sets on one GPU under a synthetic truth (SMore, papers' section on what to show without a GPU): errors of the predictor,
//! placements beyond the ceiling, and GPUs saved against no sharing.
//!
//! The truth is none of the predictor's own formulae: SMs are divided, bandwidth saturates at the card's, caches are fouled by
//! each neighbour, and a measurement varies by 3 %. The solo profiles tell the predictor the part of time on the SMs alone.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, Normal};
use serde::Serialize;
use weir_cluster::place::interference::{Predictor, Service, ServiceId, Table, Uses};

use crate::QuickOptions;
use crate::report::Report;

const SERVICES: usize = 16;
const TENANTS: usize = 240;
/// Nobody may be slowed more.
const CEILING: f64 = 1.5;
/// Tenants of one GPU at most.
const MOST: usize = 4;
/// Standard deviation of the logarithm of a measurement.
const NOISE: f64 = 0.03;
const SEED: u64 = 6;

/// A service as it really is.
struct True {
    sm: f64,
    bandwidth: f64,
    /// How much a fouled cache costs it, and how much it fouls others'.
    sensitive: f64,
    fouls: f64,
}

fn drawn(random: &mut ChaCha12Rng) -> True {
    True {
        sm: random.random_range(0.05..0.9),
        bandwidth: random.random_range(0.0..0.8),
        sensitive: random.random_range(0.0..0.3),
        fouls: random.random_range(0.0..1.0),
    }
}

/// The true slowdown.
fn truth(victim: &True, beside: &[&True]) -> f64 {
    let busy: f64 = beside.iter().map(|other| other.sm).sum();
    let wanted = victim.bandwidth + beside.iter().map(|other| other.bandwidth).sum::<f64>();
    let fouled: f64 = beside.iter().map(|other| other.fouls).sum();
    let (turns, stream) =
        (1.0 + victim.sm * busy.powf(1.1), 1.0 + victim.bandwidth * (wanted - 1.0).max(0.0));
    turns * stream * (1.0 + victim.sensitive * fouled)
}

/// What the predictor knew, and what came of it.
#[derive(Serialize)]
struct Row {
    knows: &'static str,
    pair_error_percent: f64,
    triple_error_percent: f64,
    gpus: usize,
    /// Tenants truly slowed beyond the ceiling, by more than the measurement varies.
    beyond_ceiling: usize,
    /// Work done on a GPU on average, in GPUs of one tenant alone: no sharing is 1.
    work_per_gpu: f64,
}

/// Adds the figures.
pub fn measure(report: &mut Report, options: &QuickOptions) {
    let mut random = ChaCha12Rng::seed_from_u64(SEED);
    let services: Vec<_> = (0..SERVICES).map(|_| drawn(&mut random)).collect();
    let mut crowd = ChaCha12Rng::seed_from_u64(SEED + 1);
    let tenants: Vec<_> = (0..options.of(TENANTS, 24)).map(|_| crowd.random_range(0..SERVICES)).collect();
    let mut world = World { services, tenants, predictor: Predictor::default(), ids: Vec::new(), random };
    for (at, service) in world.services.iter().enumerate() {
        let uses = Some(Uses::new(service.sm, 0.0, 0.0));
        let name = format!("service {at}");
        world.ids.push(world.predictor.know(Service { family: name.clone(), name, batch: None, uses }));
    }
    let mut rows = vec![world.row("solo profiles")];
    world.learn(1, options.of(SERVICES * SERVICES / 2, 40));
    rows.push(world.row("half of the pairs, measured"));
    world.learn(2, options.of(200, 20));
    rows.push(world.row("200 triples of 1,920, too"));
    for _ in 0..options.of(3, 1) {
        world.learn_from_placement();
    }
    rows.push(world.row("three rounds of what was placed, too"));
    report.figure("synthetic_sets", rows);
}

struct World {
    services: Vec<True>,
    /// Which service each tenant is.
    tenants: Vec<usize>,
    predictor: Predictor,
    ids: Vec<ServiceId>,
    random: ChaCha12Rng,
}

impl World {
    fn true_of(&self, victim: usize, beside: &[usize]) -> f64 {
        let others: Vec<_> = beside.iter().map(|other| &self.services[*other]).collect();
        truth(&self.services[victim], &others)
    }

    fn observe(&mut self, victim: usize, beside: &[usize]) {
        let noise = Normal::new(0.0, NOISE).map_or(0.0, |normal| normal.sample(&mut self.random));
        let measured = self.true_of(victim, beside) * noise.exp();
        let ids: Vec<_> = beside.iter().map(|other| self.ids[*other]).collect();
        // The drawn truth is no impossible slowdown, and there is room for all of it.
        let _ = self.predictor.observe(self.ids[victim], &ids, measured);
    }

    /// Measures so many random sets of a victim and `others`.
    fn learn(&mut self, others: usize, count: usize) {
        for _ in 0..count {
            let mut draw = || self.random.random_range(0..SERVICES);
            let (victim, beside) = (draw(), (0..others).map(|_| draw()).collect::<Vec<_>>());
            self.observe(victim, &beside);
        }
    }

    /// Measures every tenant where it was placed.
    fn learn_from_placement(&mut self) {
        for gpu in self.place(&self.predictor.table()) {
            for at in 0..gpu.len() {
                self.observe(gpu[at], &without(&gpu, at));
            }
        }
    }

    /// Each tenant to the GPU whose tenants stay within the ceiling and that does most work then; else to a fresh one.
    fn place(&self, table: &Table) -> Vec<Vec<usize>> {
        let ids = |gpu: &[usize]| gpu.iter().map(|tenant| self.ids[*tenant]).collect::<Vec<_>>();
        let speed = |gpu: &[usize]| table.slowdowns(&ids(gpu)).into_iter().map(f64::recip).sum::<f64>();
        let mut gpus: Vec<Vec<usize>> = Vec::new();
        for tenant in &self.tenants {
            let with = |gpu: &Vec<usize>| [&gpu[..], &[*tenant]].concat();
            let open = gpus
                .iter()
                .enumerate()
                .filter(|(_, gpu)| gpu.len() < MOST && table.within(&ids(&with(gpu)), CEILING).is_ok());
            let gain = open.map(|(at, gpu)| (at, speed(&with(gpu)) - speed(gpu)));
            match gain.max_by(|one, other| one.1.total_cmp(&other.1)) {
                Some((at, _)) => gpus[at].push(*tenant),
                None => gpus.push(vec![*tenant]),
            }
        }
        gpus
    }

    fn row(&self, knows: &'static str) -> Row {
        let table = self.predictor.table();
        let gpus = self.place(&table);
        let slowdowns =
            || gpus.iter().flat_map(|gpu| (0..gpu.len()).map(|at| self.true_of(gpu[at], &without(gpu, at))));
        Row {
            knows,
            pair_error_percent: self.error(&table, 1),
            triple_error_percent: self.error(&table, 2),
            beyond_ceiling: slowdowns().filter(|slowdown| *slowdown > CEILING * NOISE.exp()).count(),
            work_per_gpu: slowdowns().map(f64::recip).sum::<f64>() / gpus.len() as f64,
            gpus: gpus.len(),
        }
    }

    /// Median error over random sets of a victim and `others`, drawn apart from those that are measured.
    fn error(&self, table: &Table, others: usize) -> f64 {
        const SAMPLES: usize = 2_000;
        let mut random = ChaCha12Rng::seed_from_u64(SEED + 2);
        let mut draw = || random.random_range(0..SERVICES);
        let mut error = || {
            let (victim, beside) = (draw(), (0..others).map(|_| draw()).collect::<Vec<_>>());
            let ids: Vec<_> = beside.iter().map(|other| self.ids[*other]).collect();
            (table.slowdown(self.ids[victim], &ids) / self.true_of(victim, &beside) - 1.0).abs()
        };
        let mut errors: Vec<_> = (0..SAMPLES).map(|_| error()).collect();
        errors.sort_by(f64::total_cmp);
        100.0 * errors[SAMPLES / 2]
    }
}

fn without(gpu: &[usize], at: usize) -> Vec<usize> {
    [&gpu[..at], &gpu[at + 1..]].concat()
}
