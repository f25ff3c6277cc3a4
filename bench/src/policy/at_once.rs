//! Filler work beside a latency tenant whose promise leaves room, where kernels run at once (MPS), in partitions and by
//! priority: Dilu's pairs, of kernels that fit on the GPU together, and of larger ones.

use std::io;

use serde::Serialize;
use weir_nodemgr::sim::{Outcome, Scenario};

use super::{Frontier, Row, Runs, better, scenario};
use crate::report::Report;

const SMALL: (&str, &str) =
    ("dilu-training-small.toml", include_str!("../../scenarios/dilu-training-small.toml"));
const LARGE: (&str, &str) =
    ("dilu-training-large.toml", include_str!("../../scenarios/dilu-training-large.toml"));

/// Simulated seconds of each case.
const SECONDS: f64 = 300.0;

/// Each case is drawn anew.
const SEEDS: [u64; 3] = [7, 8, 9];

/// One case.
#[derive(Debug, Serialize)]
struct Case {
    scenario: &'static str,
    seed: u64,
    rows: Vec<Promised>,
}

/// One rule, and whether the promise was kept under it.
#[derive(Debug, Serialize)]
struct Promised {
    #[serde(flatten)]
    row: Row,
    slo_kept: Option<bool>,
    slo_violations_percent: Option<f64>,
}

/// Adds the cases.
pub fn measure(report: &mut Report, runs: &mut Runs, frontier: &mut Frontier) -> io::Result<()> {
    let mut cases = Vec::new();
    for file in [SMALL, LARGE] {
        for seed in SEEDS {
            let scenario = Scenario { seed, seconds: SECONDS, ..scenario(file)? };
            let name = format!("{}-{seed}", file.0.trim_end_matches(".toml"));
            let (_, comparison) = runs.compare_all(&name, &scenario)?;
            let rows = comparison.outcomes.iter().map(Promised::of).collect::<Result<Vec<_>, _>>()?;
            let kept = rows.iter().map(|promised| (&promised.row, promised.slo_kept == Some(true)));
            frontier.note(format!("{}, seed {seed}", file.0), kept);
            cases.push(Case { scenario: file.0, seed, rows });
        }
    }
    report.figure("at_once", cases);
    Ok(())
}

impl Promised {
    fn of(outcome: &Outcome) -> io::Result<Self> {
        let tenant = better(outcome)?;
        Ok(Self {
            slo_violations_percent: tenant.slo_violations_percent,
            slo_kept: tenant.slo_kept,
            row: Row::of(outcome)?,
        })
    }
}
