//! The frontier over all cases in one picture: fillers' work under `weir`, and under the best other policy that keeps what is to be
//! kept.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::frontier::Best;
use crate::picture::{OTHER, Rows, WEIR, label};

const PICTURE: Rows = Rows {
    caption: "simulated: fillers' work where what others were promised is kept",
    along: "percent of the GPU",
    width: 900,
    row: 22,
    around: 120,
    left: 300, // names
    right: 90, // rivals
    key: 32,
    axis: 36,
};

/// Draws the cases into this file.
pub fn draw(path: &Path, cases: &[Best]) -> Result<(), Box<dyn Error>> {
    let area = PICTURE.area(path, cases.len())?;
    let mut chart = PICTURE.chart(&area, (0.0..100.0, &|percent| format!("{percent:?}")), cases.len())?;
    for (n, case) in cases.iter().enumerate() {
        let at = |work: f64| (work, n as f64 + 0.5);
        let (_, y) = chart.backend_coord(&at(0.0));
        if let Some(other) = case.best_other {
            let (ours, theirs) = (at(case.filler_work_percent), at(case.best_other_filler_work_percent));
            chart.draw_series([PathElement::new([theirs, ours], OTHER)])?;
            chart.draw_series([Circle::new(theirs, 4, OTHER.filled())])?;
            label(&area, other, (i32::try_from(PICTURE.width - PICTURE.right)? + 10, y - 7), OTHER)?;
        }
        chart.draw_series([Circle::new(at(case.filler_work_percent), 5, WEIR.stroke_width(2))])?;
        label(&area, &case.case, (14, y - 7), BLACK)?;
    }
    let (x, y) = (PICTURE.left.cast_signed(), i32::try_from(PICTURE.height(cases.len())?)? - 26);
    label(&area, "\u{25cb} weir", (x, y), WEIR)?;
    label(&area, "\u{25cf} the best other policy that keeps it", (x + 70, y), OTHER)?;
    area.present()?;
    Ok(())
}
