//! `weir-bench shapes`: published comparisons, beside what the simulator makes of the same rivals.
//!
//! ```text
//!   statements  what was published, of which ratio, and which scenarios and rules stand for it
//!   measures    what the ratios are of
//!   verdict     whether the simulated ratio has the published one's shape
//!   shares      the A100's latencies against its SMs, which the scenarios build upon
//!   table, picture
//! ```
//!
//! There are no bars: what does not agree says so, here and in docs/simulator.md. Nothing depends on the machine.

mod measures;
mod picture;
mod shares;
mod statements;
mod table;
mod verdict;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use weir_nodemgr::Fault;
use weir_nodemgr::sim::{self, Comparison, Ruler, Scenario};

use self::statements::{CASES, Case, STATEMENTS, Statement};
use self::verdict::Verdict;
use crate::PlotOptions;
use crate::report::Report;

/// The policy that this project would have run in the place of a paper's.
const OURS: &str = "weir";

/// A statement with what was simulated for it.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    statement: &'static Statement,
    /// One for each case and rival.
    ratios: Vec<Ratio>,
    /// The one that is held against the published figure.
    simulated: f64,
    verdict: Verdict,
    /// The same with `weir` in the paper's place.
    with_weir: f64,
}

impl Row {
    /// The least and the largest ratio of all cases and rivals.
    fn range(&self) -> (f64, f64) {
        let ratios = self.ratios.iter().map(|ratio| ratio.ratio);
        ratios.fold((f64::INFINITY, 0.0), |(least, most), ratio| (ratio.min(least), ratio.max(most)))
    }
}

/// One ratio.
#[derive(Debug, Serialize)]
struct Ratio {
    case: &'static str,
    against: &'static str,
    ratio: f64,
    with_weir: f64,
}

/// What one tenant had under one rule: the figures that the ratios are of.
#[derive(Debug, Serialize)]
struct Got<'a> {
    case: &'static str,
    policy: &'static str,
    tenant: &'a str,
    of_alone_percent: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    requests: usize,
    unserved: u64,
    slo_violations_percent: Option<f64>,
}

/// What all rules made of each case, by its name.
type Runs = BTreeMap<&'static str, Comparison>;

/// Simulates, judges and prints.
pub fn run(options: &PlotOptions) -> io::Result<ExitCode> {
    let runs = CASES.iter().map(|case| Ok((case.name, simulate(case)?))).collect::<io::Result<Runs>>()?;
    let rows = STATEMENTS.iter().map(|statement| row(statement, &runs)).collect::<io::Result<Vec<Row>>>()?;
    let shares = shares::measure()?;
    if let Some(dir) = &options.plot {
        draw(dir, &rows, &runs)?;
    }
    if !options.common.json {
        io::Write::write_all(&mut io::stdout(), table::markdown(&rows, &shares).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::new("shapes", true);
    report.figure("statements", rows);
    report.figure("shares", shares);
    report.figure("runs", got(&runs));
    Ok(report.finish(true))
}

fn draw(dir: &Path, rows: &[Row], runs: &Runs) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    picture::draw(&dir.join("shapes.svg"), rows).map_err(|error| io::Error::other(error.to_string()))?;
    for (name, comparison) in runs {
        sim::draw(&dir.join(name), comparison).map_err(other)?;
    }
    Ok(())
}

/// A case under every rule that there is.
fn simulate(case: &Case) -> io::Result<Comparison> {
    let mut scenario = Scenario::parse(case.text, Path::new(case.name)).map_err(other)?;
    if !case.promised {
        scenario.tenant.iter_mut().for_each(|tenant| tenant.slo = None);
    }
    let names = sim::policies().chain(sim::RULES.iter().map(|(name, _)| *name));
    let rulers = names.map(sim::ruler).collect::<Result<Vec<Ruler>, Fault>>().map_err(other)?;
    sim::compare(&scenario, &rulers).map_err(other)
}

fn row(statement: &'static Statement, runs: &Runs) -> io::Result<Row> {
    let mut ratios = Vec::new();
    for case in statement.cases {
        let comparison = &runs[case];
        for against in statement.against {
            let of = |rule| ratio(statement, comparison, rule, against);
            ratios.push(Ratio { case, against, ratio: of(statement.rule)?, with_weir: of(OURS)? });
        }
    }
    let all = |pick: fn(&Ratio) -> f64| ratios.iter().map(pick).collect::<Vec<f64>>();
    let (simulated, with_weir) = (all(|ratio| ratio.ratio), all(|ratio| ratio.with_weir));
    let simulated = statement.published.pick(&simulated);
    let with_weir = statement.published.pick(&with_weir);
    Ok(Row { statement, ratios, simulated, verdict: statement.published.judge(simulated), with_weir })
}

fn got(runs: &Runs) -> Vec<Got<'_>> {
    let outcomes =
        runs.iter().flat_map(|(case, run)| run.outcomes.iter().map(move |outcome| (*case, outcome)));
    let tenants = outcomes.flat_map(|(case, outcome)| {
        outcome.tenants.iter().map(move |tenant| Got {
            case,
            policy: outcome.policy,
            tenant: &tenant.tenant,
            of_alone_percent: tenant.of_alone_percent,
            p95_ms: tenant.request.map(|spread| spread.p95_ms),
            p99_ms: tenant.request.map(|spread| spread.p99_ms),
            requests: tenant.requests,
            unserved: tenant.unserved,
            slo_violations_percent: tenant.slo_violations_percent,
        })
    });
    tenants.collect()
}

/// What `rule` gives, of what `against` gives.
fn ratio(statement: &Statement, comparison: &Comparison, rule: &str, against: &str) -> io::Result<f64> {
    let of = |rule: &str| {
        let outcome = comparison.outcomes.iter().find(|outcome| outcome.policy == rule);
        outcome.and_then(|outcome| (statement.of)(outcome)).ok_or_else(|| {
            io::Error::other(format!("{}: `{rule}` has no {}", statement.name, statement.measure))
        })
    };
    Ok(of(rule)? / of(against)?)
}

fn other(fault: Fault) -> io::Error {
    io::Error::other(fault.to_string())
}
