//! Bytes to messages and back: bincode 2, here and nowhere else in the simulated GPU (it is unmaintained:
//! `deny.toml` has the reason, and this module is what would change).

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message, bytes: below the kernel's default send buffer, so that one always fits in one packet.
/// What can be longer (the books) travels as a file descriptor.
pub const MAX_BYTES: usize = 160 << 10;

/// Bytes that are no message, or a message that does not fit.
#[derive(Debug, thiserror::Error)]
#[error("not a message of the simulated GPU: {0}")]
pub struct CodecError(String);

/// The bytes of `message`.
///
/// # Errors
/// Longer than [`MAX_BYTES`].
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, CodecError> {
    let bytes = bincode::serde::encode_to_vec(message, bincode::config::standard())
        .map_err(|error| CodecError(error.to_string()))?;
    if bytes.len() > MAX_BYTES {
        return Err(CodecError(format!("{} bytes are more than {MAX_BYTES}", bytes.len())));
    }
    Ok(bytes)
}

/// The message that `bytes` hold, all of them; any input is safe.
///
/// # Errors
/// Not this message, cut off, or followed by more.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, CodecError> {
    let config = bincode::config::standard().with_limit::<MAX_BYTES>();
    match bincode::serde::decode_from_slice(bytes, config) {
        Ok((message, used)) if used == bytes.len() => Ok(message),
        Ok((_, used)) => Err(CodecError(format!("{} bytes too many", bytes.len() - used))),
        Err(error) => Err(CodecError(error.to_string())),
    }
}
