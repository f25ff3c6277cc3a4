//! The triangular factor L of a covariance matrix L x L', grown by one row for each measurement.
//!
//! A linear-algebra crate factors a matrix once; here rows arrive one at a time, and one more costs n^2 / 2 multiplications
//! instead of n^3 / 6.

/// Rows of the lower triangle.
#[derive(Clone, Debug, Default)]
pub(super) struct Factor {
    rows: Vec<Vec<f64>>,
}

impl Factor {
    /// Adds the measurement whose covariance with each earlier one is `column` and with itself `own`. False, and nothing is
    /// added, if the earlier ones determine it wholly.
    pub(super) fn push(&mut self, column: &[f64], own: f64) -> bool {
        let mut row = self.forward(column);
        let left = own - dot(&row, &row);
        if left <= own * 1e-12 {
            return false;
        }
        row.push(left.sqrt());
        self.rows.push(row);
        true
    }

    /// The z of L z = y.
    pub(super) fn forward(&self, y: &[f64]) -> Vec<f64> {
        let mut z = Vec::with_capacity(y.len() + 1);
        for (row, value) in self.rows.iter().zip(y) {
            let at = z.len();
            z.push((value - dot(&row[..at], &z)) / row[at]);
        }
        z
    }

    /// The x of L L' x = y.
    pub(super) fn solve(&self, y: &[f64]) -> Vec<f64> {
        let mut x = self.forward(y);
        for (at, row) in self.rows.iter().enumerate().rev() {
            x[at] /= row[at];
            let known = x[at];
            for (earlier, factor) in x[..at].iter_mut().zip(row) {
                *earlier -= factor * known;
            }
        }
        x
    }

    /// Half the logarithm of the determinant of L L'.
    pub(super) fn half_log_determinant(&self) -> f64 {
        self.rows.iter().enumerate().map(|(at, row)| row[at].ln()).sum()
    }
}

/// In four lanes, since one sum waits for each addition.
fn dot(one: &[f64], other: &[f64]) -> f64 {
    let mut lanes = [0.0; 4];
    let (quads, rest) = (one.chunks_exact(4), one.chunks_exact(4).remainder());
    let tail: f64 = rest.iter().rev().zip(other[..one.len()].iter().rev()).map(|(a, b)| a * b).sum();
    for (a, b) in quads.zip(other.chunks_exact(4)) {
        for lane in 0..4 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    lanes.iter().sum::<f64>() + tail
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covariances of five points under a likeness of e^-|i - j|, and a little noise.
    fn covariance(i: usize, j: usize) -> f64 {
        (-(i.abs_diff(j) as f64)).exp() + if i == j { 0.1 } else { 0.0 }
    }

    fn factor(count: usize) -> Factor {
        let mut factor = Factor::default();
        for i in 0..count {
            let column: Vec<_> = (0..i).map(|j| covariance(i, j)).collect();
            assert!(factor.push(&column, covariance(i, i)));
        }
        factor
    }

    #[test]
    fn a_solution_multiplied_again_is_what_was_given() {
        for count in [1, 4, 5, 23] {
            let y: Vec<_> = (0..count).map(|i| (i as f64).sin()).collect();
            let x = factor(count).solve(&y);
            for (i, given) in y.iter().enumerate() {
                let again: f64 = (0..count).map(|j| covariance(i, j) * x[j]).sum();
                assert!((again - given).abs() < 1e-12, "row {i} of {count}");
            }
        }
    }

    #[test]
    fn a_row_that_the_others_determine_is_not_taken() {
        let mut factor = Factor::default();
        assert!(factor.push(&[], 1.0));
        assert!(!factor.push(&[1.0], 1.0));
        assert_eq!(factor.rows.len(), 1);
    }
}
