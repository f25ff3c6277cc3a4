//! Pictures of an experiment: one for each figure, one line for each policy.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::inflation::{Curve, Point};

/// A figure over the load.
struct Figure {
    file: &'static str,
    title: &'static str,
    of: fn(&Point) -> f64,
}

const FIGURES: &[Figure] = &[
    Figure {
        file: "allocated.svg",
        title: "GPU share placed, % (simulated)",
        of: |point| point.allocated_percent,
    },
    Figure {
        file: "fragmented.svg",
        title: "free GPU share that cannot be used, % (simulated)",
        of: |point| point.fragmented_percent,
    },
    Figure {
        file: "power.svg",
        title: "power of all GPUs, kW (simulated)",
        of: |point| point.gpu_watts / 1000.0,
    },
    Figure { file: "gpus.svg", title: "GPUs used (simulated)", of: |point| point.gpus_used },
];

/// Draws all figures into `dir`, which is made if it is absent.
///
/// # Errors
/// What stands in the way of writing.
pub fn draw(dir: &Path, curves: &[Curve]) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    FIGURES.iter().try_for_each(|figure| one(&dir.join(figure.file), figure, curves))
}

fn one(path: &Path, figure: &Figure, curves: &[Curve]) -> Result<(), Box<dyn Error>> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let widest = points().map(|point| point.arrived_percent).max().unwrap_or(1);
    let highest = points().map(figure.of).fold(0.0, f64::max);
    let root = SVGBackend::new(path, (960, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(figure.title, ("sans-serif", 22))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0..widest, 0.0..highest * 1.05)?;
    chart.configure_mesh().x_desc("GPU share asked for, % of the cluster").draw()?;
    for (number, curve) in curves.iter().enumerate() {
        let colour = Palette99::pick(number).stroke_width(2);
        let line = curve.points.iter().map(|point| (point.arrived_percent, (figure.of)(point)));
        let drawn = chart.draw_series(LineSeries::new(line, colour))?;
        drawn.label(&curve.policy).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
