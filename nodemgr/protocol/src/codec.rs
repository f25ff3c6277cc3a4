//! Bytes to messages and back: bincode 2, here and nowhere else (it is unmaintained; `deny.toml` has the reason
//! why it is used all the same, and this module is what would change).

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest encoded message. A welcome with a price table of 1,000 rows stays below a tenth of it.
pub const MAX_BYTES: usize = 1 << 20;

/// Why bytes are not a message.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The message does not fit.
    #[error("the message is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// The value cannot be encoded.
    #[error("cannot encode the message: {0}")]
    Encode(String),
    /// The bytes do not hold this message.
    #[error("the bytes are no message of this protocol: {0}")]
    Decode(String),
    /// The message ends before the bytes do.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
}

/// The bytes of `message`.
///
/// # Errors
/// [`CodecError::TooLong`] beyond [`MAX_BYTES`].
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, CodecError> {
    let bytes = bincode::serde::encode_to_vec(message, bincode::config::standard())
        .map_err(|error| CodecError::Encode(error.to_string()))?;
    if bytes.len() > MAX_BYTES { Err(CodecError::TooLong) } else { Ok(bytes) }
}

/// The message that `bytes` hold, all of them. Never allocates more than [`MAX_BYTES`] for what a length claims.
///
/// # Errors
/// [`CodecError::Decode`] or [`CodecError::Trailing`]; any input is safe.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, CodecError> {
    if bytes.len() > MAX_BYTES {
        return Err(CodecError::TooLong);
    }
    let config = bincode::config::standard().with_limit::<MAX_BYTES>();
    let (message, used) = bincode::serde::decode_from_slice(bytes, config)
        .map_err(|error| CodecError::Decode(error.to_string()))?;
    match bytes.len() - used {
        0 => Ok(message),
        rest => Err(CodecError::Trailing(rest)),
    }
}

/// What stands first in `bytes`, whatever follows.
pub fn decode_first<M: DeserializeOwned>(bytes: &[u8]) -> Option<M> {
    let config = bincode::config::standard().with_limit::<MAX_BYTES>();
    Some(bincode::serde::decode_from_slice(bytes, config).ok()?.0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::message::{Class, FailMode, GpuGrant, Hello, Reply, Welcome};
    use crate::price::PriceRow;
    use crate::units::{Bytes, Nanos};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hello_survives_the_wire(protocol: u32, build in ".{0,64}", driver in ".{0,64}") {
            let hello = Hello { protocol, build, driver, slot: Some(protocol) };
            prop_assert_eq!(decode::<Hello>(&encode(&hello).unwrap()).unwrap(), hello);
        }

        #[test]
        fn a_welcome_survives_the_wire(slot: u32, uuids in prop::collection::vec(any::<[u8; 16]>(), 0..9), total: u64, time: Option<f64>) {
            let gpus = uuids.into_iter().map(|uuid| GpuGrant { uuid, memory_total: Bytes(total), mps: total % 2 == 0, in_stream: total % 3 == 0, switch: Nanos(total) }).collect();
            let time_us = time.filter(|us| !us.is_nan());
            let prices = vec![PriceRow { name: "a*".into(), time_us, ..PriceRow::default() }];
            let welcome = Welcome { protocol: 1, tenant: "a".into(), class: Class::Filler, mode: FailMode::Managed, slot, gpus, prices, context_memory: Bytes(total / 2), oversubscribe: slot % 2 == 0, latency_metric: time.map(|us| us.to_string()) };
            let reply = Reply::Welcome(welcome);
            prop_assert_eq!(decode::<Reply>(&encode(&reply).unwrap()).unwrap(), reply);
        }

        #[test]
        fn no_bytes_harm_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let _ = decode::<Hello>(&bytes);
            let _ = decode::<Reply>(&bytes);
        }

        #[test]
        fn a_cut_message_is_refused(cut in 0usize..20) {
            let bytes = encode(&Hello { protocol: 1, build: "x".repeat(20), driver: String::new(), slot: None }).unwrap();
            prop_assert!(decode::<Hello>(&bytes[..cut.min(bytes.len() - 1)]).is_err());
        }
    }

    #[test]
    fn bytes_behind_a_message_are_refused() {
        let mut bytes =
            encode(&Hello { protocol: 1, build: String::new(), driver: String::new(), slot: None }).unwrap();
        bytes.push(0);
        assert!(matches!(decode::<Hello>(&bytes), Err(CodecError::Trailing(1))));
    }
}
