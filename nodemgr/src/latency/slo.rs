//! `p95 < 200ms`: which quantile of the requests lies below which bound.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::codes;
use crate::fault::Fault;

/// What an SLO looks like, for help texts.
const EXAMPLE: &str = "write it as `p95 < 200ms`";

/// What a tenant promises its users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// Which quantile, in thousandths: 950 is the 95th percentile.
    pub quantile_permille: u16,
    /// Its bound, in nanoseconds.
    pub target_ns: u64,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, tenth) = (self.quantile_permille / 10, self.quantile_permille % 10);
        let tenth = if tenth == 0 { String::new() } else { format!(".{tenth}") };
        // As people type it, so that it reads back as the same.
        let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
        let whole_in = |ns: &u64| self.target_ns.is_multiple_of(*ns);
        let (unit, ns) = units.into_iter().find(|(_, ns)| whole_in(ns)).unwrap_or(("us", 1_000));
        write!(f, "p{whole}{tenth} < {}{unit}", self.target_ns as f64 / ns as f64)
    }
}

/// Reads an SLO.
///
/// # Errors
/// [`codes::SLO`].
pub fn parse(text: &str) -> Result<Promise, Fault> {
    let wrong =
        |why: &str| Fault::new(&codes::SLO, format!("`{}` is no SLO: {why}", text.escape_debug()), EXAMPLE);
    let (quantile, bound) = text.split_once('<').ok_or_else(|| wrong("there is no `<` in it"))?;
    if bound.starts_with('=') {
        return Err(wrong("only `<` can be promised"));
    }
    let quantile_permille =
        permille(quantile.trim()).ok_or_else(|| wrong("it must begin with p1 to p99.9"))?;
    let target_ns = duration(bound.trim()).ok_or_else(|| {
        wrong("its bound is no duration: a number above zero with us, ms or s, and at most an hour")
    })?;
    Ok(Promise { quantile_permille, target_ns })
}

/// `p95` is 950, `p99.9` 999.
fn permille(text: &str) -> Option<u16> {
    let digits = text.strip_prefix(['p', 'P'])?;
    let (whole, tenth) = digits.split_once('.').unwrap_or((digits, "0"));
    let number = |text: &str, longest: usize| {
        let plain = !text.is_empty() && text.len() <= longest && text.bytes().all(|c| c.is_ascii_digit());
        plain.then(|| text.parse::<u16>().ok()).flatten()
    };
    let permille = number(whole, 2)? * 10 + number(tenth, 1)?;
    (10..=999).contains(&permille).then_some(permille)
}

/// In nanoseconds.
fn duration(text: &str) -> Option<u64> {
    let units = [("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, unit) = units.iter().find_map(|(name, ns)| Some((text.strip_suffix(name)?, *ns)))?;
    let number = number.trim_end();
    let plain = number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let ns = number.parse::<f64>().ok().filter(|_| plain)? * unit;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between one and an hour's nanoseconds"
    )]
    (1.0..=3.6e12).contains(&ns).then_some(ns as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_quantile_and_the_bound_are_what_is_written() {
        let read = |text| parse(text).map(|p| (p.quantile_permille, p.target_ns)).map_err(|f| f.code);
        assert_eq!(read("p95 < 200ms"), Ok((950, 200_000_000)));
        assert_eq!(read("p99.9<1.5 s"), Ok((999, 1_500_000_000)));
        assert_eq!(read("p50 < 40us"), Ok((500, 40_000)));
        for wrong in [
            "",
            "p95",
            "95 < 1ms",
            "p0 < 1ms",
            "p100 < 1ms",
            "p99.99 < 1ms",
            "p95 > 1ms",
            "p95 <= 1ms",
            "p95 < 1",
            "p95 < -1ms",
            "p95 < 0ms",
            "p95 < 1e3ms",
            "p95 < nanms",
            "p95 < 2h",
            "p95 < 3601s",
        ] {
            assert_eq!(read(wrong), Err("W0114".into()), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(quantile_permille in 10u16..=999, ms in 1u64..3_600_000) {
            let promise = Promise { quantile_permille, target_ns: ms * 1_000_000 };
            prop_assert_eq!(parse(&promise.to_string()).unwrap(), promise);
        }

        #[test]
        fn no_text_harms_the_reader(text in ".{0,40}") {
            let _ = parse(&text);
        }
    }
}
