//! The best batch and share under an SLO: the pair with the most throughput per share (*throughput efficiency*, TE).
//!
//! Dilu's hybrid growth search doubles the batch and raises the share where the latency asks for it, and never comes back: it
//! misses one of its five published models by 12 % (papers: Dilu, section on profiling). This one begins as that does, and then
//! lets the probes decide:
//!
//! ```text
//! probe (least batch, least share); late? probe (least batch, whole GPU); late? the SLO cannot be kept
//! probe one place amid the small ones
//! until the probes are spent, or every other place is ruled out, or cannot be better and promises nothing:
//!     of the rest probe the one with the largest
//!         expected gain in ln TE over the best so far x probability that it keeps the SLO (x 100 near the best)
//! ```
//!
//! The expected gain weighs what is likely ([`belief`]) against what is not known, so the search goes up along batches (growth),
//! comes back to the batch before at a higher share (the probe that Dilu's lacks), and stops early on plain surfaces. A place is
//! ruled out if one with no larger batch and no smaller share was late by 6 % or more. The answer is always a place that was
//! probed and kept the SLO.

pub mod belief;
pub mod hgss;
pub mod published;
pub mod surface;

use statrs::distribution::{Continuous, ContinuousCDF, StudentsT};
use weir_protocol::units::SmShare;

use self::belief::{Belief, Place, Seen};

/// Most probes of a search.
pub const MOST_PROBES: usize = 12;

/// A place that promises less than this, in ln TE, is probed only if it could be better by what grows with batch and share.
const LEAST_GAIN: f64 = 1e-5;

/// How much more the promise of a place counts that is near the best: guesses are good there, and each probe teaches what surrounds
/// the best.
const NEAR: f64 = 100.0;

/// Degrees of freedom of the guesses' distribution, Student's t: real surfaces bend more sharply than the process expects, so
/// surprises are more frequent than a normal distribution has them.
const FREEDOM: f64 = 20.0;

/// By which factor a latency must miss the SLO to rule out larger batches and smaller shares: published latencies, which are
/// measured, fall by up to 5 % where they should grow.
const CLEARLY: f64 = 1.06;

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Batches, growing.
    pub batches: Vec<u32>,
    /// Shares, growing; the last one is the most that there is.
    pub shares: Vec<SmShare>,
}

impl Grid {
    /// Dilu's: batches of powers of two up to `largest`, shares of 10 to 100 % (papers 1.3).
    pub fn dilu(largest: u32) -> Self {
        let batches = (0..=largest.max(1).ilog2()).map(|power| 1 << power).collect();
        Self { batches, shares: (1..=10).map(|tenth| SmShare::percent(tenth * 10)).collect() }
    }

    /// All places, by index of batch and share.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        let shares = self.shares.len();
        (0..self.batches.len()).flat_map(move |batch| (0..shares).map(move |share| (batch, share)))
    }

    fn place(&self, (batch, share): (usize, usize)) -> Place {
        let part = f64::from(self.shares[share].as_permille()) / 1000.0;
        Place { ln_share: part.ln(), log2_batch: f64::from(self.batches[batch]).log2() }
    }
}

/// What a probe measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Requests in a second.
    pub throughput: f64,
    /// The SLO's quantile of the latency.
    pub latency_ms: f64,
    /// Standard error of the throughput, relative to it; 0 of what does not vary.
    pub noise: f64,
}

/// One probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Requests at once.
    pub batch: u32,
    /// The limit.
    pub share: SmShare,
    /// What came of it.
    pub answer: Answer,
}

