//! Pictures of a comparison: latencies, throughput, idle time, and fillers' work against the latency it costs.

use std::path::{Path, PathBuf};

use plotters::prelude::*;

use super::compare::{Comparison, Outcome, TenantOutcome};
use crate::codes;
use crate::control::schema::ClassName;
use crate::fault::Fault;

const SIZE: (u32, u32) = (900, 420);
const COLORS: [RGBColor; 3] =
    [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0xd6, 0x5f, 0x0e), RGBColor(0x2c, 0x8c, 0x3c)];

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
    for bars in [latency(comparison), throughput(comparison), idle(comparison)] {
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
    let values = |outcome: &Outcome| served(outcome).filter_map(|t| Some(t.request?.p99_ms)).collect();
    Bars {
        file: "latency.svg",
        title: "p99 of requests",
        axis: "ms",
        names: comparison
            .outcomes
            .first()
            .map(|o| served(o).map(|t| t.tenant.clone()).collect())
            .unwrap_or_default(),
        rows: comparison.outcomes.iter().map(|outcome| (outcome.policy, values(outcome))).collect(),
    }
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
        names: comparison
            .outcomes
            .first()
            .map(|o| o.tenants.iter().map(|t| t.tenant.clone()).collect())
            .unwrap_or_default(),
        rows: comparison.outcomes.iter().map(|outcome| (outcome.policy, values(outcome))).collect(),
    }
}

fn idle(comparison: &Comparison) -> Bars {
    let shared = comparison.outcomes.iter().filter(|outcome| outcome.idle_percent.is_some());
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

fn draw_bars(path: &Path, comparison: &Comparison, bars: &Bars) -> Drawn {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let most = bars.rows.iter().flat_map(|(_, values)| values).fold(1.0, |a: f64, b| a.max(*b));
    let width = bars.rows.len() as f64;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("simulated: {} ({})", bars.title, comparison.about), ("sans-serif", 14))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..width, 0.0..most * 1.15)?;
    let name = |x: &f64| {
        let row = bars.rows.iter().enumerate().find(|(n, _)| (*n as f64 + 0.5 - x).abs() < 0.01);
        row.map_or(String::new(), |(_, (policy, _))| (*policy).to_owned())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(bars.rows.len() * 2 + 1)
        .x_label_formatter(&name)
        .y_desc(bars.axis)
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (part, label) in bars.names.iter().enumerate() {
        let color = COLORS[part % COLORS.len()];
        let thick = 0.8 / bars.names.len().max(1) as f64;
        let bar = |(n, (_, values)): (usize, &(&str, Vec<f64>))| {
            let left = n as f64 + 0.1 + thick * part as f64;
            let value = values.get(part).copied().unwrap_or(0.0);
            Rectangle::new([(left, 0.0), (left + thick * 0.92, value)], color.filled())
        };
        chart
            .draw_series(bars.rows.iter().enumerate().map(bar))?
            .label(label)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled()));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}

/// Fillers' work against what it costs the others: one point for each policy. Nothing to draw without fillers.
fn draw_frontier(path: &Path, comparison: &Comparison) -> Result<bool, Box<dyn std::error::Error>> {
    let points: Vec<_> = comparison.outcomes.iter().filter_map(point).collect();
    if points.is_empty() {
        return Ok(false);
    }
    let most = |pick: fn(&(&str, f64, f64)) -> f64| points.iter().map(pick).fold(1.0, f64::max) * 1.15;
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("simulated: the frontier ({})", comparison.about), ("sans-serif", 14))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..most(|p| p.1), 0.0..most(|p| p.2))?;
    chart
        .configure_mesh()
        .x_desc("what the worst of the others loses against alone: work, or p99 of requests; percent")
        .y_desc("fillers' work, ms in a second")
        .light_line_style(TRANSPARENT)
        .draw()?;
    chart.draw_series(points.iter().map(|(policy, x, y)| {
        EmptyElement::at((*x, *y))
            + Circle::new((0, 0), 4, COLORS[0].filled())
            + Text::new(*policy, (8, -6), ("sans-serif", 13))
    }))?;
    area.present()?;
    Ok(true)
}

fn point(outcome: &Outcome) -> Option<(&'static str, f64, f64)> {
    outcome.busy_percent?;
    let (fillers, others): (Vec<_>, Vec<_>) =
        outcome.tenants.iter().partition(|t| t.class == ClassName::Filler);
    let lost = others.iter().filter_map(|t| t.worse_percent()).fold(0.0, f64::max);
    (!fillers.is_empty()).then(|| (outcome.policy, lost, fillers.iter().map(|t| t.work_ms_per_s).sum()))
}
