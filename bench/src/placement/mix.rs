//! Dilu's mix at the published sizes under five ways to share, on the same events, beside the published table.

use std::io;

use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use serde::Serialize;
use weir_cluster::trace::mix::Mix;
use weir_cluster::trace::mix::replay::{Outcome, Sharing, replay};

use crate::QuickOptions;
use crate::report::{Bar, Report};

/// Peak GPUs as recomputed from the authors' event files: instances; exclusive, reserve-limit, reserve-request, dilu.
const PUBLISHED: [(usize, [u32; 4]); 6] = [
    (100, [130, 114, 78, 82]),
    (200, [241, 219, 159, 155]),
    (400, [386, 347, 272, 263]),
    (800, [693, 639, 520, 499]),
    (1_600, [1_112, 997, 780, 776]),
    (3_200, [1_879, 1_718, 1_354, 1_322]),
];
/// Enough that the mean peak of 100 instances is known to half a GPU; none of them chose the weights of `weir`.
const SEEDS: std::ops::Range<u64> = 11..31;

/// One size, mean over the seeds.
#[derive(Serialize)]
struct Row {
    instances: usize,
    /// In the order of `ways`.
    peak_gpus: Vec<f64>,
    published_peak_gpus: [u32; 4],
    mean_gpus: Vec<f64>,
    sm_fragmentation: Vec<f64>,
    memory_fragmentation: Vec<f64>,
    violations_percent: Vec<f64>,
    dilu_saves_against_exclusive_percent: f64,
    dilu_saves_against_reserve_limit_percent: f64,
    weir_saves_against_dilu_percent: f64,
}

/// Adds the bars and figures.
pub fn measure(report: &mut Report, options: &QuickOptions) -> io::Result<()> {
    let sizes = &PUBLISHED[..options.of(PUBLISHED.len(), 2)];
    let seeds = if options.quick { 11..12 } else { SEEDS };
    let rows = sizes.iter().map(|size| row(*size, seeds.clone())).collect::<io::Result<Vec<_>>>()?;
    let least = |saved: &dyn Fn(&Row) -> f64| rows.iter().map(saved).fold(f64::INFINITY, f64::min);
    let exclusive = least(&|row| row.dilu_saves_against_exclusive_percent);
    report.bar(Bar::at_least(
        "placement.dilu_saves_against_exclusive_percent",
        exclusive,
        "% of peak GPUs, least",
        28.0,
    ));
    let limit = least(&|row| row.dilu_saves_against_reserve_limit_percent);
    report.bar(Bar::at_least(
        "placement.dilu_saves_against_limit_percent",
        limit,
        "% of peak GPUs, least",
        22.0,
    ));
    let ours = least(&|row| row.weir_saves_against_dilu_percent);
    report.bar(Bar::at_least(
        "placement.weir_saves_against_dilu_percent",
        ours,
        "% of peak GPUs, least",
        0.0,
    ));
    let more = -least(&|row| row.violations_percent[3] - row.violations_percent[4]);
    report.bar(Bar::at_most(
        "placement.weir_violations_over_dilu_points",
        more,
        "points, predicted, most",
        0.0,
    ));
    report.figure("ways", Sharing::ALL.map(|(name, _)| name));
    report.figure("mix", rows);
    Ok(())
}

fn row((instances, published): (usize, [u32; 4]), seeds: std::ops::Range<u64>) -> io::Result<Row> {
    let mixes: Vec<_> =
        seeds.map(|seed| Mix::generate(instances, &mut ChaCha12Rng::seed_from_u64(seed))).collect();
    let run = |sharing| {
        let outcomes = mixes.iter().map(|mix| replay(mix, sharing, &mut ChaCha12Rng::seed_from_u64(1)));
        outcomes.collect::<Result<Vec<_>, _>>().map_err(|fault| io::Error::other(fault.to_string()))
    };
    let all = Sharing::ALL.iter().map(|(_, sharing)| run(*sharing)).collect::<io::Result<Vec<_>>>()?;
    let means = |value: &dyn Fn(&Outcome) -> f64| {
        all.iter()
            .map(|outcomes| outcomes.iter().map(value).sum::<f64>() / outcomes.len() as f64)
            .collect::<Vec<_>>()
    };
    let peak_gpus = means(&|outcome| f64::from(outcome.peak_gpus));
    let saves = |by: usize, against: usize| 100.0 * (1.0 - peak_gpus[by] / peak_gpus[against]);
    Ok(Row {
        instances,
        published_peak_gpus: published,
        mean_gpus: means(&|outcome| outcome.mean_gpus),
        sm_fragmentation: means(&|outcome| outcome.sm_fragmentation),
        memory_fragmentation: means(&|outcome| outcome.memory_fragmentation),
        violations_percent: means(&|outcome| outcome.violations_percent),
        dilu_saves_against_exclusive_percent: saves(3, 0),
        dilu_saves_against_reserve_limit_percent: saves(3, 1),
        weir_saves_against_dilu_percent: saves(4, 3),
        peak_gpus,
    })
}
