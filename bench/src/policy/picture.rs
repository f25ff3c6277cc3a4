//! The frontier over all cases in one picture: fillers' work under `weir`, and under every other rule, those that keep what is to be
//! kept apart from those that do not.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::OURS;
use super::frontier::Best;
use crate::picture::{OTHER, Rows, WEIR, label};

/// Of a rule that does not keep what is to be kept.
const BROKEN: RGBColor = RGBColor(0xb0, 0xb0, 0xb0);

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
        for point in case.all.iter().filter(|point| point.policy != OURS) {
            let (place, color) = (at(point.filler_work_percent), if point.keeps { OTHER } else { BROKEN });
            match point.keeps {
                true => chart.draw_series([Circle::new(place, 2, color.filled())])?,
                false => chart.draw_series([Circle::new(place, 3, color.stroke_width(1))])?,
            };
        }
        chart.draw_series([Circle::new(at(case.filler_work_percent), 5, WEIR.stroke_width(2))])?;
        label(&area, &case.case, (14, y - 7), BLACK)?;
    }
    let (x, y) = (PICTURE.left.cast_signed(), i32::try_from(PICTURE.height(cases.len())?)? - 26);
    label(&area, "\u{25cb} weir", (x, y), WEIR)?;
    label(&area, "\u{25cf} the best other policy that keeps it", (x + 70, y), OTHER)?;
    label(&area, "\u{2022} all others that do", (x + 300, y), OTHER)?;
    label(&area, "\u{25cb} do not", (x + 430, y), BROKEN)?;
    area.present()?;
    Ok(())
}
