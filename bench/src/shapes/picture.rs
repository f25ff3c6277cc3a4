//! All statements in one picture: the published ratio, the simulated one, and what other cases and rivals gave.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::Row;

const PUBLISHED: RGBColor = RGBColor(0xd6, 0x5f, 0x0e);
const SIMULATED: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const WEIR: RGBColor = RGBColor(0x2c, 0x8c, 0x3c);
const GREY: RGBColor = RGBColor(0x70, 0x70, 0x70);

/// Pixels: of the picture, of a row, and what stands around the rows.
const WIDTH: u32 = 1_000;
const ROW: u32 = 26;
const AROUND: u32 = 130;
const NAMES: u32 = 180;
const VERDICTS: u32 = 180;

/// The least and the largest ratio that there is room for; what lies beyond stands at the edge.
const LEAST: f64 = 0.01;
const MOST: f64 = 100.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws them into this file.
pub fn draw(path: &Path, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let height = AROUND + ROW * u32::try_from(rows.len())?;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(
            "simulated: published comparisons and what weir's simulator makes of them",
            ("sans-serif", 17),
        )
        .margin(12)
        .margin_left(NAMES)
        .margin_right(VERDICTS)
        .margin_bottom(36)
        .x_label_area_size(40)
        .build_cartesian_2d((LEAST..MOST).log_scale(), rows.len() as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|ratio| format!("{ratio}"))
        .x_desc("ratio of what was compared: 1 is no difference")
        .draw()?;
    chart.draw_series([PathElement::new([(1.0, 0.0), (1.0, rows.len() as f64)], GREY)])?;
    for (n, row) in rows.iter().enumerate() {
        let at = |ratio: f64, below: f64| (ratio.clamp(LEAST, MOST), n as f64 + below);
        let (least, most) = row.range();
        let (low, high) = row.statement.published.range();
        let line = |low, high, below, color: RGBColor, width| {
            PathElement::new([at(low, below), at(high, below)], color.stroke_width(width))
        };
        chart.draw_series([line(low, high, 0.35, PUBLISHED, 5), line(least, most, 0.65, SIMULATED, 1)])?;
        let dot = |ratio, below, color: RGBColor| Circle::new(at(ratio, below), 4, color.filled());
        chart.draw_series([dot(low, 0.35, PUBLISHED), dot(high, 0.35, PUBLISHED)])?;
        chart.draw_series([Circle::new(at(row.with_weir, 0.65), 6, WEIR.stroke_width(2))])?;
        chart.draw_series([dot(row.simulated, 0.65, SIMULATED)])?;
        let (_, y) = chart.backend_coord(&at(1.0, 0.5));
        label(&area, row.statement.name, (14, y - 7), BLACK)?;
        label(&area, row.verdict.as_str(), (i32::try_from(WIDTH - VERDICTS)? + 10, y - 7), BLACK)?;
    }
    let y = i32::try_from(height)? - 28;
    label(&area, "\u{25cf} published", (NAMES.cast_signed(), y), PUBLISHED)?;
    label(&area, "\u{25cf} simulated, with all cases and rivals", (NAMES.cast_signed() + 110, y), SIMULATED)?;
    label(&area, "\u{25cb} with weir in the paper's place", (NAMES.cast_signed() + 370, y), WEIR)?;
    area.present()?;
    Ok(())
}

fn label(area: &Area<'_>, text: &str, at: (i32, i32), color: RGBColor) -> Result<(), Box<dyn Error>> {
    area.draw(&Text::new(text, at, ("sans-serif", 13).into_font().color(&color)))?;
    Ok(())
}
