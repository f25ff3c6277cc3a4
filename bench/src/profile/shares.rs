//! The search for a training's shares: on curves whose least share is known, without noise and with it.

use std::convert::Infallible;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use weir_cluster::profile::training::{Rule, STEP_PERCENT, search};

/// Random curves, each from its own seed.
const CURVES: u64 = 2_000;

/// Noise of single measurements, as a part of the rate.
const NOISES: [f64; 4] = [0.0, 0.005, 0.01, 0.02];

/// What came of one noise.
#[derive(Debug, Default, Serialize)]
pub struct Row {
    noise_percent: f64,
    curves: u64,
    found_the_least: u64,
    /// A larger share than needed: safe, and what undecided comparisons cost.
    too_large: u64,
    /// A smaller one, which keeps less than stated.
    too_small: u64,
    mean_measurements: f64,
    most_measurements: u64,
    /// The least part of the throughput that a limit kept, where 0.98 was stated.
    least_kept: f64,
    /// Dilu's search on the same curves: ends never, takes too much (papers 1.3).
    dilu_never_ended: u64,
    dilu_too_large: u64,
}

/// Throughput over percent: grows with the share up to a knee, more slowly with each step.
struct Curve {
    knee_percent: f64,
    power: f64,
}

impl Curve {
    fn rate(&self, percent: u16) -> f64 {
        (f64::from(percent) / self.knee_percent).min(1.0).powf(self.power)
    }

    fn least(&self, keeps: f64) -> u16 {
        let steps = (1..=100 / STEP_PERCENT).map(|step| step * STEP_PERCENT);
        steps.clone().find(|percent| self.rate(*percent) >= keeps * self.rate(100)).unwrap_or(100)
    }
}

/// All noises.
pub fn measure() -> Vec<Row> {
    NOISES.into_iter().map(row).collect()
}

fn row(noise: f64) -> Row {
    let rule = Rule::default();
    let mut row = Row { noise_percent: noise * 100.0, curves: CURVES, least_kept: 1.0, ..Row::default() };
    let mut all = 0;
    for seed in 0..CURVES {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let curve =
            Curve { knee_percent: random.random_range(5.0..=120.0), power: random.random_range(0.5..=1.2) };
        let mut measurements = 0;
        let probe = |share: weir_protocol::units::SmShare| {
            measurements += 1;
            Ok::<_, Infallible>(curve.rate(share.as_permille() / 10) * (1.0 + noise * bell(&mut random)))
        };
        let limit = search(&rule, probe).map_or(0, |found| found.limit.as_permille() / 10);
        let least = curve.least(rule.limit_keeps);
        row.found_the_least += u64::from(limit == least);
        row.too_large += u64::from(limit > least);
        row.too_small += u64::from(limit < least);
        row.least_kept = row.least_kept.min(curve.rate(limit) / curve.rate(100));
        row.most_measurements = row.most_measurements.max(measurements);
        all += measurements;
        match dilu(&curve, rule.limit_keeps) {
            None => row.dilu_never_ended += 1,
            Some(percent) => row.dilu_too_large += u64::from(percent > least),
        }
    }
    row.mean_measurements = all as f64 / CURVES as f64;
    row
}

/// Nearly normal, of variance one: the sum of twelve uniform draws.
fn bell(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| random.random_range(-0.5..=0.5)).sum()
}

/// Dilu's binary search: the first middle, rounded down to 5 %, that keeps the part; none if it comes to the same again.
fn dilu(curve: &Curve, keeps: f64) -> Option<u16> {
    let (mut low, mut high, mut before) = (0, 100, None);
    loop {
        let middle = u16::midpoint(low, high) / 5 * 5;
        if curve.rate(middle) >= keeps * curve.rate(100) {
            return Some(middle);
        }
        if before == Some(middle) {
            return None;
        }
        (low, before) = (middle, Some(middle));
        high = high.max(low);
    }
}
