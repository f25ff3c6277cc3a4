//! `weir-cluster simulate placement`: placement experiments over recorded clusters, as a table, JSON, CSV and pictures.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::super::printer;
use super::{FIRST_SEED, cannot_write, explain};
use crate::fault::{Fault, USAGE};
use crate::place::{POLICIES, Policy, Ties, Workload};
use crate::sim::in_parallel;
use crate::sim::inflation::{self, Curve, Point, Run};
use crate::trace::openb::Openb;

const NODE_LIST: &str = "openb_node_list_gpu_node.csv";
const POD_LIST: &str = "openb_pod_list_default.csv";

/// Flags of the command.
#[derive(Args)]
#[command(after_help = policies())]
pub struct Options {
    /// A directory with openb's node list and default pod list, or the two files
    #[arg(long, value_name = "PATH", num_args = 1..=2, required = true)]
    trace: Vec<PathBuf>,
    /// Policies and sums of them, such as `weir,fgd,pwr*0.1+fgd*0.9`
    #[arg(long, value_delimiter = ',', default_value = POLICIES[0].name)]
    policy: Vec<String>,
    /// Runs of each policy, with seeds from 42 on; 1 to 1000
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// GPU share asked for in the end, in percent of the cluster's; 1 to 1000
    #[arg(long, default_value_t = 130, value_parser = clap::value_parser!(u32).range(1..=1000))]
    load: u32,
    /// Which of equally rated nodes is taken [default: each policy's own rule]
    #[arg(long)]
    ties: Option<Rule>,
    /// Write all points into this CSV file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write why each demand of the first seed went where it went, or nowhere, into this file: one JSON document a line
    #[arg(long, value_name = "FILE")]
    explain: Option<PathBuf>,
    /// Draw the curves into this directory
    #[cfg(feature = "plot")]
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// A rule for ties.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Rule {
    /// One of them, drawn.
    Drawn,
    /// The first.
    First,
}

#[derive(Serialize)]
struct Document<'a> {
    simulated: bool,
    nodes: usize,
    gpus: u32,
    pods: usize,
    seeds: u64,
    curves: &'a [Curve],
}

/// The policies, for `--help`.
fn policies() -> String {
    let rows = POLICIES.iter().map(|row| format!("  {:<14}{}", row.name, row.about));
    std::iter::once("Policies:".to_owned()).chain(rows).collect::<Vec<_>>().join("\n")
}

/// Runs the experiment and prints.
pub fn run(options: &Options, json: bool) -> Result<ExitCode, Fault> {
    let (nodes, pods) = files(&options.trace)?;
    let trace = Openb::read(&nodes, &pods)?;
    let workload = Workload::of(trace.pods.iter().map(|pod| &pod.demand));
    options.policy.iter().try_for_each(|name| Policy::parse(name, &workload).map(drop))?;
    let curves = curves(&trace, options)?;
    if let Some(path) = &options.csv {
        write_csv(path, &curves).map_err(|error| cannot_write(path, &error))?;
    }
    explain(options.explain.as_deref(), &options.policy, |policy, hearer| {
        inflation::run_heard(&trace, &run_of(options, policy, FIRST_SEED), hearer).map(drop)
    })?;
    #[cfg(feature = "plot")]
    if let Some(dir) = &options.plot {
        crate::sim::plot::placement(dir, &curves).map_err(|error| cannot_write(dir, &*error))?;
    }
    let (nodes, gpus, pods) = (trace.nodes.len(), trace.gpus(), trace.pods.len());
    if json {
        let document = Document { simulated: true, nodes, gpus, pods, seeds: options.seeds, curves: &curves };
        printer::json(&document);
    } else {
        printer::talk(format!(
            "simulated: {nodes} nodes, {gpus} GPUs, {pods} kinds of arrival, {} seeds",
            options.seeds
        ));
        printer::data(table(&curves, options.load));
    }
    Ok(ExitCode::SUCCESS)
}

