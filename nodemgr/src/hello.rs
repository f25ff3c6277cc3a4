//! The first bytes that a process sends: a frame with a hello. They may be anything, and may come in any pieces.

use weir_protocol::message::Hello;
use weir_protocol::{PROTOCOL_VERSION, codec};

/// Longest hello, in bytes.
pub const MAX_HELLO: usize = 4096;

/// What the bytes so far are.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// The beginning of a hello.
    Partial,
    /// A hello.
    Whole(Hello),
    /// A hello of another protocol, in which nothing but its number can be read.
    Foreign(u32),
    /// No hello, whatever follows.
    Nonsense,
}

/// Reads a frame of a length and a hello.
pub fn parse(bytes: &[u8]) -> Frame {
    let Some((length, body)) = bytes.split_first_chunk::<4>() else { return Frame::Partial };
    let length = u32::from_le_bytes(*length) as usize;
    if length > MAX_HELLO || body.len() > length {
        return Frame::Nonsense; // nothing follows a hello
    }
    if body.len() < length {
        return Frame::Partial;
    }
    match codec::decode(body) {
        Ok(hello) => Frame::Whole(hello),
        Err(_) => match codec::decode_first(body) {
            Some(protocol) if protocol != PROTOCOL_VERSION => Frame::Foreign(protocol),
            _ => Frame::Nonsense,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(hello: &Hello) -> Vec<u8> {
        let body = codec::encode(hello).unwrap();
        [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], &body].concat()
    }

    proptest! {
        #[test]
        fn a_hello_is_whole_exactly_when_its_last_byte_has_come(build in ".{0,64}", driver in ".{0,64}", cut: prop::sample::Index) {
            let hello = Hello { protocol: 1, build, driver, slot: None };
            let bytes = frame(&hello);
            prop_assert_eq!(parse(&bytes[..cut.index(bytes.len())]), Frame::Partial);
            prop_assert_eq!(parse(&bytes), Frame::Whole(hello));
            prop_assert_eq!(parse(&[&bytes[..], b"x"].concat()), Frame::Nonsense);
        }

        #[test]
        fn a_hello_of_another_protocol_is_told_by_its_number(protocol in PROTOCOL_VERSION + 1.., rest in prop::collection::vec(200u8.., 1..60)) {
            let body = [codec::encode(&protocol).unwrap(), rest].concat();
            let bytes = [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], &body].concat();
            prop_assert_eq!(parse(&bytes), Frame::Foreign(protocol));
        }

        #[test]
        fn no_bytes_harm_the_reader_of_hellos(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            parse(&bytes);
        }
    }
}
