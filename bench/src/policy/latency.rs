//! A latency tenant's p99 beside a filler, against alone, at 30, 60 and 85 % load. It promised nothing, so that nothing of
//! its time may be spent.

use std::io;

use serde::Serialize;
use weir_nodemgr::sim::{Outcome, Scenario, Spread};

use super::{Frontier, INFERENCE, LLM, OURS, Row, Runs, better, scenario};
use crate::report::{Bar, Report};

/// Part of the time that the server keeps the GPU busy when alone, in percent.
const LOADS: [f64; 3] = [30.0, 60.0, 85.0];

/// Simulated seconds of each case: p99 of a few hundred requests at least.
const SECONDS: f64 = 300.0;

/// The least that the ratio may be bound to (design 10).
const LEAST_LIMIT: f64 = 1.05;

/// What a waking tenant may have to wait for: a filler's in-flight cap, a unit, the bell, a switch (design 10); ms.
const CAP_MS: f64 = 0.3;
const BELL_MS: f64 = 0.02;

/// One case.
#[derive(Debug, Serialize)]
struct Case {
    scenario: &'static str,
    load_percent: f64,
    requests_per_s: f64,
    latencies: Vec<Latency>,
    rows: Vec<Row>,
}

/// One latency of one rule.
#[derive(Debug, Serialize)]
struct Latency {
    policy: &'static str,
    of: &'static str,
    p99_alone_ms: f64,
    p99_ms: f64,
    ratio: f64,
    limit: f64,
}

/// Adds the bar and its sweep.
pub fn measure(report: &mut Report, runs: &mut Runs, frontier: &mut Frontier) -> io::Result<()> {
    let mut cases = Vec::new();
    for file in [INFERENCE, LLM] {
        let mut scenario = Scenario { seconds: SECONDS, ..scenario(file)? };
        scenario.tenant[0].slo = None;
        for load in LOADS {
            cases.push(case(runs, file.0, &scenario, load)?);
        }
    }
    let ours = cases.iter().flat_map(|case| &case.latencies).filter(|latency| latency.policy == OURS);
    let worst = ours.max_by(|a, b| (a.ratio / a.limit).total_cmp(&(b.ratio / b.limit)));
    let worst = worst.ok_or_else(|| io::Error::other("a bar without a case"))?;
    report.bar(Bar::at_most("policy.latency_ratio", worst.ratio, "of alone", worst.limit));
    for case in &cases {
        let kept = |policy| case.latencies.iter().filter(|l| l.policy == policy).all(|l| l.ratio <= l.limit);
        let rows = case.rows.iter().map(|row| (row, kept(row.policy)));
        frontier.note(format!("{} at {} % load", case.scenario, case.load_percent), rows);
    }
    report.figure("latency", cases);
    Ok(())
}

fn case(runs: &mut Runs, file: &'static str, scenario: &Scenario, load: f64) -> io::Result<Case> {
    let scenario = at_load(runs, scenario, load)?;
    let name = format!("{}-{load:.0}", file.trim_end_matches(".toml"));
    let (alone, comparison) = runs.compare_all(&name, &scenario)?;
    let alone = better(&alone)?;
    let switch_ms = scenario.switch() as f64 / 1e6;
    let unit_ms = scenario.tenant.iter().skip(1).map(|tenant| tenant.unit() as f64 / 1e6).fold(0.0, f64::max);
    let may_wait = CAP_MS + unit_ms + BELL_MS + switch_ms;
    let mut latencies = Vec::new();
    for outcome in &comparison.outcomes {
        for (of, alone, got) in pairs(outcome, alone)? {
            latencies.push(Latency {
                policy: outcome.policy,
                of,
                p99_alone_ms: alone.p99_ms,
                p99_ms: got.p99_ms,
                ratio: got.p99_ms / alone.p99_ms,
                limit: LEAST_LIMIT.max(1.0 + may_wait / alone.p99_ms),
            });
        }
    }
    let requests_per_s = scenario.tenant[0].inference.as_ref().and_then(|i| i.arrivals.per_s).unwrap_or(0.0);
    let rows = comparison.outcomes.iter().map(Row::of).collect::<Result<_, _>>()?;
    Ok(Case { scenario: file, load_percent: load, requests_per_s, latencies, rows })
}

type Pair = (&'static str, Spread, Spread);

/// First token and per token, alone and beside the filler.
fn pairs(outcome: &Outcome, alone: &weir_nodemgr::sim::TenantOutcome) -> io::Result<Vec<Pair>> {
    let got = better(outcome)?;
    let pairs =
        [("first token", alone.first_token, got.first_token), ("per token", alone.per_token, got.per_token)];
    Ok(pairs.into_iter().filter_map(|(of, alone, got)| Some((of, alone?, got?))).collect())
}

/// The scenario with as many requests as keep the GPU busy for this part of the time, found by halving.
fn at_load(runs: &mut Runs, scenario: &Scenario, load: f64) -> io::Result<Scenario> {
    let (mut low, mut high) = (0.05, 80.0);
    let mut found = scenario.clone();
    while high / low > 1.01 {
        let rate = f64::sqrt(low * high);
        if let Some(inference) = &mut found.tenant[0].inference {
            inference.arrivals.per_s = Some(rate);
        }
        let short = Scenario { seconds: SECONDS / 4.0, tenant: found.tenant[..1].to_vec(), ..found.clone() };
        let alone = runs.compare(&short, &["alone"])?;
        let busy = better(&alone.outcomes[0])?.share_percent;
        *(if busy > load { &mut high } else { &mut low }) = rate;
    }
    Ok(found)
}