fn files(trace: &[PathBuf]) -> Result<(PathBuf, PathBuf), Fault> {
    match trace {
        [nodes, pods] => Ok((nodes.clone(), pods.clone())),
        [dir] if dir.is_dir() => Ok((dir.join(NODE_LIST), dir.join(POD_LIST))),
        [path, ..] => {
            let message = format!("`{}` is one file, but a trace is two", path.display());
            Err(Fault::new(message, "pass the node list and the pod list, or their directory").exit(USAGE))
        }
        [] => {
            Err(Fault::new("no trace", "pass the node list and the pod list, or their directory").exit(USAGE))
        }
    }
}

fn run_of(options: &Options, policy: &str, seed: u64) -> Run {
    let ties = options.ties.map(|rule| match rule {
        Rule::Drawn => Ties::Drawn,
        Rule::First => Ties::First,
    });
    Run { policy: policy.to_owned(), ties, load_percent: options.load, seed }
}

fn curves(trace: &Openb, options: &Options) -> Result<Vec<Curve>, Fault> {
    let seeds = || FIRST_SEED..FIRST_SEED + options.seeds;
    let of_policy = |policy: &String| seeds().map(|seed| run_of(options, policy, seed)).collect::<Vec<_>>();
    let runs: Vec<Run> = options.policy.iter().flat_map(of_policy).collect();
    let outcomes = in_parallel(&runs, |run| inflation::run(trace, run));
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
    let seeds = usize::try_from(options.seeds).unwrap_or(usize::MAX);
    let of_policy = options.policy.iter().zip(outcomes.chunks(seeds));
    Ok(of_policy
        .map(|(policy, runs)| Curve { policy: policy.clone(), points: inflation::means(runs) })
        .collect())
}

fn table(curves: &[Curve], load: u32) -> String {
    let heads =
        ["policy", "arrived %", "allocated %", "fragmented %", "GPUs used", "GPU kW", "CPU kW", "dropped"];
    let shown = |percent: &u32| *percent == load || matches!(percent, 50 | 80 | 100);
    let row = |policy: &str, point: &Point| {
        let cells = [
            policy.to_owned(),
            point.arrived_percent.to_string(),
            format!("{:.2}", point.allocated_percent),
            format!("{:.2}", point.fragmented_percent),
            format!("{:.0}", point.gpus_used),
            format!("{:.1}", point.gpu_watts / 1000.0),
            format!("{:.1}", point.cpu_watts / 1000.0),
            format!("{:.0}", point.dropped),
        ];
        cells.to_vec()
    };
    let points =
        curves.iter().flat_map(|curve| curve.points.iter().map(|point| (curve.policy.as_str(), point)));
    let rows: Vec<_> = points
        .filter(|(_, point)| shown(&point.arrived_percent))
        .map(|(policy, point)| row(policy, point))
        .collect();
    printer::table(&heads, &rows)
}

fn write_csv(path: &Path, curves: &[Curve]) -> Result<(), csv::Error> {
    #[derive(Serialize)]
    struct Row<'a> {
        policy: &'a str,
        arrived_percent: u32,
        allocated_percent: f64,
        fragmented_percent: f64,
        gpus_used: f64,
        gpu_watts: f64,
        cpu_watts: f64,
        dropped: f64,
    }
    let mut writer = csv::Writer::from_path(path)?;
    for Curve { policy, points } in curves {
        for point in points {
            let Point { arrived_percent, allocated_percent, fragmented_percent, gpus_used, .. } = *point;
            let Point { gpu_watts, cpu_watts, dropped, .. } = *point;
            writer.serialize(Row {
                policy,
                arrived_percent,
                allocated_percent,
                fragmented_percent,
                gpus_used,
                gpu_watts,
                cpu_watts,
                dropped,
            })?;
        }
    }
    Ok(writer.flush()?)
}
