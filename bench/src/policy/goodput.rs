//! Filler work under a promise, against somebody who knows all arrivals.

use std::io;

use serde::Serialize;
use weir_nodemgr::sim::{self, Scenario};

use super::{INFERENCE, LLM, OURS, Row, Runs, better, filler_work, scenario};
use crate::report::{Bar, Report};

/// Simulated seconds of each case.
const SECONDS: f64 = 400.0;

/// One case.
#[derive(Debug, Serialize)]
struct Case {
    scenario: &'static str,
    slo: Option<String>,
    oracle_percent: f64,
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
}

/// Adds the bar and its cases. Work under a broken promise does not count.
pub fn measure(report: &mut Report, runs: &mut Runs) -> io::Result<()> {
    let cases = [INFERENCE, LLM]
        .into_iter()
        .map(|file| case(runs, file))
        .collect::<Result<Vec<Case>, io::Error>>()?;
    let ours = cases.iter().flat_map(|case| &case.outcomes).filter(|goodput| goodput.row.policy == OURS);
    let counted =
        ours.map(|goodput| if goodput.slo_kept == Some(true) { goodput.of_oracle_percent } else { 0.0 });
    report.bar(Bar::at_least(
        "policy.slo_goodput_percent",
        counted.fold(f64::MAX, f64::min),
        "percent of oracle",
        90.0,
    ));
    report.figure("goodput", cases);
    Ok(())
}

fn case(runs: &mut Runs, file: (&'static str, &'static str)) -> io::Result<Case> {
    let scenario = Scenario { seconds: SECONDS, ..scenario(file)? };
    let bound = sim::most_filler_work(&scenario, 0).unwrap_or(0) as f64 / 1e6 / SECONDS; // ms in a second
    let comparison = runs.compare_all(&format!("goodput-{}", file.0.trim_end_matches(".toml")), &scenario)?;
    let mut outcomes = Vec::new();
    for outcome in &comparison.outcomes {
        let tenant = better(outcome)?;
        outcomes.push(Goodput {
            row: Row::of(outcome)?,
            slo_kept: tenant.slo_kept,
            slo_violations_percent: tenant.slo_violations_percent,
            of_oracle_percent: 100.0 * filler_work(outcome) / bound,
        });
    }
    Ok(Case { scenario: file.0, slo: scenario.tenant[0].slo.clone(), oracle_percent: bound / 10.0, outcomes })
}
