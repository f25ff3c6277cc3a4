//! Pictures of experiments: one for each figure, one line or point for each policy.

mod placement;
mod requests;

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

pub use self::placement::draw as placement;
pub use self::requests::draw as requests;

/// Pixels of a picture.
const SIZE: (u32, u32) = (960, 560);

/// What a picture is called, and what its axes count.
#[derive(Clone, Copy)]
struct Figure<'a> {
    title: &'a str,
    along: &'a str,
    up: &'a str,
}

/// A policy and its points.
type Series<'a> = (&'a str, Vec<(f64, f64)>);

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq)]
enum Marks {
    Line,
    Dots,
}

/// One picture, from zero to a little above the largest values.
fn draw(path: &Path, figure: Figure<'_>, series: &[Series<'_>], marks: Marks) -> Result<(), Box<dyn Error>> {
    let points = || series.iter().flat_map(|(_, points)| points);
    let [widest, highest] =
        [points().map(|p| p.0).fold(0.0, f64::max), points().map(|p| p.1).fold(0.0, f64::max)];
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let room = |most: f64| 0.0..if most > 0.0 { most * 1.05 } else { 1.0 };
    let mut chart = ChartBuilder::on(&root)
        .caption(figure.title, ("sans-serif", 22))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(room(widest), room(highest))?;
    chart.configure_mesh().x_desc(figure.along).y_desc(figure.up).light_line_style(TRANSPARENT).draw()?;
    for (number, (name, points)) in series.iter().enumerate() {
        let colour = Palette99::pick(number);
        let drawn = match marks {
            Marks::Line => {
                chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            }
            Marks::Dots => {
                chart.draw_series(points.iter().map(|point| Circle::new(*point, 6, colour.filled())))?
            }
        };
        let key = colour.stroke_width(2);
        drawn.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], key));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
