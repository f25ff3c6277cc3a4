//! Pictures of a comparison: latencies, broken promises, shares, throughput, idle time, and fillers' work against the latency it
//! costs.

use std::path::{Path, PathBuf};

use plotters::prelude::*;

use super::compare::{Comparison, Outcome, TenantOutcome};
use crate::codes;
use crate::control::schema::ClassName;
use crate::fault::Fault;

const SIZE: (u32, u32) = (900, 440);

/// Room for the legend, at the right.
const LEGEND: u32 = 190;

/// A picture: its title and axis, what each colour stands for, and a row of bars for each policy.
struct Bars {
    file: &'static str,
    title: &'static str,
    axis: &'static str,
    names: Vec<String>,
    rows: Vec<(&'static str, Vec<f64>)>,
}

/// Draws into `dir`, which is made; says what.
///
/// # Errors
/// [`codes::SYSTEM`].
pub fn draw(dir: &Path, comparison: &Comparison) -> Result<Vec<PathBuf>, Fault> {
    let failed = |error: &dyn std::fmt::Display| {
        Fault::system(
            &codes::SYSTEM,
            format!("draw into `{}`", dir.display()),
            error,
            "name a directory that can be written",
        )
    };
    std::fs::create_dir_all(dir).map_err(|error| failed(&error))?;
    let mut drawn = Vec::new();
    let all = [latency, violations, share_error, throughput, idle];
    for bars in all.map(|bars| bars(comparison)) {
        if bars.rows.iter().all(|(_, values)| values.is_empty()) {
            continue;
        }
        let path = dir.join(bars.file);
        draw_bars(&path, comparison, &bars).map_err(|error| failed(&error))?;
        drawn.push(path);
    }
    let path = dir.join("frontier.svg");
    if draw_frontier(&path, comparison).map_err(|error| failed(&error))? {
        drawn.push(path);
    }
    Ok(drawn)
}

fn latency(comparison: &Comparison) -> Bars {
    let spread = |tenant: &TenantOutcome| tenant.request.map(|s| [s.p50_ms, s.p95_ms, s.p99_ms]);
    let values = |outcome: &Outcome| served(outcome).filter_map(spread).flatten().collect();
    let names = |tenant: &TenantOutcome| ["p50", "p95", "p99"].map(|of| format!("{} {of}", tenant.tenant));
    Bars {
        file: "latency.svg",
        title: "p50, p95 and p99 of requests",
        axis: "ms",
        names: comparison.outcomes.first().map(|o| served(o).flat_map(names).collect()).unwrap_or_default(),
        rows: comparison.outcomes.iter().map(|outcome| (outcome.policy, values(outcome))).collect(),
    }
}

fn violations(comparison: &Comparison) -> Bars {
    let promised = |outcome: &Outcome| -> Vec<(String, f64)> {
        let missed = |t: &TenantOutcome| Some((t.tenant.clone(), t.slo_violations_percent?));
        outcome.tenants.iter().filter_map(missed).collect()
    };
    let values = |outcome: &Outcome| promised(outcome).into_iter().map(|(_, missed)| missed).collect();
    Bars {
        file: "violations.svg",
        title: "requests that missed their bound",
        axis: "percent",
        names: comparison
            .outcomes
            .first()
            .map(|o| promised(o).into_iter().map(|(name, _)| name).collect())
            .unwrap_or_default(),
        rows: comparison.outcomes.iter().map(|outcome| (outcome.policy, values(outcome))).collect(),
    }
}

fn share_error(comparison: &Comparison) -> Bars {
    let values = |outcome: &Outcome| outcome.tenants.iter().map(|t| t.share_error_points).collect();
    Bars {
        file: "share-error.svg",
        title: "what is missing of the share requested, as far as it was wanted",
        axis: "points",
        names: tenants(comparison),
        rows: comparison.outcomes.iter().map(|outcome| (outcome.policy, values(outcome))).collect(),
    }
}

fn tenants(comparison: &Comparison) -> Vec<String> {
    let names = |outcome: &Outcome| outcome.tenants.iter().map(|t| t.tenant.clone()).collect();
    comparison.outcomes.first().map(names).unwrap_or_default()
}

fn served(outcome: &Outcome) -> impl Iterator<Item = &TenantOutcome> {
    outcome.tenants.iter().filter(|tenant| tenant.requests > 0)
}

fn throughput(comparison: &Comparison) -> Bars {
    let values =
        |outcome: &Outcome| outcome.tenants.iter().map(|t| t.of_alone_percent.unwrap_or(0.0)).collect();
    Bars {
        file: "throughput.svg",
        title: "work done against alone",
        axis: "percent",
        names: tenants(comparison),
        rows: comparison.outcomes.iter().map(|outcome| (outcome.policy, values(outcome))).collect(),
    }
}

fn idle(comparison: &Comparison) -> Bars {
    let fills = |outcome: &&Outcome| outcome.tenants.iter().any(is_filler) && outcome.idle_percent.is_some();
    let shared = comparison.outcomes.iter().filter(fills);
    let rows = shared.map(|outcome| {
        let values = [outcome.idle_filled_percent, outcome.fillable_filled_percent];
        (outcome.policy, values.map(|value| value.unwrap_or(0.0)).to_vec())
    });
    Bars {
        file: "idle.svg",
        title: "idle time of the others that fillers had",
        axis: "percent",
        names: vec!["of all".into(), "of what is fillable".into()],
        rows: rows.collect(),
    }
}

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// An empty picture with its title, which says first of all that no GPU was used.
fn blank<'a>(path: &'a Path, what: &str, about: &str) -> Result<Area<'a>, Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    Ok(area.titled(&format!("simulated: {what}"), ("sans-serif", 16))?.titled(about, ("sans-serif", 12))?)
}

