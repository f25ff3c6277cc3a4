//! Gavel's measured pairs: how well held-out ones are predicted, and what the pairs chosen by prediction are worth.
//!
//! Both directions of a held-out pair are held out together, and each fold chooses its likeness from its training pairs alone.
//! The three GPU models are told nothing of each other. Pairs are chosen among jobs of one GPU by an exact maximum-weight
//! matching (`matching.rs`) on values that were predicted while the pair was held out; the best possible is the same on the
//! measured values.

use std::collections::HashMap;
use std::io;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde::Serialize;
use weir_cluster::data;
use weir_cluster::place::interference::folds::{
    self, Held, Learner, Measured, Median, SensitivityTimesPressure, TimeSlicing, Weir,
};
use weir_cluster::place::interference::{Likeness, Service};
use weir_cluster::place::paldia::sweep::{MOST, Swept, sweep};
use weir_cluster::trace::gavel::{self, Table};

use super::matching;
use crate::QuickOptions;
use crate::report::{Bar, Report};

/// The tables whose GPUs differ: the others of the file repeat their pairs.
const GPUS: [&str; 3] = ["v100", "p100", "k80"];
const FOLDS: usize = 10;
const SEED: u64 = 6;

/// Adds the bars and figures.
pub fn measure(report: &mut Report, options: &QuickOptions) -> io::Result<()> {
    concurrency(report, options);
    let (error, matching) = ("placement.pairs_error_percent", "placement.pairs_of_best_percent");
    let Some(path) = data::find("gavel-colocation/simulation_throughputs.json") else {
        let absent = "shared/data/gavel-colocation is absent";
        report.bar(Bar::at_most(error, f64::NAN, "% median, worst GPU", 10.0).unjudged(absent));
        report.bar(
            Bar::at_least(matching, f64::NAN, "% of the best matching, worst GPU", 95.0).unjudged(absent),
        );
        return Ok(());
    };
    let tables = gavel::load(&path).map_err(|fault| io::Error::other(fault.to_string()))?;
    let tables: Vec<_> = tables.iter().filter(|table| GPUS.contains(&&*table.device)).collect();
    let figures = tables.iter().map(|table| Figures::of(table, options)).collect::<io::Result<Vec<_>>>()?;
    let worst = figures.iter().map(|figures| figures.ours.median_percent).fold(0.0, f64::max);
    report.bar(Bar::at_most(error, worst, "% median, worst GPU", 10.0));
    let least = figures.iter().map(|figures| figures.matching.mean_percent()).fold(100.0, f64::min);
    report.bar(Bar::at_least(matching, least, "% of the best matching, worst GPU", 95.0));
    report.figure("measured_pairs", figures);
    Ok(())
}

/// What one GPU model's table comes to.
#[derive(Serialize)]
struct Figures {
    gpu: String,
    directions: usize,
    ours: Errors,
    /// The same, the likeness not chosen but fixed.
    fixed_likeness: Errors,
    /// Every pair of the job held out, so that it is known by its model and batch alone.
    unseen_job: Errors,
    sensitivity_times_pressure: Errors,
    median_of_all: Errors,
    time_slicing: Errors,
    matching: Matching,
}

impl Figures {
    fn of(table: &Table, options: &QuickOptions) -> io::Result<Self> {
        let (services, measured) = (table.services(), table.measured());
        let parts = folds::divide(&measured, options.of(FOLDS, 3), SEED);
        let fixed = Weir { likenesses: vec![Likeness::default()] };
        let chosen = Weir {
            likenesses: if options.quick { vec![Likeness::default()] } else { Likeness::grid().collect() },
        };
        let held = folds::validate(&chosen, &services, &parts);
        let errors = |learner: &dyn Learner| Errors::of(&folds::validate(learner, &services, &parts));
        Ok(Self {
            gpu: table.device.clone(),
            directions: measured.len(),
            ours: Errors::of(&held),
            fixed_likeness: errors(&fixed),
            unseen_job: Errors::of(&unseen(&fixed, &services, &measured)),
            sensitivity_times_pressure: errors(&SensitivityTimesPressure),
            median_of_all: errors(&Median),
            time_slicing: errors(&TimeSlicing),
            matching: Matching::of(table, &held, options)?,
        })
    }
}

