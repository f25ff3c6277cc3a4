//! Units as types. Inside the project a number of nanoseconds, bytes or thousandths never travels bare; at an
//! edge (flag, JSON, log field, shared page) the *name* carries the unit instead.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A duration or a time stamp in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nanos(pub u64);

impl Nanos {
    /// `n` microseconds.
    pub const fn from_micros(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn from_millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later (clocks of two CPUs may differ a little).
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// An amount of SM time: one token is one nanosecond of the *whole* GPU. Negative: a debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tokens(pub i64);

/// A part of one GPU's SM time in thousandths: `SmShare::percent(60)` is 600. Never above 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SmShare(u16);

impl SmShare {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The whole GPU.
    pub const FULL: Self = Self(1000);

    /// `percent` of the GPU, cut at 100.
    pub const fn percent(percent: u16) -> Self {
        Self::permille(percent.saturating_mul(10))
    }

    /// `permille` thousandths of the GPU, cut at 1000.
    pub const fn permille(permille: u16) -> Self {
        Self(if permille > 1000 { 1000 } else { permille })
    }

    /// In thousandths, 0..=1000.
    pub const fn as_permille(self) -> u16 {
        self.0
    }

    /// In percent, 0.0..=100.0.
    pub fn as_percent(self) -> f64 {
        f64::from(self.0) / 10.0
    }

    /// This share of `period`: nanoseconds of SM time, rounded down.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a share is at most one, so the product is at most `period`"
    )]
    pub const fn of(self, period: Nanos) -> Nanos {
        Nanos((period.0 as u128 * self.0 as u128 / 1000) as u64)
    }
}

/// An amount of memory in bytes. Printed in GiB, MiB or KiB, always with the unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
}

/// Bytes per second. Zero stands for *unlimited*: under a limit of nothing no copy would ever end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bandwidth(pub u64);

impl Bandwidth {
    /// No limit.
    pub const UNLIMITED: Self = Self(0);

    /// Whether this is a limit at all.
    pub const fn is_limited(self) -> bool {
        self.0 != 0
    }

    /// Whether whoever has this may copy no more than whoever has `other`.
    pub const fn is_within(self, other: Self) -> bool {
        !other.is_limited() || (self.is_limited() && self.0 <= other.0)
    }
}

/// Why a text is not a size or a share. `Display` says what was wrong; [`Self::hint`] what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Nothing was given.
    #[error("a {what} is missing: the text is empty")]
    Empty {
        /// `size`, `share` or `bandwidth`.
        what: &'static str,
    },
    /// The part before the unit is no plain decimal number.
    #[error("`{text}` is not a {what}: `{number}` is not a number")]
    Number {
        /// `size`, `share` or `bandwidth`.
        what: &'static str,
        /// The whole text.
        text: String,
        /// The part that should be a number.
        number: String,
    },
    /// The unit is absent.
    #[error("`{text}` is not a {what}: it has no unit")]
    NoUnit {
        /// `size`, `share` or `bandwidth`.
        what: &'static str,
        /// The whole text.
        text: String,
    },
    /// The unit is not one that we know.
    #[error("`{text}` is not a {what}: unknown unit `{unit}`")]
    Unit {
        /// `size`, `share` or `bandwidth`.
        what: &'static str,
        /// The whole text.
        text: String,
        /// The unit as written.
        unit: String,
    },
    /// The value lies outside of the range.
    #[error("`{text}` is out of range: a {what} lies between {range}")]
    Range {
        /// `size`, `share` or `bandwidth`.
        what: &'static str,
        /// The whole text.
        text: String,
        /// The range, in words.
        range: &'static str,
    },
}

impl UnitError {
    /// What to write instead.
    pub fn hint(&self) -> &'static str {
        match self.what() {
            "share" => "write a percentage with its sign, such as `30%` or `12.5%`",
            "bandwidth" => "write `4GiB/s` (4 x 2^30 bytes each second), `500MB/s`, or `unlimited`",
            _ => "write `40GiB` (40 x 2^30 bytes) or `40G` (40 x 10^9 bytes)",
        }
    }

    fn what(&self) -> &'static str {
        match self {
            Self::Empty { what }
            | Self::Number { what, .. }
            | Self::NoUnit { what, .. }
            | Self::Unit { what, .. }
            | Self::Range { what, .. } => what,
        }
    }
}

