//! The smallest shares that keep a stated part of a training's throughput with the whole GPU.
//!
//! Two answers come from one search: the *limit* keeps 98 % (what is beyond it gains nothing worth having), the *request*
//! another fraction that is stated. Shares lie on a grid of 5 %.
//!
//! ```text
//! lo = 0 (keeps nothing), hi = the whole GPU (keeps everything)
//! while hi and lo are more than a step apart: measure the middle; it keeps the part -> hi, else -> lo
//! ```
//!
//! The interval shrinks at each step, so the search ends after at most five; hi was measured to keep the part and the step
//! below it was measured not to, so hi is the least share where throughput grows with the share. Dilu's search does neither: it
//! stops at the first success, and rounding can lead it to the same middle for ever (papers: Dilu, section on profiling).
//!
//! Rates are noisy. Each comparison repeats both measurements, in turn so that a drift of the clocks harms neither, until
//! Welch's test tells them apart with the stated confidence or the most rounds are over; what cannot be told apart counts as
//! not kept, since a share too large is safer than one too small, and is named in the answer.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, StudentsT};
use weir_protocol::units::SmShare;

/// Step of the grid, in percent.
pub const STEP_PERCENT: u16 = 5;

/// Steps in a whole GPU.
const STEPS: u16 = 100 / STEP_PERCENT;

/// What the search is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Part of the throughput that the limit keeps.
    pub limit_keeps: f64,
    /// Part that the request keeps.
    pub request_keeps: f64,
    /// With which confidence two rates are told apart, above 0.5 and below 1.
    pub confidence: f64,
    /// Fewest measurements of a share before it is judged; at least 2.
    pub least: usize,
    /// Most of them.
    pub most: usize,
}

impl Default for Rule {
    /// Dilu's 98 %; 80 % for the request, with which its published requests agree in order (0.3 to 0.5 with limits of 0.6 to 0.9).
    fn default() -> Self {
        Self { limit_keeps: 0.98, request_keeps: 0.8, confidence: 0.95, least: 3, most: 16 }
    }
}

