//! The published inflation experiment on the openb trace (FGD, USENIX ATC 2023), against its published tables, seed for seed in
//! number, not in value: their generator and ours draw other orders.

mod published;

use std::io;
use std::path::PathBuf;

use serde::Serialize;
use weir_cluster::data;
use weir_cluster::place::Ties;
use weir_cluster::sim::in_parallel;
use weir_cluster::sim::inflation::{self, Point, Run};
use weir_cluster::trace::openb::{Openb, UNDISCLOSED_LIKE_P100};

use self::published::Published;
use super::other;
use crate::QuickOptions;
use crate::report::{Bar, Report};

/// The workloads whose pod lists are at hand; `default` first.
const WORKLOADS: &[&str] = &["default", "cpu100", "gpushare100", "gpushare40", "gpuspec20", "multigpu30"];
/// Our names of the published policies, and theirs.
const POLICIES: &[(&str, &str)] = &[
    ("random", "01-Random"),
    ("dotprod", "02-DotProd"),
    ("clustering", "03-GpuClustering"),
    ("packing", "04-GpuPacking"),
    ("bestfit", "05-BestFit"),
    ("fgd", "06-FGD"),
];
/// Whose bars these are, with random ties.
const OURS: &str = "weir";
/// The weighted sum that is published to save power, with little less allocated.
const SAVES_POWER: &str = "pwr*0.1+fgd*0.9";
/// Loads that are compared, in percent of the cluster's GPUs.
const LOADS: [u32; 2] = [100, 130];
/// Loads at which power is compared; the bar is about their mean. In a full cluster nearly every GPU is in use, whatever the policy.
const POWER_LOADS: [u32; 10] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
/// What is assumed of the trace's undisclosed models; the bar is judged under the first.
const LIKE_A10_A100: &str = "G2 like A10, G3 like A100";
const LIKE_P100: &str = "G2 and G3 like P100";
const FIRST_SEED: u64 = 42;
const SEEDS: usize = 10;

/// One policy on one workload.
#[derive(Debug, Serialize)]
struct Row {
    workload: &'static str,
    policy: &'static str,
    load_percent: u32,
    allocated_percent: f64,
    published_percent: Option<f64>,
    fragmented_percent: f64,
    gpus_used: f64,
    gpu_kilowatts: f64,
}

/// Power of the sum and of ours against FGD's, under one assumption about the undisclosed models.
#[derive(Debug, Serialize)]
struct Saved {
    undisclosed_models: &'static str,
    policy: &'static str,
    load_percent: u32,
    of_gpus_percent: f64,
    with_processors_percent: f64,
    allocated_percent: f64,
    allocated_by_fgd_percent: f64,
}

/// Measures and adds the bars.
pub fn measure(report: &mut Report, options: &QuickOptions) -> io::Result<()> {
    let Some((traces, published)) = files()? else {
        absent(report);
        return Ok(());
    };
    let seeds = options.of(SEEDS, 1);
    let mut rows = Vec::new();
    for (workload, trace) in &traces {
        for (policy, theirs) in POLICIES.iter().copied().chain([(OURS, "06-FGD")]) {
            let ties = (policy == OURS).then_some(Ties::Drawn);
            let points = experiment(trace, policy, ties, seeds)?;
            let compared = LOADS.iter().filter_map(|load| at(&points, *load));
            rows.extend(compared.map(|point| {
                row(workload, policy, &point, published.mean(workload, theirs, point.arrived_percent))
            }));
        }
    }
    judge(report, &rows);
    power(report, &traces[0].1, seeds)?;
    report.figure("openb_seeds", seeds);
    report.figure("openb", rows);
    Ok(())
}

