//! Rates over time with the figures of the traces that Dilu ships (papers.md 1.6): the length, the mean and the highest
//! rate of each are as published, the course in between is ours.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Exp1};

/// A course of requests a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The same all the time.
    Steady,
    /// 858 s: mean 5.69, at most 14.3. A base with bursts of half a minute on it.
    Bursty,
    /// 1,007 s: mean 3.10, at most 13.8. A peak each 201 s.
    Periodic,
    /// 1,007 s: mean 0.15, at most 4.1, 671 s of them without any.
    Sporadic,
}

impl Shape {
    /// The rate in each second of its length, or of `seconds` for a steady one at a rate of 1.
    pub fn rates(self, seconds: usize, random: &mut impl Rng) -> Vec<f64> {
        match self {
            Self::Steady => vec![1.0; seconds],
            Self::Bursty => with_mean(bursts(858, random), 5.69, 14.3),
            Self::Periodic => (0..1007).map(peak).collect(),
            Self::Sporadic => with_mean(spots(1007, 671, random), 0.15, 4.1),
        }
    }
}

/// A sixth power has the mean and the highest rate that were published: the mean of cos^12 over a period is 0.2256.
fn peak(second: u32) -> f64 {
    13.8 * (std::f64::consts::PI * f64::from(second) / 201.4).cos().powi(12)
}

/// One, and in bursts of 20 to 40 s up to six, a burst each minute and a half.
fn bursts(seconds: usize, random: &mut impl Rng) -> Vec<f64> {
    let mut rates = vec![1.0; seconds];
    let mut at = 0.0;
    loop {
        let gap: f64 = Exp1.sample(random);
        at += 60.0 * gap;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time of some hundred seconds"
        )]
        let begin = at as usize;
        if begin >= seconds {
            return rates;
        }
        let length = random.random_range(20..=40);
        let height = random.random_range(2.0..5.0);
        rates[begin..(begin + length).min(seconds)].iter_mut().for_each(|rate| *rate = 1.0 + height);
        at += 40.0;
    }
}

/// Stretches of some requests between long ones of none; exactly so many seconds are empty.
fn spots(seconds: usize, empty: usize, random: &mut impl Rng) -> Vec<f64> {
    let mut rates = vec![0.0; seconds];
    let mut left = seconds - empty;
    while left > 0 {
        let begin = random.random_range(0..seconds);
        let length = random.random_range(5..=25).min(left);
        for rate in rates[begin..(begin + length).min(seconds)].iter_mut().filter(|rate| **rate == 0.0) {
            let height: f64 = Exp1.sample(random);
            *rate = height + 0.05;
            left -= 1;
        }
    }
    rates
}

/// Scaled to a mean with nothing above `most`: what is cut off is put on the rest.
fn with_mean(mut rates: Vec<f64>, mean: f64, most: f64) -> Vec<f64> {
    #[allow(clippy::cast_precision_loss, reason = "a thousand seconds")]
    let wanted = mean * rates.len() as f64;
    for _ in 0..50 {
        let factor = wanted / rates.iter().sum::<f64>().max(1e-9);
        rates.iter_mut().for_each(|rate| *rate = (*rate * factor).min(most));
    }
    rates
}