/// Each job in turn with all its pairs held out.
fn unseen(learner: &dyn Learner, services: &[Service], measured: &[Measured]) -> Vec<Held> {
    let of = |job: usize| {
        let (held, training): (Vec<_>, Vec<_>) =
            measured.iter().partition(|row| row.victim == job || row.beside == job);
        let predicted = learner.predict(services, &training, &held);
        held.into_iter().zip(predicted).map(move |(measured, predicted)| Held {
            measured,
            predicted,
            fold: job,
        })
    };
    (0..services.len()).flat_map(of).collect()
}

/// Errors in percent of the measured slowdown.
#[derive(Serialize)]
struct Errors {
    median_percent: f64,
    mean_percent: f64,
    p90_percent: f64,
    median_percent_by_fold: Vec<f64>,
}

impl Errors {
    fn of(held: &[Held]) -> Self {
        let mut errors: Vec<_> = held.iter().map(|row| 100.0 * row.error()).collect();
        errors.sort_by(f64::total_cmp);
        let folds = held.iter().map(|row| row.fold).max().unwrap_or(0);
        let fold = |fold| held.iter().filter(|row| row.fold == fold).copied().collect::<Vec<_>>();
        let medians = (0..=folds).filter_map(|at| folds::median_error(&fold(at)));
        Self {
            median_percent: errors.get(errors.len() / 2).copied().unwrap_or(f64::NAN),
            mean_percent: errors.iter().sum::<f64>() / errors.len() as f64,
            p90_percent: errors.get(errors.len() * 9 / 10).copied().unwrap_or(f64::NAN),
            median_percent_by_fold: medians.map(|median| 100.0 * median).collect(),
        }
    }
}

/// What the chosen pairs are worth, in percent of the best possible matching, by measured throughputs.
#[derive(Serialize)]
struct Matching {
    /// Every kind of job once.
    each_job_once_percent: f64,
    /// Crowds of jobs drawn at random, and the worst of all.
    crowds_percent: Vec<f64>,
    least_percent: f64,
    /// What pairs at random come to, on average over the crowds.
    at_random_percent: f64,
    /// Mean normalised throughput of a job in the best pairs of each job once: 0.5 is taking turns.
    best_mean_throughput: f64,
}

impl Matching {
    /// The lower of each kind once and of the mean over the crowds.
    fn mean_percent(&self) -> f64 {
        let crowds = self.crowds_percent.iter().sum::<f64>() / self.crowds_percent.len() as f64;
        crowds.min(self.each_job_once_percent)
    }

    fn of(table: &Table, held: &[Held], options: &QuickOptions) -> io::Result<Self> {
        let values = Values::of(table, held);
        let partnered = (0..table.jobs.len()).filter(|job| values.measured.keys().any(|pair| pair.0 == *job));
        let once: Vec<_> = partnered.collect();
        let mut random = ChaCha12Rng::seed_from_u64(SEED);
        let mut crowd = || (0..CROWD).map(|_| once[random.random_range(0..once.len())]).collect::<Vec<_>>();
        let crowds: Vec<_> = (0..options.of(CROWDS, 2)).map(|_| crowd()).collect();
        let (best, chosen) = values.choose(&once)?;
        let shares = crowds.iter().map(|crowd| {
            let (best, chosen) = values.choose(crowd)?;
            Ok((100.0 * chosen / best, 100.0 * values.at_random(crowd, &mut random) / best))
        });
        let (crowds_percent, at_random): (Vec<_>, Vec<_>) =
            shares.collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        let each_job_once_percent = 100.0 * chosen / best;
        Ok(Self {
            each_job_once_percent,
            least_percent: crowds_percent.iter().copied().fold(each_job_once_percent, f64::min),
            at_random_percent: at_random.iter().sum::<f64>() / at_random.len() as f64,
            crowds_percent,
            best_mean_throughput: best,
        })
    }
}

/// Jobs of a crowd, and how many crowds.
const CROWD: usize = 40;
const CROWDS: usize = 10;
/// Orders that are tried for pairs at random.
const ORDERS: usize = 100;

