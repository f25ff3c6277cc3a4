//! What the manager and the process say to each other: one packet a message.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_protocol::codec;

use crate::latency::Figures;

/// Longest packet, in bytes: [`MOST_FIGURES`] of 16 bytes each, or the longest URL, fit four times.
const MAX_PACKET: usize = 64 << 10;

/// Buckets or quantiles of one metric, at most: Prometheus' native histograms have 160.
pub const MOST_FIGURES: usize = 1_024;

/// Longest reason why there is no answer, in characters.
const MAX_REASON: usize = 200;

/// A page that is to be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Its number, which the answer repeats.
    pub number: u64,
    /// Where the page is.
    pub url: String,
    /// What is looked for on it.
    pub wanted: Wanted,
}

/// What is looked for on a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Wanted {
    /// A histogram or summary of this name.
    Metric(String),
    /// The first word, as a number.
    Number,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The question's number.
    pub number: u64,
    /// What was found, or why nothing was.
    pub found: Result<Found, String>,
}

/// What was found on a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Found {
    /// Of a metric.
    Figures(Figures),
    /// A number.
    Number(f64),
}

impl Answer {
    /// An answer that [`Self::is_sound`], whatever was found.
    pub fn of(number: u64, found: Result<Found, String>) -> Self {
        let found = match found {
            Ok(found) if is_sound(&found) => Ok(found),
            Ok(_) => Err("its figures are out of range".to_owned()),
            Err(why) => Err(why.escape_debug().take(MAX_REASON).collect()),
        };
        Self { number, found }
    }

    /// Whether it keeps to what an answer may be.
    pub fn is_sound(&self) -> bool {
        match &self.found {
            Ok(found) => is_sound(found),
            Err(why) => why.chars().count() <= MAX_REASON && !why.chars().any(char::is_control),
        }
    }
}

fn is_sound(found: &Found) -> bool {
    match found {
        Found::Number(number) => number.is_finite(),
        Found::Figures(Figures { buckets, quantiles }) => {
            let few = buckets.len() <= MOST_FIGURES && quantiles.len() <= MOST_FIGURES;
            let rises = buckets.is_sorted_by(|a, b| a.0 < b.0) && quantiles.is_sorted_by(|a, b| a.0 < b.0);
            let counted = buckets.iter().all(|(bound, count)| !bound.is_nan() && is_positive(*count));
            let valued =
                quantiles.iter().all(|(quantile, value)| is_positive(*quantile) && value.is_finite());
            few && rises && counted && valued
        }
    }
}

fn is_positive(number: f64) -> bool {
    number.is_finite() && number >= 0.0
}

/// Sends a message; says no where the other side has not read enough of the others yet.
///
/// # Errors
/// It is too long, or nobody is at the other end.
pub fn send(socket: impl AsFd, message: &impl Serialize, flags: SendFlags) -> io::Result<bool> {
    let packet = codec::encode(message).map_err(io::Error::other)?;
    if packet.len() > MAX_PACKET {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    match rustix::net::send(socket, &packet, flags | SendFlags::NOSIGNAL) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What came over the socket.
#[derive(Debug)]
pub enum Heard<M> {
    /// A message.
    Message(M),
    /// Nothing yet.
    Nothing,
    /// The other side has ended.
    End,
    /// What is no message.
    Nonsense,
}

/// Hears one message.
///
/// # Errors
/// Those of the socket.
pub fn receive<M: DeserializeOwned>(socket: impl AsFd, flags: RecvFlags) -> io::Result<Heard<M>> {
    let mut packet = vec![0; MAX_PACKET];
    let length = match rustix::net::recv(socket, &mut packet[..], flags | RecvFlags::TRUNC) {
        Ok((_, length)) => length,
        Err(Errno::AGAIN) => return Ok(Heard::Nothing),
        Err(Errno::CONNRESET) => return Ok(Heard::End),
        Err(error) => return Err(error.into()),
    };
    if length == 0 {
        return Ok(Heard::End);
    }
    let message = packet.get(..length).and_then(|packet| codec::decode(packet).ok()); // longer: cut off by the kernel
    Ok(message.map_or(Heard::Nonsense, Heard::Message))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn buckets(buckets: &[(f64, f64)]) -> Result<Found, String> {
        Ok(Found::Figures(Figures { buckets: buckets.to_vec(), quantiles: Vec::new() }))
    }

    #[test]
    fn what_no_page_should_say_is_told_as_a_failure_and_not_believed() {
        let (low, all) = ((0.1, 1.0), (f64::INFINITY, 2.0));
        let too_many: Vec<_> = (0..=MOST_FIGURES).map(|n| (n as f64, 1.0)).collect();
        assert!(Answer::of(1, buckets(&[low, all])).found.is_ok());
        for wrong in [
            buckets(&[all, low]),
            buckets(&[low, low]),
            buckets(&[(f64::NAN, 1.0)]),
            buckets(&[(0.1, f64::INFINITY)]),
            buckets(&[(0.1, -1.0)]),
            buckets(&too_many),
            Ok(Found::Number(f64::INFINITY)),
            Err("a\nline ".repeat(100)),
        ] {
            assert!(!Answer { number: 1, found: wrong.clone() }.is_sound(), "{wrong:?}");
            let told = Answer::of(1, wrong);
            assert!(told.is_sound() && told.found.is_err(), "{told:?}");
        }
    }

    fn pair() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn messages_come_whole_and_what_is_none_or_too_long_is_told() {
        let (one, two) = pair();
        let hear = || receive::<Answer>(&two, RecvFlags::DONTWAIT).unwrap();
        let answer = Answer::of(7, Ok(Found::Number(0.5)));
        assert!(send(&one, &answer, SendFlags::DONTWAIT).unwrap());
        assert!(matches!(hear(), Heard::Message(heard) if heard == answer));
        assert!(matches!(hear(), Heard::Nothing));
        let long = Question { number: 1, url: "a".repeat(MAX_PACKET), wanted: Wanted::Number };
        assert!(send(&one, &long, SendFlags::DONTWAIT).is_err());
        rustix::net::send(&one, &vec![0; MAX_PACKET + 1], SendFlags::empty()).unwrap();
        assert!(matches!(hear(), Heard::Nonsense));
        drop(one);
        assert!(matches!(hear(), Heard::End));
    }

    #[test]
    fn whoever_does_not_read_holds_nobody_up() {
        let (one, _two) = pair();
        let answer = Answer::of(7, Ok(Found::Number(0.5)));
        let sent = (0..1_000_000).take_while(|_| send(&one, &answer, SendFlags::DONTWAIT).unwrap()).count();
        assert!(sent > 0 && sent < 1_000_000, "the socket fills up: {sent}");
    }

    proptest! {
        #[test]
        fn no_packet_harms_who_hears_it(packet in proptest::collection::vec(any::<u8>(), 1..200)) {
            let (one, two) = pair();
            rustix::net::send(&one, &packet, SendFlags::empty()).unwrap();
            let heard = receive::<Answer>(&two, RecvFlags::DONTWAIT).unwrap();
            if let Heard::Message(answer) = heard {
                let _ = answer.is_sound();
            }
        }
    }
}
