//! Sizes in the configuration: [`Bytes`], written as people write them (`memory = "40GiB"`), with a unit always.

use serde::{Deserialize, Deserializer, Serializer, de};
use weir_protocol::units::Bytes;

/// Writes a size with its largest unit, if that is exact, and else in bytes: what is read back is the same.
pub fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    let text = bytes.to_string();
    if text.parse() == Ok(*bytes) {
        to.serialize_str(&text)
    } else {
        to.collect_str(&format_args!("{}B", bytes.0))
    }
}

/// Reads a size. The error says what was wrong and what to write instead; TOML adds line and key.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    let text = String::deserialize(from)?;
    text.parse::<Bytes>().map_err(|why| de::Error::custom(format_args!("{why}\nhelp: {}", why.hint())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_size_is_read_back_exactly() {
        for bytes in [1, 7, 1 << 20, (1 << 20) + 1, 40 << 30, 3 << 29, 40_000_000_000] {
            let json = serialize(&Bytes(bytes), serde_json::value::Serializer).unwrap();
            assert_eq!(deserialize(json).unwrap(), Bytes(bytes));
        }
    }
}
