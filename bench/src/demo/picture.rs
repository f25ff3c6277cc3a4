//! A picture of the run: each tenant's share over time.

use std::io;
use std::path::Path;

use plotters::prelude::*;

use super::program::PROGRAMS;
use super::watch::Watch;

const SIZE: (u32, u32) = (960, 420);
const COLORS: [RGBColor; 2] = [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0xd6, 0x5f, 0x0e)];

/// Draws shares over time as an SVG.
pub fn draw(path: &Path, watch: &Watch, gpu: &str) -> io::Result<()> {
    try_draw(path, watch, gpu)
        .map_err(|error| io::Error::other(format!("cannot draw `{}`: {error}", path.display())))
}

fn try_draw(path: &Path, watch: &Watch, gpu: &str) -> Result<(), Box<dyn std::error::Error>> {
    let end = watch.points().last().map_or(1.0, |point| point.seconds);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("Two programs share one GPU ({gpu}): shares by the driver's account");
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..end, 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc("share of SM time, percent")
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (number, (row, color)) in PROGRAMS.iter().zip(COLORS).enumerate() {
        let share = |point: &super::watch::Point| point.percent.get(number).copied().unwrap_or(0.0);
        let line = watch.points().iter().map(|point| (point.seconds, share(point)));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)))?
            .label(format!("{} ({})", row.name, row.what))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}
