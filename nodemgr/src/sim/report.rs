//! The table of a comparison. It begins with the word that matters most: simulated.

use super::compare::{Comparison, Outcome, Spread, TenantOutcome};
use crate::cli::printer;

/// The comparison as people read it.
pub fn table(comparison: &Comparison) -> String {
    let heads = [
        "POLICY",
        "TENANT",
        "CLASS",
        "SHARE",
        "SHARE ERROR",
        "OF ALONE",
        "REQUEST p50/p95/p99",
        "FIRST TOKEN",
        "PER TOKEN",
        "SLO MISSED",
    ];
    let rows: Vec<Vec<String>> = comparison
        .outcomes
        .iter()
        .flat_map(|outcome| {
            outcome.tenants.iter().enumerate().map(|(n, tenant)| row(outcome, n == 0, tenant))
        })
        .collect();
    let time_heads =
        ["POLICY", "BUSY", "SWITCHES", "IDLE OF BETTERS", "FILLED", "FILLABLE", "FILLED OF FILLABLE"];
    let times: Vec<_> =
        comparison.outcomes.iter().filter(|outcome| outcome.busy_percent.is_some()).map(times).collect();
    let mut text = format!(
        "SIMULATED, no GPU was used: {}\n{} simulated seconds for each policy, seed {}; latencies in ms\n\n{}",
        comparison.about,
        comparison.seconds,
        comparison.seed,
        printer::table(&heads, &rows)
    );
    if !times.is_empty() {
        text += "\n\n";
        text += &printer::table(&time_heads, &times);
    }
    text
}

fn row(outcome: &Outcome, first: bool, tenant: &TenantOutcome) -> Vec<String> {
    vec![
        if first { outcome.policy.to_owned() } else { String::new() },
        tenant.tenant.clone(),
        tenant.class.as_str().to_owned(),
        percent(Some(tenant.share_percent)),
        format!("{:.1} points", tenant.share_error_points),
        percent(tenant.of_alone_percent),
        spread(tenant.request),
        spread(tenant.first_token.filter(|_| tenant.per_token.is_some())),
        spread(tenant.per_token),
        tenant.slo_violations_percent.map_or("-".into(), |missed| {
            format!("{missed:.1} %{}", if tenant.slo_kept == Some(true) { "" } else { " BROKEN" })
        }),
    ]
}

fn times(outcome: &Outcome) -> Vec<String> {
    let percents = [
        outcome.busy_percent,
        outcome.switch_percent,
        outcome.idle_percent,
        outcome.idle_filled_percent,
        outcome.fillable_percent,
        outcome.fillable_filled_percent,
    ];
    std::iter::once(outcome.policy.to_owned()).chain(percents.map(percent)).collect()
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".into(), |percent| format!("{percent:.1} %"))
}

fn spread(spread: Option<Spread>) -> String {
    spread.map_or("-".into(), |s| format!("{:.1} / {:.1} / {:.1}", s.p50_ms, s.p95_ms, s.p99_ms))
}
