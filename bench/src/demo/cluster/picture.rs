//! A picture of the run: latencies, instances, and who used which GPU, one above the other along the same time.

use std::io;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::cast::ROLES;
use super::replay::Sent;
use super::watch::Look;

const SIZE: (u32, u32) = (960, 860);
const COLORS: [RGBColor; 2] = [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0xd6, 0x5f, 0x0e)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Axes = Cartesian2d<RangedCoordf64, RangedCoordf64>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A part of the picture: what its axis counts, and up to where.
struct Part<'a> {
    caption: &'a str,
    counts: &'a str,
    seconds: f64,
    most: f64,
}

/// Draws the run as an SVG.
pub fn draw(path: &Path, sent: &[Sent], looks: &[Look]) -> io::Result<()> {
    try_draw(path, sent, looks)
        .map_err(|error| io::Error::other(format!("cannot draw `{}`: {error}", path.display())))
}

fn try_draw(path: &Path, sent: &[Sent], looks: &[Look]) -> Drawn {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let seconds = looks.last().map_or(1.0, |look| look.at_s);
    let parts = area.split_evenly((4, 1));
    latencies(&parts[0], sent, seconds)?;
    instances(&parts[1], looks, seconds)?;
    for (node, part) in parts[2..].iter().enumerate() {
        used(part, looks, node, seconds)?;
    }
    area.present()?;
    Ok(())
}

impl Part<'_> {
    fn chart<'a>(
        &self,
        area: &Area<'a>,
    ) -> Result<ChartContext<'a, SVGBackend<'a>, Axes>, Box<dyn std::error::Error>> {
        let mut chart = ChartBuilder::on(area)
            .caption(self.caption, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(32)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..self.seconds, 0.0..self.most)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("seconds").y_desc(self.counts).y_labels(5).light_line_style(TRANSPARENT).draw()?;
        Ok(chart)
    }
}

fn latencies(area: &Area<'_>, sent: &[Sent], seconds: f64) -> Drawn {
    let most = sent.iter().map(|one| one.took_ms).fold(1.0, f64::max);
    let caption = "each request of the replay (simulated GPUs)";
    let mut chart = Part { caption, counts: "latency, ms", seconds, most }.chart(area)?;
    let dot = |one: &Sent| Circle::new((one.at_s, one.took_ms), 1, COLORS[0].filled());
    chart.draw_series(sent.iter().map(dot))?;
    Ok(())
}

fn instances(area: &Area<'_>, looks: &[Look], seconds: f64) -> Drawn {
    let most = looks.iter().map(|look| look.request_percent).fold(100.0, f64::max) * 1.05;
    let caption = "what the server's instances are guaranteed together; grey: how many they are, times 50";
    let mut chart = Part { caption, counts: "% of a GPU", seconds, most }.chart(area)?;
    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    let count = looks.iter().map(|look| (look.at_s, look.ready as f64 * 50.0));
    chart.draw_series(AreaSeries::new(count, 0.0, BLACK.mix(0.12)))?;
    let share = looks.iter().map(|look| (look.at_s, look.request_percent));
    chart.draw_series(LineSeries::new(share, COLORS[0].stroke_width(2)))?;
    Ok(())
}

fn used(area: &Area<'_>, looks: &[Look], node: usize, seconds: f64) -> Drawn {
    let caption = format!("GPU of node n{node}: who used it, by its own books");
    let mut chart = Part { caption: &caption, counts: "% of the GPU", seconds, most: 100.0 }.chart(area)?;
    for (of, (role, color)) in ROLES.iter().zip(COLORS).enumerate() {
        let line = looks.iter().map(|look| (look.at_s, look.used_percent[node][of]));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)))?
            .label(format!("{} ({})", role.name, role.what))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    Ok(())
}
