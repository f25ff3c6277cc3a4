//! `weir-bench scaling`: what scaling policies make of request traces, in virtual time.
//!
//! The bar is that neither scaling instances alone nor shares alone is better than Weir in one of violations, cold starts
//! and GPU-seconds without being worse in another: with a tolerance of zero, on the means over the seeds. Nothing here
//! depends on the machine but the last figure. Recorded traces are read from `../shared/data`, or `$WEIR_DATA`; without
//! them the bar is not judged.

mod cases;

use std::io;
use std::process::ExitCode;
use std::time::Instant;

use serde::Serialize;
use weir_cluster::fault::Fault;
use weir_cluster::scale::{Row, SCALERS};
use weir_cluster::sim::requests::{Summary, compare};

use self::cases::{Case, Cases};
use crate::QuickOptions;
use crate::report::{Bar, Report};

/// The policy whose bars these are, and what it is compared with.
const OURS: &str = "weir";
const BY_COUNT: &str = "weir-by-count";
const BASELINES: [&str; 2] = ["horizontal", "vertical"];

/// One case under every policy.
#[derive(Serialize)]
struct Compared {
    case: &'static str,
    recorded: bool,
    heavy_tailed: bool,
    gpus: usize,
    dominated_by: Vec<&'static str>,
    policies: Vec<Summary>,
}

/// Measures and prints.
pub fn run(options: &QuickOptions) -> io::Result<ExitCode> {
    let mut report = Report::new("scaling", true);
    let Cases { cases, absent } = cases::all().map_err(|fault| other(&fault))?;
    let policies: Vec<&Row> = SCALERS.iter().collect();
    let began = Instant::now();
    let seeds = options.of(10, 1) as u64;
    let compared = cases.iter().map(|case| compare_case(case, &policies, seeds));
    let compared = compared.collect::<io::Result<Vec<_>>>()?;
    let took_s = began.elapsed().as_secs_f64();
    judge(&mut report, &compared, &absent);
    let per_policy: f64 = compared.iter().flat_map(|case| &case.policies).map(|policy| policy.arrived).sum();
    #[allow(clippy::cast_precision_loss, reason = "ten")]
    let requests = per_policy * seeds as f64;
    report.bar(Bar::at_least("scaling.requests_per_minute", requests / took_s * 60.0, "requests/min", 1e6));
    report.figure("seeds", seeds);
    report.figure("simulated_requests", requests);
    report.figure("cases", &compared);
    Ok(report.finish(options.common.json))
}

fn compare_case(case: &Case, policies: &[&Row], seeds: u64) -> io::Result<Compared> {
    let outcomes = compare(policies, seeds, |seed| case.scenario(seed))
        .map_err(|fault| io::Error::other(fault.to_string()))?;
    let summaries: Vec<_> = outcomes.iter().map(|outcomes| Summary::of(outcomes)).collect();
    let dominated_by = summaries
        .iter()
        .filter(|other| named(&summaries, OURS).is_some_and(|ours| other.dominates(ours)))
        .map(|other| other.policy)
        .collect();
    Ok(Compared {
        case: case.name,
        recorded: case.is_recorded(),
        heavy_tailed: case.heavy_tailed,
        gpus: case.gpus,
        dominated_by,
        policies: summaries,
    })
}

fn named<'a>(summaries: &'a [Summary], policy: &str) -> Option<&'a Summary> {
    summaries.iter().find(|summary| summary.policy == policy)
}

fn judge(report: &mut Report, compared: &[Compared], absent: &[String]) {
    let dominated: usize = compared
        .iter()
        .map(|case| case.dominated_by.iter().filter(|name| BASELINES.contains(name)).count())
        .sum();
    #[allow(clippy::cast_precision_loss, reason = "some cases")]
    let bar = Bar::at_most("scaling.dominated_by_baseline", dominated as f64, "cases", 0.0);
    report.bar(if absent.is_empty() { bar } else { bar.unjudged(format!("absent: {}", absent.join(", "))) });
    // Cypress, papers.md 3.4: by sizes against by counts, where sizes have a heavy tail.
    let ratio = |case: &Compared| {
        let (sized, counted) = (named(&case.policies, OURS)?, named(&case.policies, BY_COUNT)?);
        Some(sized.violations / counted.violations.max(1.0))
    };
    let worst = compared.iter().filter(|case| case.heavy_tailed).filter_map(ratio).fold(0.0, f64::max);
    report.bar(Bar::at_most("scaling.sized_to_counted_violations", worst, "ratio", 1.0));
}

fn other(fault: &Fault) -> io::Error {
    io::Error::other(fault.to_string())
}
