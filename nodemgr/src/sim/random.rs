//! Numbers that look random and come again with the same seed. Our own, so that no update of a crate changes what a seed
//! means.

use std::f64::consts::TAU;

/// SplitMix64 (Steele et al. 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream of its own for the `part`th user of one seed: what one tenant draws changes nothing for another.
    pub fn new(seed: u64, part: u64) -> Self {
        let mut random = Self(seed);
        let first = random.next();
        Self(first ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Above 0 and at most 1.
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponential, of this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    /// Standard normal (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (TAU * self.unit()).cos()
    }

    /// Gamma of this mean and coefficient of variation (Marsaglia and Tsang 2000); without variation the mean itself.
    pub fn gamma(&mut self, mean: f64, cv: f64) -> f64 {
        if cv <= 0.0 {
            return mean;
        }
        let shape = 1.0 / (cv * cv);
        // Below a shape of one: a draw of shape + 1, scaled down (section 6 of the paper).
        let (shape_up, scale_down) =
            if shape < 1.0 { (shape + 1.0, self.unit().powf(1.0 / shape)) } else { (shape, 1.0) };
        let d = shape_up - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let normal = self.normal();
            let v = (1.0 + c * normal).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * normal * normal + d - d * v + d * v.ln() {
                return d * v * scale_down * mean / shape;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_mean_and_the_variation_that_were_asked_for() {
        for (cv, draw) in [
            (1.0, Box::new(|r: &mut Random| r.exponential(3.0)) as Box<dyn Fn(&mut Random) -> f64>),
            (0.5, Box::new(|r: &mut Random| r.gamma(3.0, 0.5))),
            (2.0, Box::new(|r: &mut Random| r.gamma(3.0, 2.0))),
        ] {
            let mut random = Random::new(7, 1);
            let draws: Vec<f64> = (0..200_000).map(|_| draw(&mut random)).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
            assert!((mean - 3.0).abs() < 0.06, "mean {mean} at a variation of {cv}");
            assert!((variance.sqrt() / mean - cv).abs() < 0.04, "{} and not {cv}", variance.sqrt() / mean);
        }
    }

    #[test]
    fn two_users_of_one_seed_draw_different_numbers() {
        let draw = |seed, part| Random::new(seed, part).unit();
        assert!(draw(1, 1) != draw(1, 2) && draw(1, 1) != draw(2, 1));
        assert!((draw(1, 1) - draw(1, 1)).abs() < f64::EPSILON);
    }
}
