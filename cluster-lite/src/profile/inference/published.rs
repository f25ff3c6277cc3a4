//! The latencies that Dilu's authors published for five models on an A100 (papers 1.3), and the surfaces that run through them.
//!
//! For each model one batch was at hand, at five shares. What other batches do is not known; but for each model it is known what
//! Dilu's search picks, with how many probes, and what is best. So the surfaces here are all those of a grid of parameters that
//! agree with all of this: thousands, of which the truth is presumably near one.

use weir_protocol::units::SmShare;

use super::hgss::{self, Tolerance};
use super::surface::Law;
use super::{Grid, Probe};

/// One model.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Its name.
    pub name: &'static str,
    /// The batch of its latencies.
    pub batch: u32,
    /// The bound of its SLO (for BERT-base not published, chosen).
    pub bound_ms: f64,
    /// Latencies in ms at [`SHARES`].
    pub latencies_ms: [f64; 5],
    /// What Dilu's search picks: batch and percent.
    pub picked: (u32, u16),
    /// With so many probes.
    pub probes: usize,
    /// What is best: batch and percent.
    pub best: (u32, u16),
}

/// Shares of the published latencies.
pub const SHARES: [f64; 5] = [0.1, 0.2, 0.3, 0.5, 1.0];

/// Dilu's tolerance.
pub const TOLERANCE: Tolerance = Tolerance::Absolute(0.2);

/// The models. LLaMA2-7B's latencies are for each token.
pub const MODELS: [Model; 5] = [
    Model {
        name: "ResNet152",
        batch: 16,
        bound_ms: 40.0,
        latencies_ms: [104.2, 55.5, 40.0, 27.1, 25.8],
        picked: (16, 30),
        probes: 9,
        best: (16, 30),
    },
    Model {
        name: "RoBERTa-large",
        batch: 4,
        bound_ms: 60.0,
        latencies_ms: [103.2, 57.7, 34.2, 26.8, 26.2],
        picked: (4, 20),
        probes: 6,
        best: (4, 30),
    },
    Model {
        name: "GPT2-large",
        batch: 4,
        bound_ms: 60.0,
        latencies_ms: [119.5, 65.7, 49.7, 49.0, 32.9],
        picked: (4, 30),
        probes: 7,
        best: (4, 30),
    },
    Model {
        name: "LLaMA2-7B",
        batch: 8,
        bound_ms: 42.0,
        latencies_ms: [159.2, 78.3, 52.3, 41.7, 35.3],
        picked: (8, 50),
        probes: 10,
        best: (8, 50),
    },
    Model {
        name: "BERT-base",
        batch: 4,
        bound_ms: 60.0,
        latencies_ms: [36.7, 33.8, 34.6, 32.7, 34.6],
        picked: (4, 10),
        probes: 5,
        best: (4, 10),
    },
];

/// Parameters that are tried: the host's part of the least latency, and those of [`Law`].
const HOSTS: [f64; 10] = [0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.99, 0.998];
const OVERLAPS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
const SPREADS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
const WIDEST: [f64; 4] = [1.0, 1.5, 2.0, 3.0];

impl Model {
    /// Every surface of the family through this model's points that agrees with all that was published of it.
    pub fn surfaces(&self) -> Vec<Law> {
        let mut laws = Vec::new();
        for (host, overlap) in HOSTS.iter().flat_map(|host| OVERLAPS.map(|overlap| (host, overlap))) {
            let points: Vec<_> = SHARES.into_iter().zip(self.latencies_ms).collect();
            let least = self.latencies_ms.into_iter().fold(f64::INFINITY, f64::min);
            let law = Law::through(self.batch, &points, host * least, overlap);
            for (spread, widest) in SPREADS.iter().flat_map(|spread| WIDEST.map(|widest| (*spread, widest))) {
                let fixed = (0..10).map(|tenth| f64::from(tenth) / 10.0);
                laws.extend(fixed.map(|fixed| Law { fixed, spread, widest, ..law.clone() }));
            }
        }
        laws.retain(|law| self.agrees(law));
        laws
    }

    fn agrees(&self, law: &Law) -> bool {
        let grid = Grid::dilu(32);
        let is = |probe: Option<Probe>, (batch, percent)| {
            probe.is_some_and(|probe| (probe.batch, probe.share) == (batch, SmShare::percent(percent)))
        };
        if !is(law.best(&grid, self.bound_ms), self.best) {
            return false;
        }
        let (picked, probes) =
            hgss::search(&grid, self.bound_ms, TOLERANCE, |batch, share| law.answer(batch, share));
        is(picked, self.picked) && probes == self.probes
    }
}