type Traces = Vec<(&'static str, Openb)>;

fn files() -> io::Result<Option<(Traces, Published)>> {
    let find = |name: &str| data::find(name);
    let Some(nodes) = find("openb/openb_node_list_gpu_node.csv") else { return Ok(None) };
    let Some(table) = find("fgd-published/analysis_allo_discrete.csv") else { return Ok(None) };
    let lists: Option<Vec<(&'static str, PathBuf)>> = WORKLOADS
        .iter()
        .map(|workload| Some((*workload, find(&format!("openb/openb_pod_list_{workload}.csv"))?)))
        .collect();
    let Some(lists) = lists else { return Ok(None) };
    let read = |(workload, pods): &(&'static str, PathBuf)| {
        Ok((*workload, Openb::read(&nodes, pods).map_err(other)?))
    };
    let traces = lists.iter().map(read).collect::<io::Result<Vec<_>>>()?;
    Ok(Some((traces, Published::read(&table, &LOADS).map_err(other)?)))
}

/// At each load the mean of all seeds.
fn experiment(trace: &Openb, policy: &str, ties: Option<Ties>, seeds: usize) -> io::Result<Vec<Point>> {
    let runs: Vec<Run> = (FIRST_SEED..)
        .take(seeds)
        .map(|seed| Run { policy: policy.to_owned(), ties, load_percent: LOADS[1], seed })
        .collect();
    let outcomes = in_parallel(&runs, |run| inflation::run(trace, run));
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>().map_err(other)?;
    Ok(inflation::means(&outcomes))
}

fn at(points: &[Point], load: u32) -> Option<Point> {
    points.iter().find(|point| point.arrived_percent == load).copied()
}

fn row(workload: &'static str, policy: &'static str, point: &Point, published: Option<f64>) -> Row {
    Row {
        workload,
        policy,
        load_percent: point.arrived_percent,
        allocated_percent: point.allocated_percent,
        published_percent: published,
        fragmented_percent: point.fragmented_percent,
        gpus_used: point.gpus_used,
        gpu_kilowatts: point.gpu_watts / 1000.0,
    }
}

fn judge(report: &mut Report, rows: &[Row]) {
    let ours = |row: &&Row| row.policy == OURS;
    // What is missing counts as infinitely far.
    let off = |row: &Row| {
        row.published_percent.map_or(f64::INFINITY, |published| row.allocated_percent - published)
    };
    let theirs = rows.iter().filter(|row| !ours(row));
    let worst = theirs.map(|row| off(row).abs()).fold(0.0, f64::max);
    report.bar(Bar::at_most("placement.published_points", worst, "points, worst of 6 policies", 0.5));
    let default =
        rows.iter().find(|row| ours(row) && row.workload == WORKLOADS[0] && row.load_percent == LOADS[0]);
    let allocated = default.map_or(0.0, |row| row.allocated_percent);
    report.bar(Bar::at_least("placement.openb_default_percent", allocated, "% allocated, random ties", 95.3));
    let others = rows.iter().filter(|row| ours(row) && row.workload != WORKLOADS[0]);
    let below = others.map(|row| -off(row)).fold(f64::NEG_INFINITY, f64::max);
    report.bar(Bar::at_most("placement.below_fgd_points", below, "points below published FGD, worst", 0.2));
}

fn power(report: &mut Report, trace: &Openb, seeds: usize) -> io::Result<()> {
    let mut saved = Vec::new();
    let assumed =
        [(LIKE_A10_A100, trace.clone()), (LIKE_P100, trace.clone().with_watts(UNDISCLOSED_LIKE_P100))];
    for (undisclosed_models, trace) in assumed {
        let fgd = experiment(&trace, "fgd", None, seeds)?;
        for policy in [SAVES_POWER, OURS] {
            let points = experiment(&trace, policy, None, seeds)?;
            let pairs = POWER_LOADS.iter().filter_map(|load| Some((at(&fgd, *load)?, at(&points, *load)?)));
            saved.extend(pairs.map(|(fgd, point)| Saved {
                undisclosed_models,
                policy,
                load_percent: fgd.arrived_percent,
                of_gpus_percent: 100.0 * (1.0 - point.gpu_watts / fgd.gpu_watts),
                with_processors_percent: 100.0
                    * (1.0 - (point.gpu_watts + point.cpu_watts) / (fgd.gpu_watts + fgd.cpu_watts)),
                allocated_percent: point.allocated_percent,
                allocated_by_fgd_percent: fgd.allocated_percent,
            }));
        }
    }
    let mean = |policy: &str, assumption: &str| {
        let of_it = |row: &&Saved| row.policy == policy && row.undisclosed_models == assumption;
        let rows: Vec<&Saved> = saved.iter().filter(of_it).collect();
        let mean = |of: fn(&Saved) -> f64| rows.iter().map(|row| of(row)).sum::<f64>() / rows.len() as f64;
        mean(|row| row.of_gpus_percent).min(mean(|row| row.with_processors_percent))
    };
    let stated = mean(SAVES_POWER, LIKE_A10_A100);
    report.bar(Bar::at_least("placement.power_saved_percent", stated, "% of FGD's, mean of loads", 10.0));
    report.figure("power_saved_if_undisclosed_like_p100_percent", mean(SAVES_POWER, LIKE_P100));
    report.figure("power_saved_by_default_percent", mean(OURS, LIKE_A10_A100));
    report.figure("power_saved_by_default_if_undisclosed_like_p100_percent", mean(OURS, LIKE_P100));
    report.figure("power_saved", saved);
    Ok(())
}

fn absent(report: &mut Report) {
    let why = "the openb trace or its published tables are absent (set WEIR_DATA)";
    let at_most = |name, unit, limit| Bar::at_most(name, f64::NAN, unit, limit).unjudged(why);
    let at_least = |name, unit, limit| Bar::at_least(name, f64::NAN, unit, limit).unjudged(why);
    report.bar(at_most("placement.published_points", "points, worst of 6 policies", 0.5));
    report.bar(at_least("placement.openb_default_percent", "% allocated, random ties", 95.3));
    report.bar(at_most("placement.below_fgd_points", "points below published FGD, worst", 0.2));
    report.bar(at_least("placement.power_saved_percent", "% of FGD's, mean of loads", 10.0));
}
