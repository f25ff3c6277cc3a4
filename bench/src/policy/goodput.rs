//! Filler work under a promise, against somebody who knows all arrivals.

use std::io;

use serde::Serialize;
use weir_nodemgr::sim::{self, Scenario, Scheduled};

use super::{Frontier, INFERENCE, LLM, OURS, Row, Runs, better, filler_work, scenario};
use crate::report::{Bar, Report};
use crate::sample::least;

/// Simulated seconds of each case.
const SECONDS: f64 = 200.0;

/// A request is a guarantee over so long (design 5).
const LONG_RUN_SECONDS: f64 = 10.0;

/// A promise is a matter of tails: a few hundred requests decide, so that each case is drawn anew.
const SEEDS: [u64; 6] = [7, 8, 9, 10, 11, 12];

/// One case.
#[derive(Debug, Serialize)]
struct Case {
    scenario: &'static str,
    seed: u64,
    slo: Option<String>,
    request_percent: f64,
    oracle: Oracle,
    without_request: Option<Oracle>,
    bound_percent: f64,
    outcomes: Vec<Goodput>,
}

/// What somebody does who knows all arrivals.
#[derive(Clone, Copy, Debug, Serialize)]
struct Oracle {
    filler_work_percent: f64,
    least_share_percent: Option<f64>,
}

/// One rule in it.
#[derive(Debug, Serialize)]
struct Goodput {
    #[serde(flatten)]
    row: Row,
    slo_kept: Option<bool>,
    slo_violations_percent: Option<f64>,
    request_kept: Option<bool>,
    least_share_percent: Option<f64>,
    of_oracle_percent: f64,
    of_without_request_percent: Option<f64>,
    of_bound_percent: f64,
}

impl Goodput {
    /// Whether its work counts: the promise is kept, and no ten seconds with work throughout had less than the request.
    fn counts(&self) -> bool {
        self.slo_kept == Some(true) && self.request_kept != Some(false)
    }
}

/// Adds the bar and its cases. Work under a broken promise, or for less than the request, does not count.
pub fn measure(report: &mut Report, runs: &mut Runs, frontier: &mut Frontier) -> io::Result<()> {
    let cases = [INFERENCE, LLM]
        .into_iter()
        .flat_map(|file| SEEDS.map(|seed| (file, seed)))
        .map(|(file, seed)| case(runs, file, seed))
        .collect::<Result<Vec<Case>, io::Error>>()?;
    let ours = cases.iter().flat_map(|case| &case.outcomes).filter(|goodput| goodput.row.policy == OURS);
    let counted = ours.map(|goodput| if goodput.counts() { goodput.of_oracle_percent } else { 0.0 });
    report.bar(Bar::at_least("policy.slo_goodput_percent", least(counted), "percent of oracle", 80.0));
    for case in &cases {
        let rows = case.outcomes.iter().map(|goodput| (&goodput.row, goodput.slo_kept == Some(true)));
        frontier.note(format!("{}, seed {}", case.scenario, case.seed), rows);
    }
    report.figure("goodput", cases);
    Ok(())
}

fn case(runs: &mut Runs, file: (&'static str, &'static str), seed: u64) -> io::Result<Case> {
    let scenario = Scenario { seconds: SECONDS, seed, ..scenario(file)? };
    let most = sim::most_filler_work(&scenario, 0)
        .ok_or_else(|| io::Error::other("a scenario without a promise"))?;
    let oracle =
        Oracle::of(most.scheduled.ok_or_else(|| io::Error::other("a promise that nobody can keep"))?);
    let without_request = most.without_request.map(Oracle::of);
    let bound_percent = percent_of(most.bound, SECONDS);
    let request_percent = request_percent(&scenario)?;
    let (_, comparison) =
        runs.compare_all(&format!("goodput-{}-{seed}", file.0.trim_end_matches(".toml")), &scenario)?;
    let mut outcomes = Vec::new();
    for outcome in &comparison.outcomes {
        let tenant = better(outcome)?;
        let work = filler_work(outcome) / 10.0;
        let of = |most: f64| 100.0 * work / most;
        outcomes.push(Goodput {
            row: Row::of(outcome)?,
            slo_kept: tenant.slo_kept,
            slo_violations_percent: tenant.slo_violations_percent,
            request_kept: tenant.least_share_percent.map(|least| least >= request_percent),
            least_share_percent: tenant.least_share_percent,
            of_oracle_percent: of(oracle.filler_work_percent),
            of_without_request_percent: without_request.map(|most| of(most.filler_work_percent)),
            of_bound_percent: of(bound_percent),
        });
    }
    let slo = scenario.tenant[0].slo.clone();
    Ok(Case {
        scenario: file.0,
        seed,
        slo,
        request_percent,
        oracle,
        without_request,
        bound_percent,
        outcomes,
    })
}

/// What the first tenant of these scenarios is guaranteed.
fn request_percent(scenario: &Scenario) -> io::Result<f64> {
    let request = scenario.tenant[0].request().map_err(super::other)?;
    Ok(request.map_or(0.0, |share| share.as_percent()))
}

/// Nanoseconds in so many seconds, in percent.
fn percent_of(work: u64, seconds: f64) -> f64 {
    work as f64 / 1e7 / seconds
}

impl Oracle {
    fn of(scheduled: Scheduled) -> Self {
        Self {
            filler_work_percent: percent_of(scheduled.work, SECONDS),
            least_share_percent: scheduled.least_of_long_run.map(|least| percent_of(least, LONG_RUN_SECONDS)),
        }
    }
}
