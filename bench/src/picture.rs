//! What the pictures of the benchmarks have in common: cases one below the other, each named at the left, along an axis.

use std::error::Error;
use std::path::Path;

use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

/// Colours: of what is Weir's, and of what is not.
pub const WEIR: RGBColor = RGBColor(0x2c, 0x8c, 0x3c);
pub const OTHER: RGBColor = RGBColor(0x1f, 0x77, 0xb4);

/// The space between the outermost text and the picture's edge, in pixels.
const EDGE: u32 = 12;

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Axes: one along which `X` counts, and the rows.
type Axes<X> = Cartesian2d<<X as AsRangedCoord>::CoordDescType, RangedCoordf64>;

/// A picture of rows.
pub struct Rows {
    pub caption: &'static str,
    /// What the axis measures.
    pub along: &'static str,
    /// Pixels: of the picture, of a row, and of what stands around the rows.
    pub width: u32,
    pub row: u32,
    pub around: u32,
    pub left: u32,
    pub right: u32,
    /// The key, below the axis, and the axis' own text.
    pub key: u32,
    pub axis: u32,
}

impl Rows {
    /// The height with so many rows.
    pub fn height(&self, rows: usize) -> Result<u32, Box<dyn Error>> {
        Ok(self.around + self.row * u32::try_from(rows)?)
    }

    /// An empty picture with room for so many rows.
    pub fn area<'a>(&self, path: &'a Path, rows: usize) -> Result<Area<'a>, Box<dyn Error>> {
        let area = SVGBackend::new(path, (self.width, self.height(rows)?)).into_drawing_area();
        area.fill(&WHITE)?;
        Ok(area)
    }

    /// Its axes: along, and from row to row.
    pub fn chart<'a, X>(
        &self,
        area: &Area<'a>,
        (x, numbers): (X, &dyn Fn(&f64) -> String),
        rows: usize,
    ) -> Result<ChartContext<'a, SVGBackend<'a>, Axes<X>>, Box<dyn Error>>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(self.caption, ("sans-serif", 17))
            .margin(EDGE)
            .margin_left(self.left)
            .margin_right(self.right)
            .margin_bottom(self.key)
            .x_label_area_size(self.axis)
            .build_cartesian_2d(x, rows as f64..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&numbers)
            .x_desc(self.along)
            .draw()?;
        Ok(chart)
    }
}

/// Text at a place, in pixels.
pub fn label(area: &Area<'_>, text: &str, at: (i32, i32), color: RGBColor) -> Result<(), Box<dyn Error>> {
    area.draw(&Text::new(text, at, ("sans-serif", 13).into_font().color(&color)))?;
    Ok(())
}