/// Rates that were measured under one share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// How often it was measured.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Their mean; 0 of none.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }

    /// Variance of the mean; 0 of less than two.
    fn variance_of_mean(&self) -> f64 {
        let (count, mean) = (self.0.len() as f64, self.mean());
        if self.0.len() < 2 {
            return 0.0;
        }
        self.0.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0) / count
    }

    /// Standard error of the mean.
    pub fn deviation(&self) -> f64 {
        self.variance_of_mean().sqrt()
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Least share that keeps `request_keeps`.
    pub request: SmShare,
    /// Least share that keeps `limit_keeps`.
    pub limit: SmShare,
    /// Everything that was measured, by share.
    pub samples: BTreeMap<SmShare, Sample>,
    /// Shares of which it could not be told with the stated confidence whether they keep the part; they were taken not to.
    pub undecided: Vec<SmShare>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure<E> {
    /// The program does nothing with the whole GPU.
    #[error("the rate with the whole GPU is {0}")]
    NoRate(f64),
    /// A measurement failed.
    #[error(transparent)]
    Probe(#[from] E),
}

/// Searches; `probe` measures the rate once under a share.
///
/// # Errors
/// Those of `probe`, and [`Failure::NoRate`].
pub fn search<E>(rule: &Rule, probe: impl FnMut(SmShare) -> Result<f64, E>) -> Result<Found, Failure<E>> {
    let mut bench = Bench { rule: *rule, probe, samples: BTreeMap::new(), undecided: Vec::new() };
    for _ in 0..rule.least.max(2) {
        bench.measure(STEPS)?;
    }
    let alone = bench.sample(STEPS).mean();
    if !(alone > 0.0 && alone.is_finite()) {
        return Err(Failure::NoRate(alone));
    }
    let limit = bench.least_that_keeps(rule.limit_keeps, STEPS)?;
    let request = bench.least_that_keeps(rule.request_keeps.min(rule.limit_keeps), limit)?;
    let samples = bench.samples.into_iter().map(|(step, sample)| (share(step), sample)).collect();
    let undecided = bench.undecided.into_iter().map(share).collect();
    Ok(Found { request: share(request), limit: share(limit), samples, undecided })
}

const fn share(step: u16) -> SmShare {
    SmShare::percent(step * STEP_PERCENT)
}

/// What is being measured.
struct Bench<P> {
    rule: Rule,
    probe: P,
    samples: BTreeMap<u16, Sample>,
    undecided: Vec<u16>,
}

impl<P> Bench<P> {
    fn sample(&self, step: u16) -> Sample {
        self.samples.get(&step).cloned().unwrap_or_default()
    }

    /// Whether the rate at `step` is at least `part` of the whole GPU's; `None`: it cannot be told yet.
    fn verdict(&self, step: u16, part: f64) -> Option<bool> {
        let (here, alone) = (self.sample(step), self.sample(STEPS));
        let more = here.mean() - part * alone.mean();
        let variances = [here.variance_of_mean(), part * part * alone.variance_of_mean()];
        let variance: f64 = variances.iter().sum();
        if variance == 0.0 {
            return Some(more >= 0.0);
        }
        // Welch and Satterthwaite's degrees of freedom.
        let counts = [here.count(), alone.count()].map(|count| count.saturating_sub(1).max(1) as f64);
        let parts: f64 =
            variances.iter().zip(counts).map(|(variance, count)| variance * variance / count).sum();
        let student = StudentsT::new(0.0, 1.0, variance * variance / parts).ok()?;
        let bound = student.inverse_cdf(self.rule.confidence) * variance.sqrt();
        (more.abs() >= bound).then_some(more >= 0.0)
    }
}

impl<E, P: FnMut(SmShare) -> Result<f64, E>> Bench<P> {
    fn measure(&mut self, step: u16) -> Result<(), E> {
        let rate = (self.probe)(share(step))?;
        self.samples.entry(step).or_default().0.push(rate);
        Ok(())
    }

    /// Whether `step` keeps `part`, measured as often as that takes.
    fn keeps(&mut self, step: u16, part: f64) -> Result<bool, E> {
        while self.sample(step).count() < self.rule.least.max(2) {
            self.measure(step)?;
        }
        loop {
            if let Some(verdict) = self.verdict(step, part) {
                return Ok(verdict);
            }
            if self.sample(step).count() >= self.rule.most {
                self.undecided.push(step);
                return Ok(false);
            }
            if self.sample(STEPS).count() <= self.sample(step).count() {
                self.measure(STEPS)?;
            }
            self.measure(step)?;
        }
    }

    /// The least step that keeps `part`; `most` is known to.
    fn least_that_keeps(&mut self, part: f64, most: u16) -> Result<u16, E> {
        let (mut keeps_not, mut keeps) = (0, most);
        while keeps - keeps_not > 1 {
            let middle = keeps_not.midpoint(keeps);
            if self.keeps(middle, part)? { keeps = middle } else { keeps_not = middle }
        }
        Ok(keeps)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn found(rule: &Rule, mut rate: impl FnMut(u16) -> f64) -> Found {
        let probe = |share: SmShare| Ok::<_, Infallible>(rate(share.as_permille() / 10));
        search(rule, probe).unwrap()
    }

    /// The least percent on the grid that keeps a part, by looking at all of them.
    fn exhaustive(part: f64, rate: impl Fn(u16) -> f64) -> SmShare {
        let least = (1..=STEPS).find(|step| rate(step * STEP_PERCENT) >= part * rate(100));
        share(least.unwrap())
    }

    #[test]
    fn a_host_that_feeds_two_fifths_of_the_gpu_makes_the_limit_two_fifths() {
        let found = found(&Rule::default(), |percent| f64::from(percent.min(40)));
        assert_eq!((found.limit, found.request), (SmShare::percent(40), SmShare::percent(35)));
        assert!(found.undecided.is_empty());
    }

    #[test]
    fn whoever_needs_all_of_it_gets_all_of_it_and_whoever_needs_nothing_one_step() {
        assert_eq!(found(&Rule::default(), f64::from).limit, SmShare::FULL);
        assert_eq!(found(&Rule::default(), |_| 7.0).limit, SmShare::percent(STEP_PERCENT));
    }

    #[test]
    fn a_program_that_does_nothing_is_told() {
        let none = search(&Rule::default(), |_| Ok::<_, Infallible>(0.0));
        assert!(matches!(none, Err(Failure::NoRate(rate)) if rate == 0.0));
    }

    /// Dilu (papers 1.3): it takes 50 % where 30 % would do, and asks for 95 % for ever where the whole GPU is needed.
    #[test]
    fn where_dilus_search_takes_too_much_or_does_not_end_this_one_finds_the_least() {
        let dilu = |rate: &dyn Fn(u16) -> f64| {
            let (mut low, mut high) = (0, 100);
            (0..100).find_map(|_| {
                let middle = (low + high) / 2 / 5 * 5;
                if rate(middle) >= 0.98 * rate(100) {
                    return Some(middle);
                }
                if rate(middle) < 0.98 * rate(100) {
                    low = middle
                } else {
                    high = middle
                }
                None
            })
        };
        let (light, heavy) = (|percent: u16| f64::from(percent.min(30)), |percent: u16| f64::from(percent));
        assert_eq!((dilu(&light), dilu(&heavy)), (Some(50), None));
        assert_eq!(found(&Rule::default(), light).limit, SmShare::percent(30));
        assert_eq!(found(&Rule::default(), heavy).limit, SmShare::FULL);
    }

    #[test]
    fn noise_of_two_percent_leads_astray_no_more_often_than_stated() {
        let (rule, mut wrong) = (Rule::default(), 0);
        for seed in 0..400 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let knee = f64::from(random.random_range(10..=100u8));
            let rate = move |percent: u16| f64::from(percent).min(knee);
            // Three uniform draws are near enough to a bell.
            let noisy = |percent| {
                let bell: f64 = (0..3).map(|_| random.random_range(-1.0..=1.0)).sum();
                rate(percent) * (1.0 + 0.02 * bell)
            };
            let (limit, least) = (found(&rule, noisy).limit, exhaustive(rule.limit_keeps, rate));
            // Too small a share breaks the promise; a step too much is what undecided comparisons cost.
            wrong += u32::from(
                rate(limit.as_permille() / 10) < (rule.limit_keeps - 0.005) * rate(100) || limit < least,
            );
        }
        assert!(wrong <= 20, "{wrong} of 400 keep less than stated");
    }

    proptest! {
        #[test]
        fn on_every_curve_that_grows_the_least_share_is_found_in_few_steps(
            mut steps in prop::collection::vec(0.0f64..1.0, STEPS as usize), keeps in 0.1f64..0.98,
        ) {
            steps.sort_by(f64::total_cmp);
            steps.iter_mut().for_each(|rate| *rate += 1e-3);
            let rate = |percent: u16| steps[usize::from(percent / STEP_PERCENT) - 1];
            let rule = Rule { request_keeps: keeps, ..Rule::default() };
            let found = found(&rule, rate);
            prop_assert_eq!(found.limit, exhaustive(rule.limit_keeps, rate));
            prop_assert_eq!(found.request, exhaustive(keeps, rate));
            prop_assert!(found.samples.len() <= 11, "the whole GPU and five for each");
        }

        #[test]
        fn whatever_is_measured_the_search_ends(seed: u64) {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let (rule, mut calls) = (Rule::default(), 0);
            let found = found(&rule, |_| { calls += 1; random.random_range(0.1..10.0) });
            prop_assert!(found.request <= found.limit && calls <= 12 * 2 * rule.most);
        }
    }
}