impl Probe {
    /// Throughput per percent of the GPU.
    pub fn efficiency(&self) -> f64 {
        self.answer.throughput / self.share.as_percent()
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The best that was probed under the SLO.
    pub best: Probe,
    /// Every probe, in order.
    pub probes: Vec<Probe>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure<E> {
    /// The least batch with the largest share is late.
    #[error("batch {batch} with {share} takes {latency_ms} ms")]
    Late {
        /// That batch.
        batch: u32,
        /// That share.
        share: SmShare,
        /// What it takes.
        latency_ms: f64,
    },
    /// A measurement failed.
    #[error(transparent)]
    Probe(#[from] E),
}

/// Searches `grid` under a bound of the latency, with `most` probes.
///
/// # Errors
/// Those of `probe`, and [`Failure::Late`].
pub fn search<E>(
    grid: &Grid,
    bound_ms: f64,
    most: usize,
    probe: impl FnMut(u32, SmShare) -> Result<Answer, E>,
) -> Result<Found, Failure<E>> {
    let mut search = Search { grid, bound_ms, probe, made: Vec::new() };
    let last = grid.shares.len() - 1;
    search.probe((0, 0))?;
    if search.best().is_none() && last > 0 {
        search.probe((0, last))?;
    }
    // Two steps along both axes: near enough to what will be best, far enough to tell slopes.
    let amid = (2.min(grid.batches.len() - 1), 2.min(last));
    if search.best().is_some() && !search.was_made(amid) {
        search.probe(amid)?;
    }
    while let Some(next) = search.most_promising().filter(|_| search.made.len() < most) {
        search.probe(next)?;
    }
    let probes: Vec<_> = search.made.iter().map(|(_, probe)| *probe).collect();
    let Probe { batch, share, answer } = probes[probes.len() - 1];
    let late = Failure::Late { batch, share, latency_ms: answer.latency_ms };
    search.best().map(|best| Found { best, probes }).ok_or(late)
}

/// A search under way.
struct Search<'a, P> {
    grid: &'a Grid,
    bound_ms: f64,
    probe: P,
    made: Vec<((usize, usize), Probe)>,
}

impl<P> Search<'_, P> {
    fn was_made(&self, at: (usize, usize)) -> bool {
        self.made.iter().any(|(place, _)| *place == at)
    }

    /// The most efficient probe that kept the bound.
    fn best(&self) -> Option<Probe> {
        let kept = self
            .made
            .iter()
            .map(|(_, probe)| *probe)
            .filter(|probe| probe.answer.latency_ms <= self.bound_ms);
        kept.max_by(|a, b| a.efficiency().total_cmp(&b.efficiency()))
    }

    /// Whether a probe with no larger batch and no smaller share was clearly late.
    fn is_ruled_out(&self, (batch, share): (usize, usize)) -> bool {
        self.made.iter().any(|((b, s), probe)| {
            *b <= batch && *s >= share && probe.answer.latency_ms > CLEARLY * self.bound_ms
        })
    }

    /// The place that promises most, if any promises enough or could at least be better.
    fn most_promising(&self) -> Option<(usize, usize)> {
        let seen: Vec<_> = self.made.iter().map(|(at, probe)| self.seen(*at, probe)).collect();
        let (belief, best) = (Belief::from(&seen)?, self.best()?);
        let open = self.grid.places().filter(|at| !self.was_made(*at) && !self.is_ruled_out(*at));
        let gains = open.map(|at| {
            let weight = if self.is_near(&best, at) { NEAR } else { 1.0 };
            (weight * self.expected_gain(&belief, best.efficiency().ln(), at), at)
        });
        let worth = gains.filter(|(gain, at)| *gain >= LEAST_GAIN || self.could_be_better(&best, *at));
        worth.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, at)| at)
    }

    /// Whether a place may be better by a percent if it takes no less than every probe with no larger batch and no smaller share.
    fn could_be_better(&self, best: &Probe, (batch, share): (usize, usize)) -> bool {
        let below = self.made.iter().filter(|((b, s), _)| *b <= batch && *s >= share);
        let least = below.map(|(_, probe)| service_time(probe)).fold(0.0, f64::max);
        let most = f64::from(self.grid.batches[batch]) / least / self.grid.shares[share].as_percent();
        most > 1.01 * best.efficiency()
    }

    /// Whether a place is within a factor of two of a probe's batch and three of its share: what is best lies along a line on which
    /// the share grows with the batch.
    fn is_near(&self, probe: &Probe, (batch, share): (usize, usize)) -> bool {
        let within = |times: u32, a: u32, b: u32| a <= times * b && b <= times * a;
        let permille = |share: SmShare| u32::from(share.as_permille());
        within(2, self.grid.batches[batch], probe.batch)
            && within(3, permille(self.grid.shares[share]), permille(probe.share))
    }

    fn seen(&self, at: (usize, usize), probe: &Probe) -> Seen {
        let answer = probe.answer;
        Seen {
            place: self.grid.place(at),
            ln_latency: answer.latency_ms.ln(),
            ln_service: service_time(probe).ln(),
            noise: answer.noise,
        }
    }

    /// Expected gain in ln TE over the best so far ("expected improvement" of Bayesian optimisation), times the probability
    /// that the SLO is kept.
    fn expected_gain(&self, belief: &Belief, best: f64, at: (usize, usize)) -> f64 {
        let Ok(student) = StudentsT::new(0.0, 1.0, FREEDOM) else { return 0.0 };
        let guess = belief.guess(self.grid.place(at));
        let (batch, percent) = (f64::from(self.grid.batches[at.0]), self.grid.shares[at.1].as_percent());
        let gain = (batch.ln() - guess.ln_service - percent.ln() - best) / guess.spread;
        let kept = student.cdf((self.bound_ms.ln() - guess.ln_latency) / guess.spread);
        let tail = (FREEDOM + gain * gain) / (FREEDOM - 1.0) * student.pdf(gain);
        guess.spread * (gain * student.cdf(gain) + tail) * kept
    }
}

/// Seconds in which a batch is served.
fn service_time(probe: &Probe) -> f64 {
    f64::from(probe.batch) / probe.answer.throughput
}

impl<E, P: FnMut(u32, SmShare) -> Result<Answer, E>> Search<'_, P> {
    fn probe(&mut self, at: (usize, usize)) -> Result<(), E> {
        let (batch, share) = (self.grid.batches[at.0], self.grid.shares[at.1]);
        let answer = (self.probe)(batch, share)?;
        self.made.push((at, Probe { batch, share, answer }));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
