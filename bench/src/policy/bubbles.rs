//! Training with bubbles of 0.5 to 200 ms, beside an offline filler: what training loses, and how much of the fillable
//! idle time is filled.

use std::io;

use serde::Serialize;
use weir_nodemgr::sim::Scenario;

use super::{BUBBLES, Frontier, OURS, Row, Runs, better, scenario};
use crate::report::{Bar, Report};
use crate::sample::{least, most};

/// Bubbles, ms.
const BUBBLES_MS: [f64; 9] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0];

/// What is computed between two of them: so many bubbles long, and at least so much, ms. A wake in a bubble that is being
/// filled costs training what a filler has queued (400 us and a unit) and a switch, 0.6 ms in all: where it comes in each
/// iteration, one percent of loss is an iteration of 55 ms at least. In shorter ones nobody can keep both bars.
const COMPUTE_OF_BUBBLE: f64 = 3.0;
const LEAST_COMPUTE_MS: f64 = 60.0;

/// What a primary may lose, percent (design 10).
const MOST_LOSS: f64 = 1.0;

/// Simulated seconds of each case.
const SECONDS: f64 = 40.0;

/// One case.
#[derive(Debug, Serialize)]
struct Case {
    bubble_ms: f64,
    compute_ms: f64,
    outcomes: Vec<Filled>,
}

/// One rule in it.
#[derive(Debug, Serialize)]
struct Filled {
    #[serde(flatten)]
    row: Row,
    primary_loss_percent: f64,
    idle_percent: Option<f64>,
    idle_filled_percent: Option<f64>,
    fillable_percent: Option<f64>,
    fillable_filled_percent: Option<f64>,
}

/// Adds both bars and their sweep.
pub fn measure(report: &mut Report, runs: &mut Runs, frontier: &mut Frontier) -> io::Result<()> {
    let base = Scenario { seconds: SECONDS, ..scenario(BUBBLES)? };
    let cases =
        BUBBLES_MS.into_iter().map(|bubble| case(runs, &base, bubble)).collect::<Result<Vec<Case>, _>>()?;
    let ours = || cases.iter().flat_map(|case| &case.outcomes).filter(|filled| filled.row.policy == OURS);
    let loss = most(ours().map(|filled| filled.primary_loss_percent));
    report.bar(Bar::at_most("policy.primary_loss_percent", loss, "percent", MOST_LOSS));
    let filled = least(ours().filter_map(|filled| filled.fillable_filled_percent));
    report.bar(Bar::at_least("policy.idle_filled_percent", filled, "percent of fillable", 90.0));
    for case in &cases {
        let rows = case.outcomes.iter().map(|filled| (&filled.row, filled.primary_loss_percent <= MOST_LOSS));
        frontier.note(format!("bubbles of {} ms", case.bubble_ms), rows);
    }
    report.figure("bubbles", cases);
    Ok(())
}

fn case(runs: &mut Runs, base: &Scenario, bubble_ms: f64) -> io::Result<Case> {
    let mut scenario = base.clone();
    let compute_ms = (COMPUTE_OF_BUBBLE * bubble_ms).max(LEAST_COMPUTE_MS);
    if let Some(training) = &mut scenario.tenant[0].training {
        (training.compute_ms, training.bubble_ms) = (compute_ms, bubble_ms);
    }
    let (_, comparison) = runs.compare_all(&format!("bubbles-{bubble_ms}"), &scenario)?;
    let mut outcomes = Vec::new();
    for outcome in &comparison.outcomes {
        outcomes.push(Filled {
            row: Row::of(outcome)?,
            primary_loss_percent: 100.0 - better(outcome)?.of_alone_percent.unwrap_or(0.0),
            idle_percent: outcome.idle_percent,
            idle_filled_percent: outcome.idle_filled_percent,
            fillable_percent: outcome.fillable_percent,
            fillable_filled_percent: outcome.fillable_filled_percent,
        });
    }
    Ok(Case { bubble_ms, compute_ms, outcomes })
}
