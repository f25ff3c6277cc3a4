//! Latency over batch and share, as a law with few parameters: what the search is tried on. *A model, not a measurement*: only
//! where it runs through published points does it say what a GPU did.
//!
//! ```text
//! latency(b, s)^p = host^p + gpu(b, s)^p
//! gpu(b, s)       = work(b) / (work(b0) knee(b)) x curve(s / knee(b))
//! work(b)         = fixed + (1 - fixed) b / b0          fixed: what a batch costs however small it is
//! knee(b)         = min((b / b0)^spread, widest)        larger batches can use a larger share
//! curve           = through points at batch b0, straight between them in logarithms; below the first 1/s, beyond the last flat
//! ```
//!
//! `host` is time in which the GPU may run (p large: they overlap) or not (p = 1: they take turns). At b = b0 the law runs
//! exactly through its points. Below the knee halving the share doubles the GPU's time, beyond it the share does nothing.

use rand::{Rng, RngExt};
use weir_protocol::units::SmShare;

use super::{Answer, Grid, Probe};

/// A point of the curve: share (1 = the whole GPU) and time of the GPU in ms.
type Point = (f64, f64);

/// The law.
#[derive(Clone, Debug)]
pub struct Law {
    /// The batch at which `curve` holds.
    pub batch: u32,
    /// Time of the GPU at that batch.
    pub curve: Vec<Point>,
    /// Time of the host, in ms.
    pub host_ms: f64,
    /// How much host and GPU overlap: 1 not at all, large entirely.
    pub overlap: f64,
    /// Part of a batch's work that is there however small it is.
    pub fixed: f64,
    /// With which power of the batch the knee moves.
    pub spread: f64,
    /// Farthest that it moves.
    pub widest: f64,
}

impl Law {
    /// The law through measured latencies at one batch, of which the host takes `host_ms`, less than any of them.
    pub fn through(batch: u32, latencies: &[Point], host_ms: f64, overlap: f64) -> Self {
        let gpu = |ms: f64| (ms.powf(overlap) - host_ms.powf(overlap)).powf(1.0 / overlap);
        let curve = latencies.iter().map(|(share, ms)| (*share, gpu(*ms))).collect();
        Self { batch, curve, host_ms, overlap, fixed: 0.0, spread: 0.0, widest: 1.0 }
    }

    /// A random one of the same form: knees at 8 to 100 %, sharp or soft; a host that takes 3 % to five times what the GPU
    /// does; up to 3 % of ripple for each share.
    pub fn random(random: &mut impl Rng) -> Self {
        let ln = |random: &mut dyn Rng, from: f64, to: f64| random.random_range(from.ln()..=to.ln()).exp();
        let (knee, sharp) = (ln(random, 0.08, 1.0), random.random_range(1.5..=8.0));
        let ripple = *[0.0, 0.01, 0.03].get(random.random_range(0..3)).unwrap_or(&0.0);
        let curve: Vec<_> = (1..=10)
            .map(|tenth| {
                let share = f64::from(tenth) / 10.0;
                let smooth = (1.0 + (knee / share).powf(sharp)).powf(1.0 / sharp);
                (share, smooth * (1.0 + random.random_range(-ripple..=ripple)))
            })
            .collect();
        Self {
            batch: 1 << random.random_range(0..=5),
            host_ms: curve[curve.len() - 1].1 * ln(random, 0.03, 5.0),
            curve,
            overlap: ln(random, 1.0, 8.0),
            fixed: random.random_range(0.0..=0.9),
            spread: random.random_range(0.0..=1.0),
            widest: ln(random, 1.0, 4.0),
        }
    }

    /// The latency of a batch under a share, in ms.
    pub fn latency_ms(&self, batch: u32, share: SmShare) -> f64 {
        let times = f64::from(batch) / f64::from(self.batch);
        let (work, knee) =
            (self.fixed + (1.0 - self.fixed) * times, times.powf(self.spread).min(self.widest));
        let gpu = work / knee * self.on_curve(share.as_percent() / 100.0 / knee);
        (self.host_ms.powf(self.overlap) + gpu.powf(self.overlap)).powf(1.0 / self.overlap)
    }

    fn on_curve(&self, share: f64) -> f64 {
        let (first, last) = (self.curve[0], self.curve[self.curve.len() - 1]);
        if share <= first.0 {
            return first.1 * first.0 / share;
        }
        let pair = self.curve.windows(2).find(|pair| share <= pair[1].0);
        pair.map_or(last.1, |pair| {
            let way = (share / pair[0].0).ln() / (pair[1].0 / pair[0].0).ln();
            pair[0].1 * (pair[1].1 / pair[0].1).powf(way)
        })
    }

    /// What a probe would measure: a server that is never without a request.
    pub fn answer(&self, batch: u32, share: SmShare) -> Answer {
        let latency_ms = self.latency_ms(batch, share);
        Answer { throughput: f64::from(batch) * 1e3 / latency_ms, latency_ms, noise: 0.0 }
    }

    /// The best place of the grid under the bound, by looking at all of them.
    pub fn best(&self, grid: &Grid, bound_ms: f64) -> Option<Probe> {
        let all = grid.places().map(|(batch, share)| {
            let (batch, share) = (grid.batches[batch], grid.shares[share]);
            Probe { batch, share, answer: self.answer(batch, share) }
        });
        let kept = all.filter(|probe| probe.answer.latency_ms <= bound_ms);
        kept.max_by(|a, b| a.efficiency().total_cmp(&b.efficiency()))
    }

    /// A random bound that the least batch keeps with the whole GPU, and that is not so wide that every batch keeps it everywhere.
    pub fn random_bound_ms(&self, grid: &Grid, random: &mut impl Rng) -> f64 {
        let (batches, shares) = (&grid.batches, &grid.shares);
        let least = self.latency_ms(batches[0], shares[shares.len() - 1]);
        let most = self.latency_ms(batches[batches.len() - 1], shares[0]);
        let most = most.min(40.0 * least).max(1.5 * least);
        random.random_range(least.ln()..=most.ln()).exp()
    }
}