/// Splits `30GiB` into `30` and `GiB`.
fn split_number<'a>(what: &'static str, text: &'a str) -> Result<(&'a str, &'a str), UnitError> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(UnitError::Empty { what });
    }
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let plain = !number.is_empty() && number.matches('.').count() <= 1 && number != ".";
    if plain {
        return Ok((number, unit.trim()));
    }
    Err(UnitError::Number { what, text: text.into(), number: trimmed.into() })
}

/// `number` x `unit`, exact in integers: `whole.fraction` is scaled without going through floating point.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = fraction.get(..fraction.len().min(18))?;
    let parse = |s: &str| if s.is_empty() { Some(0) } else { s.parse::<u128>().ok() };
    let scale = 10u128.pow(u32::try_from(digits.len()).ok()?);
    parse(whole)?.checked_mul(unit)?.checked_add(parse(digits)?.checked_mul(unit)? / scale)
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const WHAT: &str = "size";
        let (number, unit) = split_number(WHAT, text)?;
        let unit: u128 = match unit {
            "B" => 1,
            "K" | "KB" => 1_000,
            "M" | "MB" => 1_000_000,
            "G" | "GB" => 1_000_000_000,
            "T" | "TB" => 1_000_000_000_000,
            "Ki" | "KiB" => 1 << 10,
            "Mi" | "MiB" => 1 << 20,
            "Gi" | "GiB" => 1 << 30,
            "Ti" | "TiB" => 1 << 40,
            "" => return Err(UnitError::NoUnit { what: WHAT, text: text.into() }),
            unit => return Err(UnitError::Unit { what: WHAT, text: text.into(), unit: unit.into() }),
        };
        let range =
            || UnitError::Range { what: WHAT, text: text.into(), range: "1B and 8191PiB (2^63 - 1 bytes)" };
        let bytes = scaled(number, unit).ok_or_else(range)?;
        match u64::try_from(bytes) {
            Ok(bytes) if (1..=i64::MAX as u64).contains(&bytes) => Ok(Self(bytes)),
            _ => Err(range()),
        }
    }
}

impl FromStr for Bandwidth {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const WHAT: &str = "bandwidth";
        if text.trim() == "unlimited" {
            return Ok(Self::UNLIMITED);
        }
        let (_, unit) = split_number(WHAT, text)?;
        let Some(size) = text.trim().strip_suffix("/s") else {
            let (text, unit) = (text.into(), unit.into());
            return Err(UnitError::Unit { what: WHAT, text, unit });
        };
        let bytes: Bytes = size.parse().map_err(|error| match error {
            UnitError::Range { .. } => {
                UnitError::Range { what: WHAT, text: text.into(), range: "1B/s and 8191PiB/s" }
            }
            _ => UnitError::Unit { what: WHAT, text: text.into(), unit: unit.into() },
        })?;
        Ok(Self(bytes.0))
    }
}

impl FromStr for SmShare {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const WHAT: &str = "share";
        let (number, unit) = split_number(WHAT, text)?;
        match unit {
            "%" => {}
            "" => return Err(UnitError::NoUnit { what: WHAT, text: text.into() }),
            unit => return Err(UnitError::Unit { what: WHAT, text: text.into(), unit: unit.into() }),
        }
        let permille = scaled(number, 10).unwrap_or(u128::MAX);
        let finer = number.split_once('.').map_or("", |(_, fraction)| fraction.get(1..).unwrap_or_default());
        let exact = finer.bytes().all(|digit| digit == b'0');
        match u16::try_from(permille) {
            Ok(permille) if permille <= 1000 && exact => Ok(Self(permille)),
            _ => Err(UnitError::Range {
                what: WHAT,
                text: text.into(),
                range: "0% and 100%, in steps of 0.1%",
            }),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            n if n >= 1 << 30 => (1u64 << 30, "GiB"),
            n if n >= 1 << 20 => (1 << 20, "MiB"),
            n if n >= 1 << 10 => (1 << 10, "KiB"),
            n => return write!(f, "{n} B"),
        };
        if self.0.is_multiple_of(unit) {
            return write!(f, "{} {name}", self.0 / unit);
        }
        write!(f, "{:.1} {name}", self.0 as f64 / unit as f64)
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_limited() { write!(f, "{}/s", Bytes(self.0)) } else { f.write_str("unlimited") }
    }
}

