//! The frontier over all cases in one picture: fillers' work under `weir`, and under the best other policy that keeps what is to be
//! kept.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::frontier::Best;

const OURS: RGBColor = RGBColor(0x2c, 0x8c, 0x3c);
const OTHER: RGBColor = RGBColor(0x1f, 0x77, 0xb4);

/// Pixels: of the picture, of a row, and what stands around the rows.
const WIDTH: u32 = 900;
const ROW: u32 = 22;
const AROUND: u32 = 120;
const NAMES: u32 = 300;
const RIVALS: u32 = 90;

/// Draws the cases into this file.
pub fn draw(path: &Path, cases: &[Best]) -> Result<(), Box<dyn Error>> {
    let height = AROUND + ROW * u32::try_from(cases.len())?;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("simulated: fillers' work where what others were promised is kept", ("sans-serif", 17))
        .margin(12)
        .margin_left(NAMES)
        .margin_right(RIVALS)
        .margin_bottom(32)
        .x_label_area_size(36)
        .build_cartesian_2d(0.0..100.0, cases.len() as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(TRANSPARENT)
        .x_desc("percent of the GPU")
        .draw()?;
    for (n, case) in cases.iter().enumerate() {
        let at = |work: f64| (work, n as f64 + 0.5);
        let (_, y) = chart.backend_coord(&at(0.0));
        if let Some(other) = case.best_other {
            let (ours, theirs) = (at(case.filler_work_percent), at(case.best_other_filler_work_percent));
            chart.draw_series([PathElement::new([theirs, ours], OTHER)])?;
            chart.draw_series([Circle::new(theirs, 4, OTHER.filled())])?;
            label(&area, other, (i32::try_from(WIDTH - RIVALS)? + 10, y - 7), OTHER)?;
        }
        chart.draw_series([Circle::new(at(case.filler_work_percent), 5, OURS.stroke_width(2))])?;
        label(&area, &case.case, (14, y - 7), BLACK)?;
    }
    let y = i32::try_from(height)? - 26;
    label(&area, "\u{25cb} weir", (NAMES.cast_signed(), y), OURS)?;
    label(&area, "\u{25cf} the best other policy that keeps it", (NAMES.cast_signed() + 70, y), OTHER)?;
    area.present()?;
    Ok(())
}

fn label(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    text: &str,
    at: (i32, i32),
    color: RGBColor,
) -> Result<(), Box<dyn Error>> {
    area.draw(&Text::new(text, at, ("sans-serif", 13).into_font().color(&color)))?;
    Ok(())
}
