//! The choice against an exhaustive sweep: random curves and loads, each concurrency served by the simulated GPU.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::server::{quantile, responses_ms};
use super::{Curve, Load, concurrency, queue};

/// Most requests together in a sweep.
pub const MOST: usize = 8;
/// The part of the requests whose time counts.
pub const PART: f64 = 0.95;

/// One load, chosen for and swept.
#[derive(Clone, Debug)]
pub struct Swept {
    /// What was drawn.
    pub load: Load,
    /// The concurrency that the chain chose.
    pub chosen: usize,
    /// Measured p95 for 1 to [`MOST`] together, in milliseconds.
    pub p95_ms: Vec<f64>,
}

impl Swept {
    /// By how much the chosen one's p95 is above the best one's, in parts of it.
    pub fn loss(&self) -> f64 {
        let best = self.p95_ms.iter().copied().fold(f64::INFINITY, f64::min);
        self.p95_ms[self.chosen - 1] / best - 1.0
    }

    /// The same for a fixed concurrency.
    pub fn loss_of(&self, together: usize) -> f64 {
        Self { chosen: together, ..self.clone() }.loss()
    }
}

/// Draws a load and serves `requests` of it at every concurrency, the same ones each time.
pub fn sweep(requests: usize, random: &mut impl Rng) -> Swept {
    let load = drawn(random);
    let seed = random.random();
    let p95 = |together| {
        quantile(responses_ms(&load, together, requests, &mut ChaCha12Rng::seed_from_u64(seed)), PART)
    };
    let p95_ms = (1..=MOST).map(p95).collect();
    Swept { chosen: concurrency(&load, PART).together, p95_ms, load }
}

/// A curve between hardly any interference and worse than taking turns, needs between nearly equal and widely spread, and a
/// load of 30 to 85 % of the most that can be done.
fn drawn(random: &mut impl Rng) -> Load {
    let (each, power) = (random.random_range(0.05..1.1), random.random_range(0.7..1.5_f64));
    let slowdowns: Vec<_> = (0..8_u32).map(|others| 1.0 + each * f64::from(others).powf(power)).collect();
    let curve = Curve::new(&slowdowns).unwrap_or_else(|| Curve { slowdowns: vec![1.0] });
    let (service_ms, variation) = (random.random_range(2.0..50.0), random.random_range(0.2..1.5));
    let load = Load { rate: 0.0, service_ms, variation, curve };
    let most = (1..=MOST).map(|together| queue::finished_per_s(&load, together)).fold(0.0, f64::max);
    Load { rate: most * random.random_range(0.3..0.85), ..load }
}