/// Mean normalised throughput of the two jobs of each pair, as measured and as predicted while it was held out.
struct Values {
    measured: HashMap<(usize, usize), f64>,
    predicted: HashMap<(usize, usize), f64>,
}

impl Values {
    fn of(table: &Table, held: &[Held]) -> Self {
        let by: HashMap<_, _> =
            held.iter().map(|row| ((row.measured.victim, row.measured.beside), row)).collect();
        let (mut measured, mut predicted) = (HashMap::new(), HashMap::new());
        for (one, other) in table.pairs() {
            let (there, back) = (by[&(one, other)], by[&(other, one)]);
            for pair in [(one, other), (other, one)] {
                measured
                    .insert(pair, (there.measured.slowdown.recip() + back.measured.slowdown.recip()) / 2.0);
                predicted.insert(pair, (there.predicted.recip() + back.predicted.recip()) / 2.0);
            }
        }
        Self { measured, predicted }
    }

    /// Mean measured throughput of a job in the best pairs and in those that the predictions choose; one left alone has none.
    fn choose(&self, jobs: &[usize]) -> io::Result<(f64, f64)> {
        let worth = |values: &HashMap<(usize, usize), f64>| {
            let pairs =
                matching::best(jobs.len(), |one, other| values.get(&(jobs[one], jobs[other])).copied())?;
            let measured = pairs.iter().map(|&(one, other)| self.measured[&(jobs[one], jobs[other])]);
            Ok::<_, io::Error>(2.0 * measured.sum::<f64>() / jobs.len() as f64)
        };
        Ok((worth(&self.measured)?, worth(&self.predicted)?))
    }

    /// The same of pairs at random, each job with the next that it was measured with.
    fn at_random(&self, jobs: &[usize], random: &mut ChaCha12Rng) -> f64 {
        use rand::seq::SliceRandom;
        let mut sum = 0.0;
        for _ in 0..ORDERS {
            let mut left = jobs.to_vec();
            left.shuffle(random);
            while let Some(job) = left.pop() {
                if let Some(at) = left.iter().position(|other| self.measured.contains_key(&(job, *other))) {
                    sum += 2.0 * self.measured[&(job, left.swap_remove(at))];
                }
            }
        }
        sum / (ORDERS * jobs.len()) as f64
    }
}

/// PALDIA: the chosen number of requests together against a sweep of 1 to 8 on random curves.
fn concurrency(report: &mut Report, options: &QuickOptions) {
    let mut random = ChaCha12Rng::seed_from_u64(SEED);
    let swept: Vec<_> =
        (0..options.of(200, 10)).map(|_| sweep(options.of(40_000, 1_000), &mut random)).collect();
    let mean =
        |loss: &dyn Fn(&Swept) -> f64| 100.0 * swept.iter().map(loss).sum::<f64>() / swept.len() as f64;
    report.bar(Bar::at_most(
        "placement.concurrency_loss_percent",
        mean(&Swept::loss),
        "% of p95 over the best, mean",
        5.0,
    ));
    let fixed: Vec<_> = (1..=MOST).map(|together| mean(&|swept: &Swept| swept.loss_of(together))).collect();
    let mut losses: Vec<_> = swept.iter().map(|swept| 100.0 * swept.loss()).collect();
    losses.sort_by(f64::total_cmp);
    let figures = Concurrency {
        curves: swept.len(),
        within_1_percent: losses.iter().filter(|loss| **loss <= 1.0).count(),
        p90_percent: losses.get(losses.len() * 9 / 10).copied().unwrap_or(f64::NAN),
        worst_percent: losses.last().copied().unwrap_or(f64::NAN),
        mean_percent_if_always: fixed,
    };
    report.figure("concurrency", figures);
}

/// By how much the p95 of the chosen concurrency is above the best one's.
#[derive(Serialize)]
struct Concurrency {
    curves: usize,
    within_1_percent: usize,
    p90_percent: f64,
    worst_percent: f64,
    /// With 1 to 8 together whatever comes.
    mean_percent_if_always: Vec<f64>,
}
