//! What the probes so far make likely for those that were not made: a Gaussian process over the logarithms of latency and
//! of service time (batch / throughput), with log2 of the batch and ln of the share as axes.
//!
//! In logarithms the surfaces are nearly planes that bend: far below the knee a kernel's time goes with 1/share, beyond it the
//! share does nothing; small batches cost what one does, large ones go with the batch. So the mean is a plane of unknown slopes,
//! and what bends it is correlated over about 1.2 in ln share (a factor 3.3) and 2 in log2 batch (a factor 4). Blocks that do not
//! fill their last wave make single shares better or worse for all batches at once, by some percent. Uncertainty is what the
//! search is led by: it is small near probes and grows away from them.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

/// Over which distance of ln share, and of log2 batch, bends are correlated.
const REACH: [f64; 2] = [1.2, 2.0];
/// Variance of the bends, in squares of ln.
const BEND: f64 = 0.2;
/// Variance of what one share has of its own, for all batches: 2 % squared.
const RIPPLE: f64 = 4e-4;
/// Variance of the level and of the slopes over ln share and log2 batch: wide enough for every plane that occurs.
const LEVEL: f64 = 1.0;
const SLOPES: [f64; 2] = [0.3, 0.15];
/// Least variance of a measurement, so that two equal ones do no harm.
const LEAST_NOISE: f64 = 1e-5;

/// A place on the grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// ln of the share, 1 = the whole GPU.
    pub ln_share: f64,
    /// log2 of the batch.
    pub log2_batch: f64,
}

/// What was measured at a place.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Where.
    pub place: Place,
    /// ln of the latency.
    pub ln_latency: f64,
    /// ln of the service time.
    pub ln_service: f64,
    /// Standard error of both, relative.
    pub noise: f64,
}

/// What is likely at a place.
#[derive(Clone, Copy, Debug)]
pub struct Guess {
    /// ln of the latency.
    pub ln_latency: f64,
    /// ln of the service time.
    pub ln_service: f64,
    /// Standard deviation of either.
    pub spread: f64,
}

/// Covariance of two places.
fn covariance(a: Place, b: Place) -> f64 {
    let apart = [(a.ln_share - b.ln_share) / REACH[0], (a.log2_batch - b.log2_batch) / REACH[1]];
    let bend = BEND * (-0.5 * (apart[0].powi(2) + apart[1].powi(2))).exp();
    let ripple = if (a.ln_share - b.ln_share).abs() < 1e-9 { RIPPLE } else { 0.0 };
    let plane = LEVEL + SLOPES[0] * a.ln_share * b.ln_share + SLOPES[1] * a.log2_batch * b.log2_batch;
    bend + ripple + plane
}

/// The process after some probes.
pub struct Belief {
    seen: Vec<Place>,
    factor: Cholesky<f64, Dyn>,
    latency: Line,
    service: Line,
}

/// One of the two quantities: its mean, and what each probe adds to a guess.
struct Line {
    mean: f64,
    weights: DVector<f64>,
}

impl Belief {
    /// What follows from these probes; nothing of none.
    pub fn from(seen: &[Seen]) -> Option<Self> {
        if seen.is_empty() {
            return None;
        }
        let places: Vec<_> = seen.iter().map(|seen| seen.place).collect();
        let noise = |index: usize| LEAST_NOISE + seen[index].noise.powi(2);
        let matrix = DMatrix::from_fn(seen.len(), seen.len(), |row, column| {
            covariance(places[row], places[column]) + if row == column { noise(row) } else { 0.0 }
        });
        let factor = Cholesky::new(matrix)?;
        let line = |pick: fn(&Seen) -> f64| {
            let mean = seen.iter().map(pick).sum::<f64>() / seen.len() as f64;
            let rest = DVector::from_iterator(seen.len(), seen.iter().map(|seen| pick(seen) - mean));
            Line { mean, weights: factor.solve(&rest) }
        };
        let (latency, service) = (line(|seen| seen.ln_latency), line(|seen| seen.ln_service));
        Some(Self { seen: places, latency, service, factor })
    }

    /// What is likely at `place`.
    pub fn guess(&self, place: Place) -> Guess {
        let near =
            DVector::from_iterator(self.seen.len(), self.seen.iter().map(|seen| covariance(*seen, place)));
        let known = near.dot(&self.factor.solve(&near));
        Guess {
            ln_latency: self.latency.mean + near.dot(&self.latency.weights),
            ln_service: self.service.mean + near.dot(&self.service.weights),
            spread: (covariance(place, place) - known).max(1e-8).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(percent: f64, batch: f64) -> Place {
        Place { ln_share: (percent / 100.0).ln(), log2_batch: batch.log2() }
    }

    fn seen(percent: f64, batch: f64, ms: f64, noise: f64) -> Seen {
        Seen { place: place(percent, batch), ln_latency: ms.ln(), ln_service: ms.ln(), noise }
    }

    #[test]
    fn where_it_was_measured_it_is_known_and_far_away_it_is_not() {
        let belief = Belief::from(&[seen(10.0, 1.0, 80.0, 0.0), seen(50.0, 1.0, 20.0, 0.0)]).unwrap();
        let (here, far) = (belief.guess(place(10.0, 1.0)), belief.guess(place(100.0, 32.0)));
        assert!((here.ln_latency.exp() - 80.0).abs() < 0.5 && here.spread < 0.01, "{here:?}");
        assert!(far.spread > 0.5, "{far:?}");
    }

    #[test]
    fn what_was_measured_badly_is_believed_less() {
        let of =
            |noise| Belief::from(&[seen(10.0, 1.0, 80.0, noise)]).unwrap().guess(place(10.0, 1.0)).spread;
        assert!(of(0.2) > 5.0 * of(0.0));
    }
}
