//! All statements in one picture: the published ratio, the simulated one, and what other cases and rivals gave.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::Row;
use crate::picture::{OTHER, Rows, WEIR, label};

const PUBLISHED: RGBColor = RGBColor(0xd6, 0x5f, 0x0e);
const SIMULATED: RGBColor = OTHER;
const GREY: RGBColor = RGBColor(0x70, 0x70, 0x70);

const PICTURE: Rows = Rows {
    caption: "simulated: published comparisons and what weir's simulator makes of them",
    along: "ratio of what was compared: 1 is no difference",
    width: 1_000,
    row: 26,
    around: 130,
    left: 180,  // names
    right: 180, // verdicts
    key: 36,
    axis: 40,
};

/// The least and the largest ratio that there is room for; what lies beyond stands at the edge.
const LEAST: f64 = 0.01;
const MOST: f64 = 100.0;

/// Draws them into this file.
pub fn draw(path: &Path, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let area = PICTURE.area(path, rows.len())?;
    let ratios = (LEAST..MOST).log_scale();
    let mut chart = PICTURE.chart(&area, (ratios, &|ratio| format!("{ratio}")), rows.len())?;
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
        label(
            &area,
            row.verdict.as_str(),
            (i32::try_from(PICTURE.width - PICTURE.right)? + 10, y - 7),
            BLACK,
        )?;
    }
    let (x, y) = (PICTURE.left.cast_signed(), i32::try_from(PICTURE.height(rows.len())?)? - 28);
    label(&area, "\u{25cf} published", (x, y), PUBLISHED)?;
    label(&area, "\u{25cf} simulated, with all cases and rivals", (x + 110, y), SIMULATED)?;
    label(&area, "\u{25cb} with weir in the paper's place", (x + 370, y), WEIR)?;
    area.present()?;
    Ok(())
}
