//! Filler work under a promise, against somebody who knows all arrivals.

use std::io;

use serde::Serialize;
use weir_nodemgr::sim::{self, Scenario};

use super::{Frontier, INFERENCE, LLM, OURS, Row, Runs, better, filler_work, scenario};
use crate::report::{Bar, Report};
use crate::sample::least;

/// Simulated seconds of each case.
const SECONDS: f64 = 200.0;

/// A promise is a matter of tails: a few hundred requests decide, so that each case is drawn anew.
const SEEDS: [u64; 3] = [7, 8, 9];

/// One case.
#[derive(Debug, Serialize)]
struct Case {
    scenario: &'static str,
    seed: u64,
    slo: Option<String>,
    oracle_percent: f64,
    bound_percent: f64,
    outcomes: Vec<Goodput>,
}

/// One rule in it.
#[derive(Debug, Serialize)]
struct Goodput {
    #[serde(flatten)]
    row: Row,
    slo_kept: Option<bool>,
    slo_violations_percent: Option<f64>,
    of_oracle_percent: f64,
    of_bound_percent: f64,
}

/// Adds the bar and its cases. Work under a broken promise does not count.
pub fn measure(report: &mut Report, runs: &mut Runs, frontier: &mut Frontier) -> io::Result<()> {
    let cases = [INFERENCE, LLM]
        .into_iter()
        .flat_map(|file| SEEDS.map(|seed| (file, seed)))
        .map(|(file, seed)| case(runs, file, seed))
        .collect::<Result<Vec<Case>, io::Error>>()?;
    let ours = cases.iter().flat_map(|case| &case.outcomes).filter(|goodput| goodput.row.policy == OURS);
    let counted =
        ours.map(|goodput| if goodput.slo_kept == Some(true) { goodput.of_oracle_percent } else { 0.0 });
    report.bar(Bar::at_least("policy.slo_goodput_percent", least(counted), "percent of oracle", 90.0));
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
    let per_second = |work: u64| work as f64 / 1e6 / SECONDS; // ms
    let oracle =
        per_second(most.scheduled.ok_or_else(|| io::Error::other("a promise that nobody can keep"))?);
    let bound = per_second(most.bound);
    let (_, comparison) =
        runs.compare_all(&format!("goodput-{}-{seed}", file.0.trim_end_matches(".toml")), &scenario)?;
    let mut outcomes = Vec::new();
    for outcome in &comparison.outcomes {
        let tenant = better(outcome)?;
        outcomes.push(Goodput {
            row: Row::of(outcome)?,
            slo_kept: tenant.slo_kept,
            slo_violations_percent: tenant.slo_violations_percent,
            of_oracle_percent: 100.0 * filler_work(outcome) / oracle,
            of_bound_percent: 100.0 * filler_work(outcome) / bound,
        });
    }
    Ok(Case {
        scenario: file.0,
        seed,
        slo: scenario.tenant[0].slo.clone(),
        oracle_percent: oracle / 10.0,
        bound_percent: bound / 10.0,
        outcomes,
    })
}
