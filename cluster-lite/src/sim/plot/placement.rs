//! Placement: four figures over the load.

use std::error::Error;
use std::path::Path;

use super::{Figure, Marks};
use crate::sim::inflation::{Curve, Point};

/// File, title, and the figure of a point.
type Row = (&'static str, &'static str, fn(&Point) -> f64);

const ROWS: [Row; 4] = [
    ("allocated.svg", "GPU share placed, % (simulated)", |point| point.allocated_percent),
    ("fragmented.svg", "free GPU share that cannot be used, % (simulated)", |point| point.fragmented_percent),
    ("power.svg", "power of all GPUs, kW (simulated)", |point| point.gpu_watts / 1000.0),
    ("gpus.svg", "GPUs used (simulated)", |point| point.gpus_used),
];

/// Draws all figures into `dir`, which is made if it is absent.
///
/// # Errors
/// What stands in the way of writing.
pub fn draw(dir: &Path, curves: &[Curve]) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    for (file, title, of) in ROWS {
        let points = |curve: &Curve| {
            curve.points.iter().map(|point| (f64::from(point.arrived_percent), of(point))).collect()
        };
        let series: Vec<_> = curves.iter().map(|curve| (curve.policy.as_str(), points(curve))).collect();
        let figure = Figure { title, along: "GPU share asked for, % of the cluster", up: "" };
        super::draw(&dir.join(file), figure, &series, Marks::Line)?;
    }
    Ok(())
}