impl fmt::Display for SmShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.as_percent())
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1_000_000_000 => write!(f, "{:.2} s", n as f64 / 1e9),
            n if n >= 1_000_000 => write!(f, "{:.2} ms", n as f64 / 1e6),
            n if n >= 1_000 => write!(f, "{:.1} us", n as f64 / 1e3),
            n => write!(f, "{n} ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_mean_what_they_say() {
        assert_eq!("40GiB".parse(), Ok(Bytes::gib(40)));
        assert_eq!("40Gi".parse(), Ok(Bytes::gib(40)));
        assert_eq!("40G".parse(), Ok(Bytes(40_000_000_000)));
        assert_eq!("1.5GiB".parse(), Ok(Bytes(3 << 29)));
        assert_eq!(" 512 MiB ".parse(), Ok(Bytes::mib(512)));
        assert_eq!("9223372036854775807B".parse(), Ok(Bytes(i64::MAX as u64)));
    }

    #[test]
    fn a_size_that_is_none_is_refused() {
        for text in
            ["40Q", "-1G", "1e400", "", "nan", "9223372036854775808B", "40", "0GiB", ".", "1.2.3G", "inf"]
        {
            let error = text.parse::<Bytes>().expect_err(text);
            assert!(error.hint().contains("40GiB"), "{text}: {error}");
        }
    }

    #[test]
    fn a_share_needs_its_percent_sign_and_its_range() {
        assert_eq!("30%".parse(), Ok(SmShare::percent(30)));
        assert_eq!("12.5 %".parse(), Ok(SmShare::permille(125)));
        assert_eq!("100%".parse(), Ok(SmShare::FULL));
        for text in ["50", "0.5", "101%", "-1%", "12.55%", "12.50000001%", "nan%", "", "%", "1e2%"] {
            assert!(text.parse::<SmShare>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bandwidth_is_a_size_each_second() {
        assert_eq!("4GiB/s".parse(), Ok(Bandwidth(4 << 30)));
        assert_eq!("1.5 GB/s".parse(), Ok(Bandwidth(1_500_000_000)));
        assert_eq!("unlimited".parse(), Ok(Bandwidth::UNLIMITED));
        for text in ["4GiB", "4/s", "0GiB/s", "", "4GiB/min", "-1GiB/s", "/s", "nan/s"] {
            let error = text.parse::<Bandwidth>().expect_err(text);
            assert!(error.hint().contains("4GiB/s"), "{text}: {error}");
        }
        for bandwidth in [Bandwidth::UNLIMITED, Bandwidth(1), Bandwidth(3 << 29)] {
            assert_eq!(bandwidth.to_string().parse(), Ok(bandwidth));
        }
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        for bytes in [Bytes(1), Bytes::mib(512), Bytes::gib(40), Bytes(1536 << 20)] {
            assert_eq!(bytes.to_string().parse(), Ok(bytes));
        }
        for permille in 0..=1000 {
            let share = SmShare::permille(permille);
            assert_eq!(share.to_string().parse(), Ok(share));
        }
    }

    #[test]
    fn a_share_of_a_period_never_overflows() {
        assert_eq!(SmShare::percent(60).of(Nanos::from_millis(1)), Nanos(600_000));
        assert_eq!(SmShare::FULL.of(Nanos(u64::MAX)), Nanos(u64::MAX));
    }
}
