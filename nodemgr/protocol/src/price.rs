//! The price table: what a kernel costs before Weir has measured it, and what nothing that Weir sees ever tells: the bandwidth
//! that it takes.
//!
//! One row names kernels by a pattern and gives their GPU time, their part of the bandwidth, or both. The node manager reads the rows from its
//! configuration and hands them to each process in [`Welcome`](crate::message::Welcome): a price is a matter of
//! budgets, so it comes from the same place as they do, never from the environment.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// One row: kernels whose name matches `name` cost `time_us`, or `ns_per_block` for each block of their grid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PriceRow {
    /// Kernel name; `*` stands for any run of characters.
    pub name: String,
    /// GPU time of one launch, in microseconds, whatever the grid.
    #[serde(default)] // never skipped: the wire format is positional
    pub time_us: Option<f64>,
    /// GPU time for each block of the grid, in nanoseconds.
    #[serde(default)] // never skipped: the wire format is positional
    pub ns_per_block: Option<f64>,
    /// Part of the device memory's bandwidth that one launch takes by itself, in percent: where kernels of several tenants run at
    /// once it holds the GPU by that, if it is more than by its blocks (gpu-truths, rule 12).
    #[serde(default)] // never skipped: the wire format is positional
    pub bandwidth_percent: Option<f64>,
}

/// Of a bandwidth.
const PERCENT: RangeInclusive<f64> = 0.0..=100.0;

impl PriceRow {
    /// The price in tokens of a launch of `blocks` blocks; `None` if the row states no finite price.
    #[allow(clippy::cast_possible_truncation, reason = "a float beyond the range of u64 saturates")]
    pub fn price(&self, blocks: u64) -> Option<u64> {
        let ns = match (self.time_us, self.ns_per_block) {
            (Some(us), _) => us * 1e3,
            (None, Some(per_block)) => per_block * blocks as f64,
            (None, None) => return None,
        };
        // NaN fails the comparison.
        (ns >= 0.0).then_some(ns as u64)
    }

    /// Part of the memory's bandwidth, 1 being all of it; nothing of it unless the row says so.
    pub fn bandwidth(&self) -> f64 {
        self.bandwidth_percent.filter(|percent| PERCENT.contains(percent)).unwrap_or(0.0) / 100.0
    }

    /// Whether the row says anything, and nothing that cannot be.
    pub fn makes_sense(&self) -> bool {
        let priced = self.time_us.is_some() || self.ns_per_block.is_some();
        let bandwidth = self.bandwidth_percent;
        (priced || bandwidth.is_some())
            && (!priced || self.price(1).is_some())
            && bandwidth.is_none_or(|percent| PERCENT.contains(&percent))
    }
}

/// The first row that matches `kernel`, as in a firewall: specific rows stand first.
pub fn find<'a>(rows: &'a [PriceRow], kernel: &str) -> Option<&'a PriceRow> {
    rows.iter().find(|row| matches(&row.name, kernel))
}

/// Whether `name` matches `pattern`, in which `*` stands for any run of characters. Linear in the usual case,
/// never exponential: only the last `*` is ever tried again.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None; // (just behind the last `*`, where its run ends)
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                retry = Some((p, n));
            }
            Some(c) if *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((star, end)) => {
                    p = star;
                    n = end + 1;
                    retry = Some((star, end + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        assert!(matches("gemm_*_tn", "gemm_128x64_tn"));
        assert!(matches("*", ""));
        assert!(matches("a*b*c", "aXXbYYbZc"));
        assert!(!matches("gemm", "gemm2"));
        assert!(!matches("a*b", "acd"));
    }

    #[test]
    fn the_first_matching_row_holds() {
        let row = |name: &str, us| PriceRow { name: name.into(), time_us: Some(us), ..PriceRow::default() };
        let rows = [row("add*", 5.0), row("*", 100.0)];
        assert_eq!(find(&rows, "add_f32").and_then(|r| r.price(7)), Some(5_000));
        assert_eq!(find(&rows, "mul").and_then(|r| r.price(7)), Some(100_000));
    }

    #[test]
    fn a_price_that_is_no_number_is_no_price() {
        let row = PriceRow { name: "*".into(), time_us: Some(f64::NAN), ..PriceRow::default() };
        assert_eq!(row.price(1), None);
        assert!(!row.makes_sense());
    }

    #[test]
    fn a_row_may_tell_of_bandwidth_alone() {
        let row = |bandwidth_percent| PriceRow { name: "*".into(), bandwidth_percent, ..PriceRow::default() };
        let told = row(Some(80.0));
        assert_eq!((told.bandwidth(), told.price(1), told.makes_sense()), (0.8, None, true));
        assert_eq!(row(None).bandwidth(), 0.0);
        for wrong in [None, Some(101.0), Some(-1.0), Some(f64::NAN)] {
            assert!(!row(wrong).makes_sense(), "{wrong:?}");
        }
    }
}
