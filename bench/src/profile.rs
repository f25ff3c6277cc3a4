//! `weir-bench profile`: the profiler's searches, on surfaces whose best is known because all of the grid is looked at.
//!
//! The surfaces are a model (`weir_cluster::profile::inference::surface`): those through the points that Dilu's authors published
//! for five models, as many as agree with everything else that they published of them, and random ones of the same form. Dilu's
//! own search stands beside ours on each. Nothing here depends on the machine: the same build prints the same figures anywhere.

mod shares;

use std::convert::Infallible;
use std::io;
use std::process::ExitCode;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use weir_cluster::profile::inference::hgss::{self, Tolerance};
use weir_cluster::profile::inference::published::{MODELS, Model, TOLERANCE};
use weir_cluster::profile::inference::surface::Law;
use weir_cluster::profile::inference::{self, Grid, MOST_PROBES, Probe};

use crate::Options;
use crate::report::{Bar, Report};

/// Random surfaces, each from its own seed.
const RANDOM: u64 = 20_000;

/// Largest batch of the grid: with shares in steps of 10 % Dilu's 60 places.
const LARGEST_BATCH: u32 = 32;

/// Runs all of it and prints.
pub fn run(options: &Options) -> io::Result<ExitCode> {
    let mut report = Report::new("profile", true);
    let grid = Grid::dilu(LARGEST_BATCH);
    let models: Vec<_> = MODELS.iter().map(|model| on_published(model, &grid)).collect();
    let random = on_random(&grid);
    let ours = models.iter().map(|row| &row.ours).chain([&random.ours]);
    let worst = ours.fold(Summary::default(), |worst, next| worst.or_worse(next));
    report.bar(Bar::at_most("profile.probes", worst.most_probes as f64, "probes of 60", 12.0));
    report.bar(Bar::at_most("profile.loss_percent", worst.worst_loss_percent, "percent", 2.0));
    report.figure("published", models);
    report.figure("random", random);
    report.figure("training", shares::measure());
    Ok(report.finish(options.json))
}

/// A search's outcomes over many surfaces.
#[derive(Clone, Debug, Default, Serialize)]
struct Summary {
    surfaces: usize,
    most_probes: usize,
    mean_probes: f64,
    worst_loss_percent: f64,
    mean_loss_percent: f64,
    beyond_two_percent: usize,
    found_nothing: usize,
}

impl Summary {
    /// With one more: its pick and its probes, on a surface whose best efficiency is `best`.
    fn add(&mut self, pick: Option<Probe>, probes: usize, best: f64) {
        let loss = pick.map_or(100.0, |pick| 100.0 * (1.0 - pick.efficiency() / best));
        let before = self.surfaces as f64;
        self.surfaces += 1;
        let mean = |old: f64, new: f64| (old * before + new) / (before + 1.0);
        self.mean_probes = mean(self.mean_probes, probes as f64);
        self.mean_loss_percent = mean(self.mean_loss_percent, loss);
        self.most_probes = self.most_probes.max(probes);
        self.worst_loss_percent = self.worst_loss_percent.max(loss);
        self.beyond_two_percent += usize::from(loss > 2.0);
        self.found_nothing += usize::from(pick.is_none());
    }

    fn or_worse(self, other: &Self) -> Self {
        Self {
            most_probes: self.most_probes.max(other.most_probes),
            worst_loss_percent: self.worst_loss_percent.max(other.worst_loss_percent),
            ..self
        }
    }
}

/// All searches on the same surfaces.
#[derive(Debug, Default, Serialize)]
struct Sweep {
    ours: Summary,
    dilu: Summary,
    dilu_with_relative_tolerance: Summary,
}

impl Sweep {
    fn add(&mut self, law: &Law, grid: &Grid, bound_ms: f64) {
        let Some(best) = law.best(grid, bound_ms) else { return };
        let found = inference::search(grid, bound_ms, MOST_PROBES, |batch, share| {
            Ok::<_, Infallible>(law.answer(batch, share))
        });
        // What finds nothing has spent its two probes, and counts as a loss of everything.
        let (pick, probes) = found.map_or((None, 2), |found| (Some(found.best), found.probes.len()));
        self.ours.add(pick, probes, best.efficiency());
        let dilu =
            |tolerance| hgss::search(grid, bound_ms, tolerance, |batch, share| law.answer(batch, share));
        let (pick, probes) = dilu(TOLERANCE);
        self.dilu.add(pick, probes, best.efficiency());
        let (pick, probes) = dilu(Tolerance::Relative(0.2));
        self.dilu_with_relative_tolerance.add(pick, probes, best.efficiency());
    }
}

/// A pick, as the published table has it.
#[derive(Debug, Serialize)]
struct Pick {
    batch: u32,
    share_percent: f64,
    efficiency: f64,
}

/// One model over all its surfaces.
#[derive(Debug, Serialize)]
struct ModelRow {
    model: &'static str,
    bound_ms: f64,
    best: Pick,
    dilus_pick: Pick,
    dilus_probes: usize,
    ours: Summary,
    dilu: Summary,
    dilu_with_relative_tolerance: Summary,
}

fn on_published(model: &Model, grid: &Grid) -> ModelRow {
    let mut sweep = Sweep::default();
    let laws = model.surfaces();
    laws.iter().for_each(|law| sweep.add(law, grid, model.bound_ms));
    let pick = |(batch, percent): (u32, u16)| {
        // At the published batch all surfaces are the same.
        let share = weir_protocol::units::SmShare::percent(percent);
        let efficiency = laws
            .first()
            .map_or(0.0, |law| Probe { batch, share, answer: law.answer(batch, share) }.efficiency());
        Pick { batch, share_percent: f64::from(percent), efficiency }
    };
    let Sweep { ours, dilu, dilu_with_relative_tolerance } = sweep;
    ModelRow {
        model: model.name,
        bound_ms: model.bound_ms,
        best: pick(model.best),
        dilus_pick: pick(model.picked),
        dilus_probes: model.probes,
        ours,
        dilu,
        dilu_with_relative_tolerance,
    }
}

fn on_random(grid: &Grid) -> Sweep {
    let mut sweep = Sweep::default();
    for seed in 0..RANDOM {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let law = Law::random(&mut random);
        let bound_ms = law.random_bound_ms(grid, &mut random);
        sweep.add(&law, grid, bound_ms);
    }
    sweep
}
