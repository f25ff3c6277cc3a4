//! Requests that are drawn: times from rates or gaps, sizes from a distribution.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Gamma, LogNormal, Pareto, Poisson};
use weir_protocol::units::Nanos;

use super::text::from_seconds;
use super::{Request, Shape, Size, Trace};

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// A Poisson process whose rate has a shape, times `scale`.
    Shaped {
        /// The course.
        shape: Shape,
        /// Seconds, for a steady one.
        seconds: usize,
        /// The factor on its rates; the rate itself for a steady one.
        scale: f64,
    },
    /// Gaps from a gamma distribution: a coefficient of variation of 1 is Poisson, above it bursty.
    Gamma {
        /// Seconds in all.
        seconds: usize,
        /// Requests a second.
        rate: f64,
        /// Standard deviation of the gaps over their mean.
        cv: f64,
    },
}

/// How large requests are, relative to a mean one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizes {
    /// All alike.
    Equal,
    /// Log-normal with this sigma.
    LogNormal(f64),
    /// Pareto with this exponent, above 1; none above a thousand times the mean.
    Pareto(f64),
}

/// Draws a trace. What no distribution has (a rate that is not positive, a cv of 0) gives no requests.
pub fn draw(name: &str, arrivals: Arrivals, sizes: Sizes, random: &mut impl Rng) -> Trace {
    let times = match arrivals {
        Arrivals::Shaped { shape, seconds, scale } => {
            let rates = shape.rates(seconds, random);
            (0..).zip(rates).flat_map(|(second, rate)| within(second, 1.0, rate * scale, random)).collect()
        }
        Arrivals::Gamma { seconds, rate, cv } => gaps(seconds, rate, cv, random),
    };
    let requests =
        times.into_iter().map(|at| Request { at, size: Size::Relative(sizes.draw(random)) }).collect();
    Trace { name: name.into(), requests, left_out: 0 }
}

/// Requests at recorded rates, each rate from its time to the next one's, their sizes drawn from `times` in seconds.
pub fn drawn_from_rates(name: &str, rates: &[(Nanos, f64)], times: &[f64], random: &mut impl Rng) -> Trace {
    let mut requests = Vec::new();
    for pair in rates.windows(2) {
        let (begin, end) = (seconds(pair[0].0), seconds(pair[1].0));
        for at in within(0, end - begin, pair[0].1, random) {
            let size = match times.len() {
                0 => Size::Relative(1.0),
                count => Size::Time(from_seconds(times[random.random_range(0..count)])),
            };
            requests.push(Request { at: Nanos(pair[0].0.0 + at.0), size });
        }
    }
    Trace { name: name.into(), requests, left_out: 0 }
}

/// A Poisson number of times in a stretch, in order.
fn within(begin_s: u32, length_s: f64, rate: f64, random: &mut impl Rng) -> Vec<Nanos> {
    let Ok(count) = Poisson::new(rate * length_s) else { return Vec::new() };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a drawn count of some thousand at most"
    )]
    let count = count.sample(random) as usize;
    let place = |_| from_seconds(f64::from(begin_s) + length_s * random.random_range(0.0..1.0));
    let mut times: Vec<_> = (0..count).map(place).collect();
    times.sort_unstable();
    times
}

fn gaps(seconds: usize, rate: f64, cv: f64, random: &mut impl Rng) -> Vec<Nanos> {
    let shape = 1.0 / (cv * cv);
    let Ok(gap) = Gamma::new(shape, 1.0 / (shape * rate)) else { return Vec::new() };
    #[allow(clippy::cast_precision_loss, reason = "a length in seconds")]
    let end = seconds as f64;
    let mut at = 0.0;
    let mut times = Vec::new();
    loop {
        at += gap.sample(random);
        if at >= end {
            return times;
        }
        times.push(from_seconds(at));
    }
}

impl Sizes {
    /// One size with a mean of 1.
    fn draw(self, random: &mut impl Rng) -> f64 {
        match self {
            Self::Equal => 1.0,
            Self::LogNormal(sigma) => {
                LogNormal::new(-sigma * sigma / 2.0, sigma).map_or(1.0, |sizes| sizes.sample(random))
            }
            Self::Pareto(alpha) => {
                let least = (alpha - 1.0) / alpha;
                Pareto::new(least, alpha).map_or(1.0, |sizes| sizes.sample(random).min(1000.0))
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a trace's times are far below 2^53 ns")]
const fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}
