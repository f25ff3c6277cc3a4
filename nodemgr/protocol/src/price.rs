//! The price table: what a kernel costs before Weir has measured it.
//!
//! One row names kernels by a pattern and gives their GPU time. The node manager reads the rows from its
//! configuration and hands them to each process in [`Welcome`](crate::message::Welcome): a price is a matter of
//! budgets, so it comes from the same place as they do, never from the environment.

use serde::{Deserialize, Serialize};

/// One row: kernels whose name matches `name` cost `time_us`, or `ns_per_block` for each block of their grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PriceRow {
    /// Kernel name; `*` stands for any run of characters.
    pub name: String,
    /// GPU time of one launch, in microseconds, whatever the grid.
    #[serde(default)] // never skipped: the wire format is positional
    pub time_us: Option<f64>,
    /// GPU time for each block of the grid, in nanoseconds.
    #[serde(default)] // never skipped: the wire format is positional
    pub ns_per_block: Option<f64>,
}

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
        let row = |name: &str, us| PriceRow { name: name.into(), time_us: Some(us), ns_per_block: None };
        let rows = [row("add*", 5.0), row("*", 100.0)];
        assert_eq!(find(&rows, "add_f32").and_then(|r| r.price(7)), Some(5_000));
        assert_eq!(find(&rows, "mul").and_then(|r| r.price(7)), Some(100_000));
    }

    #[test]
    fn a_price_that_is_no_number_is_no_price() {
        let row = PriceRow { name: "*".into(), time_us: Some(f64::NAN), ns_per_block: None };
        assert_eq!(row.price(1), None);
    }
}
