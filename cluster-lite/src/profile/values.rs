//! Values as they stand in a profile: each is checked where it is read, so that the error points at its line.

use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};
use weir_protocol::units::{Bytes, SmShare, UnitError};

/// Largest number that a profile may hold, in any unit: what is more was never measured.
const MOST: f64 = 1e15;

fn unit<E: de::Error>(error: &UnitError) -> E {
    E::custom(format!("{error}: {}", error.hint()))
}

/// A share, such as `"30%"`.
pub mod share {
    use super::*;

    /// Reads one.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SmShare, D::Error> {
        String::deserialize(from)?.parse().map_err(|error| unit(&error))
    }

    /// Writes one.
    pub fn serialize<S: Serializer>(share: &SmShare, to: S) -> Result<S::Ok, S::Error> {
        format!("{}%", share.as_percent()).serialize(to)
    }
}

/// A size, such as `"5GiB"`.
pub mod size {
    use super::*;

    /// Reads one.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        String::deserialize(from)?.parse().map_err(|error| unit(&error))
    }

    /// Writes one: rounded to MiB beyond a MiB, which nobody measures better.
    pub fn serialize<S: Serializer>(size: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        let rounded = if size.0 < 1 << 20 { *size } else { Bytes(size.0.div_ceil(1 << 20) << 20) };
        let exact = [(30, "GiB"), (20, "MiB")].iter().find(|(bits, _)| rounded.0.is_multiple_of(1 << bits));
        match exact {
            Some((bits, name)) => format!("{}{name}", rounded.0 >> bits).serialize(to),
            None => format!("{}B", rounded.0).serialize(to),
        }
    }
}

/// A part of one, 0 to 1.
pub fn part<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    within(from, |value| (0.0..=1.0).contains(&value), "a part of one, 0 to 1")
}

/// A number above zero.
pub fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    within(from, |value| value > 0.0 && value <= MOST, "a number above zero")
}

/// A number of zero or more.
pub fn amount<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    within(from, |value| (0.0..=MOST).contains(&value), "a number of zero or more")
}

/// The same, or nothing.
pub fn positive_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    positive(from).map(Some)
}

/// The same of parts.
pub fn part_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    part(from).map(Some)
}

/// A batch: 1 to a million.
pub fn batch<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let value = i64::deserialize(from)?;
    let batch = u32::try_from(value).ok().filter(|batch| (1..=1_000_000).contains(batch));
    batch.ok_or_else(|| de::Error::custom(format!("{value} is not a batch, 1 to 1000000")))
}

/// The same, or nothing.
pub fn batch_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    batch(from).map(Some)
}

/// A day, such as `"2026-11-25"`.
pub fn day<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if is_day(&text) {
        return Ok(text);
    }
    Err(de::Error::custom(format!("`{text}` is not a day such as `2026-11-25`")))
}

/// Four digits, a month, a day of it: no calendar, since nobody computes with it.
fn is_day(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let number = |text: &str, digits: usize| {
        let plain = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_digit());
        plain.then(|| text.parse::<u16>().ok()).flatten()
    };
    number(year, 4).is_some()
        && number(month, 2).is_some_and(|month| (1..=12).contains(&month))
        && number(day, 2).is_some_and(|day| (1..=31).contains(&day))
}

fn within<'de, D: Deserializer<'de>>(
    from: D,
    holds: impl Fn(f64) -> bool,
    what: &str,
) -> Result<f64, D::Error> {
    let value = f64::deserialize(from)?;
    if holds(value) { Ok(value) } else { Err(de::Error::custom(format!("{value} is not {what}"))) }
}
