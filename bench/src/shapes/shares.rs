//! The A100's published latencies against its SMs, and what the simulator's partitions make of them: the scenarios of
//! this benchmark stand on that.

use std::io;
use std::path::Path;

use serde::Serialize;
use weir_nodemgr::sim::{self, Scenario};

use super::other;

const SCENARIO: &str = include_str!("../../scenarios/a100-shares.toml");

/// Parts of the SMs, percent.
const PERCENT: [u32; 5] = [10, 20, 30, 50, 100];

/// What Dilu's authors measured at them, ms, in the scenario's order (papers 1.3).
const PUBLISHED_MS: [[f64; 5]; 5] = [
    [36.7, 33.8, 34.6, 32.7, 34.6],
    [103.2, 57.7, 34.2, 26.8, 26.2],
    [119.5, 65.7, 49.7, 49.0, 32.9],
    [104.2, 55.5, 40.0, 27.1, 25.8],
    [159.2, 78.3, 52.3, 41.7, 35.3],
];

/// One point.
#[derive(Debug, Serialize)]
pub struct Point {
    pub model: String,
    pub sm_percent: u32,
    pub published_ms: f64,
    pub simulated_ms: f64,
}

impl Point {
    /// How far off it is, percent of the published latency.
    pub fn off_percent(&self) -> f64 {
        (100.0 * (self.simulated_ms / self.published_ms - 1.0)).abs()
    }

    /// Whether it follows from the others: at 10 % and 100 % the scenario was made to fit.
    pub fn follows(&self) -> bool {
        !matches!(self.sm_percent, 10 | 100)
    }
}

/// Each model alone in a partition of each size.
pub fn measure() -> io::Result<Vec<Point>> {
    let all = Scenario::parse(SCENARIO, Path::new("a100-shares.toml")).map_err(other)?;
    let rulers = [sim::ruler("mps-request").map_err(other)?];
    let mut points = Vec::new();
    for (tenant, published) in all.tenant.iter().zip(PUBLISHED_MS) {
        for (percent, published_ms) in PERCENT.into_iter().zip(published) {
            let mut tenant = tenant.clone();
            tenant.request = Some(format!("{percent}%"));
            let model = tenant.name.clone();
            let scenario = Scenario { tenant: vec![tenant], ..all.clone() };
            let comparison = sim::compare(&scenario, &rulers).map_err(other)?;
            let per_s = comparison.outcomes[0].tenants[0].iterations_per_s;
            points.push(Point { model, sm_percent: percent, published_ms, simulated_ms: 1_000.0 / per_s });
        }
    }
    Ok(points)
}