/// One more line of the legend.
fn legend(area: &Area<'_>, line: usize, radius: i32, color: impl Into<ShapeStyle>, text: &str) -> Drawn {
    let (x, y) = (i32::try_from(SIZE.0 - LEGEND)? + 14, 30 + 26 * i32::try_from(line)?);
    area.draw(&Circle::new((x, y), radius, color))?;
    area.draw(&Text::new(text.to_owned(), (x + 18, y - 6), ("sans-serif", 13)))?;
    Ok(())
}

fn draw_bars(path: &Path, comparison: &Comparison, bars: &Bars) -> Drawn {
    let area = blank(path, bars.title, &comparison.about)?;
    let most = bars.rows.iter().flat_map(|(_, values)| values).fold(1.0, |a: f64, b| a.max(*b));
    let width = bars.rows.len() as f64;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(30)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..width, 0.0..most * 1.05)?;
    let name = |x: &f64| {
        let row = bars.rows.iter().enumerate().find(|(n, _)| (*n as f64 + 0.5 - x).abs() < 0.01);
        row.map_or(String::new(), |(_, (policy, _))| (*policy).to_owned())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(bars.rows.len() * 2 + 1)
        .x_label_formatter(&name)
        .x_label_style(("sans-serif", 11))
        .y_desc(bars.axis)
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (part, label) in bars.names.iter().enumerate() {
        let color = Palette99::pick(part).to_rgba();
        let thick = 0.8 / bars.names.len().max(1) as f64;
        let bar = |(n, (_, values)): (usize, &(&str, Vec<f64>))| {
            let left = n as f64 + 0.1 + thick * part as f64;
            let value = values.get(part).copied().unwrap_or(0.0);
            Rectangle::new([(left, 0.0), (left + thick * 0.92, value)], color.filled())
        };
        chart.draw_series(bars.rows.iter().enumerate().map(bar))?;
        legend(&area, part, 6, color.filled(), label)?;
    }
    area.present()?;
    Ok(())
}

/// What one rule comes to.
struct Point {
    policy: &'static str,
    lost_percent: f64,
    fillers_ms_per_s: f64,
    kept: bool, // what was promised
}

/// Losses below this, percent, are drawn here: none at all has no place on a scale of logarithms.
const LEAST_LOSS: f64 = 0.1;

/// Fillers' work against what it costs the others: one point for each rule. Nothing to draw without fillers.
fn draw_frontier(path: &Path, comparison: &Comparison) -> Result<bool, Box<dyn std::error::Error>> {
    let points: Vec<Point> = comparison.outcomes.iter().filter_map(point).collect();
    if points.is_empty() {
        return Ok(false);
    }
    let most = |pick: fn(&Point) -> f64| points.iter().map(pick).fold(1.0, f64::max);
    let area = blank(path, "the frontier", &comparison.about)?;
    let losses = (LEAST_LOSS * 0.7..most(|point| point.lost_percent) * 1.5).log_scale();
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(losses, 0.0..most(|point| point.fillers_ms_per_s) * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("what the worst of the others loses against alone, percent (0.1 or less at the left): work, or p99 of requests")
        .x_label_formatter(&|percent| format!("{percent}"))
        .y_desc("fillers' work, ms in a second")
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (n, point) in points.iter().enumerate() {
        let color = Palette99::pick(n).to_rgba();
        let style = if point.kept { color.filled() } else { color.stroke_width(2) };
        // Those that come first are larger, so that points at one place are all seen.
        let radius = 3 + i32::try_from(points.len() - n)?;
        let at = (point.lost_percent.max(LEAST_LOSS), point.fillers_ms_per_s);
        chart.draw_series([Circle::new(at, radius, style)])?;
        let broken = if point.kept { "" } else { ": promise broken" };
        legend(&area, n, radius, style, &format!("{}{broken}", point.policy))?;
    }
    area.present()?;
    Ok(true)
}

fn point(outcome: &Outcome) -> Option<Point> {
    outcome.busy_percent?;
    let (fillers, others): (Vec<_>, Vec<_>) = outcome.tenants.iter().partition(|tenant| is_filler(tenant));
    (!fillers.is_empty()).then(|| Point {
        policy: outcome.policy,
        lost_percent: others.iter().filter_map(|t| t.worse_percent()).fold(0.0, f64::max),
        fillers_ms_per_s: fillers.iter().map(|t| t.work_ms_per_s).sum(),
        kept: outcome.tenants.iter().all(|tenant| tenant.slo_kept != Some(false)),
    })
}

fn is_filler(tenant: &TenantOutcome) -> bool {
    tenant.class == ClassName::Filler
}
