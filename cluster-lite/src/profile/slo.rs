//! `p95 < 40ms`: which quantile of the latencies lies below which bound. Written as `weir run --slo` takes it.

use std::fmt;
use std::str::FromStr;

use serde::de;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_protocol::units::Nanos;

use crate::fault::{Fault, USAGE};

/// Longest bound, in nanoseconds: an hour.
const LONGEST_NS: f64 = 3.6e12;

/// What a tenant promises its users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    /// Which quantile, in thousandths: 950 is the 95th percentile.
    pub quantile_permille: u16,
    /// Its bound.
    pub bound: Nanos,
}

impl Slo {
    /// The bound in milliseconds.
    pub fn bound_ms(&self) -> f64 {
        self.bound.0 as f64 / 1e6
    }

    /// The quantile as a part of one.
    pub fn quantile(&self) -> f64 {
        f64::from(self.quantile_permille) / 1000.0
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
        let whole = units.into_iter().find(|(_, ns)| self.bound.0.is_multiple_of(*ns));
        let (unit, ns): (_, u64) = whole.unwrap_or(("us", 1_000));
        let (quantile, bound) = (f64::from(self.quantile_permille) / 10.0, self.bound.0 as f64 / ns as f64);
        write!(f, "p{quantile} < {bound}{unit}")
    }
}

impl FromStr for Slo {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let wrong = |why: &str| {
            let message = format!("`{}` is no SLO: {why}", text.escape_debug());
            Fault::new(message, "write it as `p95 < 200ms`").exit(USAGE)
        };
        let (quantile, bound) = text.split_once('<').ok_or_else(|| wrong("there is no `<` in it"))?;
        let quantile_permille =
            permille(quantile.trim()).ok_or_else(|| wrong("it must begin with p1 to p99.9"))?;
        let bound = duration(bound.trim())
            .ok_or_else(|| wrong("its bound is no duration above zero with us, ms or s, at most an hour"))?;
        Ok(Self { quantile_permille, bound })
    }
}

/// `p95` is 950, `p99.9` 999.
fn permille(text: &str) -> Option<u16> {
    let (whole, tenth) = text.strip_prefix('p')?.split_once('.').unwrap_or((text.strip_prefix('p')?, "0"));
    let number = |text: &str, longest: usize| {
        let plain = !text.is_empty() && text.len() <= longest && text.bytes().all(|c| c.is_ascii_digit());
        plain.then(|| text.parse::<u16>().ok()).flatten()
    };
    let permille = number(whole, 2)? * 10 + number(tenth, 1)?;
    (10..=999).contains(&permille).then_some(permille)
}

fn duration(text: &str) -> Option<Nanos> {
    let units = [("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, unit) =
        units.iter().find_map(|(name, ns)| Some((text.strip_suffix(name)?.trim_end(), ns)))?;
    let plain = number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let ns = (number.parse::<f64>().ok().filter(|_| plain)? * unit).round();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between one and an hour")]
    (1.0..=LONGEST_NS).contains(&ns).then_some(Nanos(ns as u64))
}

impl Serialize for Slo {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Slo {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|fault: Fault| de::Error::custom(format!("{}: {}", fault.message, fault.help)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_slo_reads_back_as_it_is_written() {
        for text in ["p95 < 200ms", "p99.9 < 1500ms", "p50 < 40us", "p95 < 2s"] {
            assert_eq!(text.parse::<Slo>().unwrap().to_string(), text);
        }
        assert_eq!("p99<1.5 s".parse::<Slo>().unwrap().to_string(), "p99 < 1500ms");
    }

    #[test]
    fn what_is_no_slo_is_refused_with_an_example() {
        for text in [
            "",
            "p95",
            "p0 < 1ms",
            "p100 < 1ms",
            "p95 < 0ms",
            "p95 < -1ms",
            "p95 < 40",
            "95 < 1ms",
            "p95 < nanms",
            "p95 < infs",
            "p95 < 2h",
            "p95 <= 4ms",
            "p9.55 < 1ms",
            "p95 < 1e3ms",
        ] {
            let fault = text.parse::<Slo>().expect_err(text);
            assert!(fault.help.contains("p95 < 200ms") && fault.exit == USAGE, "{text}: {fault}");
        }
    }
}
