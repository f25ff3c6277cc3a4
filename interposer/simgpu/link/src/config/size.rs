//! Sizes as people write them: `40GiB` = `40Gi` = 40 x 2^30, `40G` = `40GB` = 40 x 10^9. A unit is required.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Units with their factors, larger ones first.
const UNITS: [(&str, u64); 9] = [
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("K", 1_000),
    ("", 1),
];

/// Text that is no size.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size: write a whole number of 1 or more with a unit, such as 40GiB, 512MiB or 40G")]
pub struct ParseSize(String);

impl FromStr for Size {
    type Err = ParseSize;

    fn from_str(text: &str) -> Result<Self, ParseSize> {
        let refuse = || ParseSize(text.to_owned());
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(refuse)?;
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start();
        let unit = unit.strip_suffix('B').unwrap_or(unit);
        let factor = UNITS.iter().find(|row| row.0 == unit).ok_or_else(refuse)?.1;
        let number: u64 = number.parse().map_err(|_| refuse())?;
        number.checked_mul(factor).filter(|bytes| *bytes > 0).map(Size).ok_or_else(refuse)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS[..4].iter().find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        match exact {
            Some((unit, factor)) => write!(f, "{}{unit}B", self.0 / factor),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them_and_written_back_exactly() {
        for (text, bytes) in
            [("40GiB", 40 << 30), ("40Gi", 40 << 30), ("40G", 40_000_000_000), ("7B", 7), ("3 MiB", 3 << 20)]
        {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.0, bytes);
            assert_eq!(size.to_string().parse(), Ok(size));
        }
    }

    #[test]
    fn nonsense_is_no_size() {
        for text in ["", "40", "GiB", "-1GiB", "0GiB", "1.5GiB", "40gib", "99999999999999TiB", "4XB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
