//! Noise: kernels take a little more or less than they should, each by itself, and all together for a while.
//!
//! Nothing here has a state: the same place and the same moment give the same number in every run.

use crate::Nanos;

/// How far the times of kernels stray: standard deviations, millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Each kernel by itself.
    pub independent_ppm: u32,
    /// Those of a time together: half of it lasts for [`SHORT`], half for [`LONG`].
    pub correlated_ppm: u32,
}

/// How long the two parts of correlated noise last, ns: clocks that follow the load, and temperature.
const SHORT: Nanos = 20_000_000;
const LONG: Nanos = 5_000_000_000;
/// No kernel takes less than this part of its time, millionths.
const LEAST_PPM: i64 = 500_000;
/// Sets the series of random numbers apart.
const EACH: u64 = 1;
const SHORTLY: u64 = 2;
const LONG_LASTING: u64 = 3;

impl Noise {
    /// None: times are exact.
    pub const NONE: Self = Self { independent_ppm: 0, correlated_ppm: 0 };

    /// What `solo` becomes for the `nth` kernel of a device, which is submitted at `at`.
    pub(crate) fn on(self, solo: Nanos, nth: u64, at: Nanos) -> Nanos {
        if self == Self::NONE {
            return solo;
        }
        let together = i64::from(self.correlated_ppm) * 1_000 / ROOT_OF_TWO;
        let ppm = i64::from(self.independent_ppm) * normal(EACH, nth)
            + together * (normal(SHORTLY, at / SHORT) + normal(LONG_LASTING, at / LONG));
        let factor = (1_000_000 + ppm / SIGMA).max(LEAST_PPM);
        let noisy = u128::from(solo) * u128::from(factor.unsigned_abs()) / 1_000_000;
        u64::try_from(noisy).unwrap_or(solo).max(1)
    }
}

/// The root of two, thousandths: two parts of equal size make one of this.
const ROOT_OF_TWO: i64 = 1_414;
/// One standard deviation of [`normal`].
const SIGMA: i64 = 1_000;
/// The standard deviation of a sum of four 16-bit numbers: 2^16 x sqrt(4 / 12).
const OF_FOUR: i64 = 37_837;
/// Twice the mean of such a sum.
const TWICE_MEAN: i64 = 4 * 65_535;

/// The `nth` number of a series, nearly normal, thousandths of a standard deviation (Irwin-Hall, four terms).
fn normal(series: u64, nth: u64) -> i64 {
    let bits = splitmix(nth.wrapping_mul(4).wrapping_add(series));
    let sum: i64 = (0..4).map(|word| (bits >> (16 * word) & 0xffff).cast_signed()).sum();
    (2 * sum - TWICE_MEAN) * SIGMA / (2 * OF_FOUR)
}

/// Source: Steele et al., Fast splittable pseudorandom number generators.
fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOLO: Nanos = 1_000_000;

    fn deviation(times: &[Nanos]) -> f64 {
        let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
        let squares: f64 = times.iter().map(|time| (*time as f64 - mean).powi(2)).sum();
        (squares / times.len() as f64).sqrt() / mean
    }

    #[test]
    fn kernels_stray_by_themselves_as_far_as_is_asked() {
        let noise = Noise { independent_ppm: 30_000, correlated_ppm: 0 };
        let times: Vec<_> = (0..10_000).map(|nth| noise.on(SOLO, nth, 0)).collect();
        assert!((0.029..0.031).contains(&deviation(&times)), "{}", deviation(&times));
    }

    #[test]
    fn those_of_one_time_stray_together() {
        let noise = Noise { independent_ppm: 0, correlated_ppm: 50_000 };
        let times: Vec<_> = (0..4_000).map(|n| noise.on(SOLO, n, n * SHORT)).collect();
        assert_eq!(noise.on(SOLO, 1, 0), noise.on(SOLO, 2, SHORT - 1));
        assert!((0.04..0.06).contains(&deviation(&times)), "{}", deviation(&times));
    }
}
