//! Length-framed messages over a Unix stream socket, with file descriptors beside them.
//!
//! A frame is a `u32` length in little-endian bytes and that many bytes of [`codec`]. Descriptors
//! travel with the first byte of their frame. System calls go through rustix, which leaves the application's
//! `errno` alone; sends never raise `SIGPIPE`.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::{self, CodecError, MAX_BYTES};

/// Most descriptors in one message: 4 pages for each of 16 GPUs, or 64 neighbours.
pub const MAX_FDS: usize = 64;

/// Longest message that [`receive_now`] takes, in bytes.
const SHORT: usize = 256;

/// Why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The peer has gone, or had gone before a whole message came.
    #[error("the connection has ended")]
    Closed,
    /// A time limit set on the socket ran out.
    #[error("no answer in time")]
    TimedOut,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The step, as a verb.
        what: &'static str,
        /// The system's answer.
        source: rustix::io::Errno,
    },
    /// The frame is longer than any message.
    #[error("the peer announces a message of {0} bytes, more than any message has")]
    Oversized(u32),
    /// More descriptors than a message may carry.
    #[error("{0} descriptors do not fit into one message")]
    TooManyFds(usize),
    /// The bytes are no message.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

impl TransportError {
    fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |source| match source {
            rustix::io::Errno::AGAIN => Self::TimedOut,
            rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET => Self::Closed,
            source => Self::System { what, source },
        }
    }
}

/// Sends `message` and `fds`.
///
/// # Errors
/// [`TransportError`]; the connection is useless afterwards.
pub fn send<M: Serialize>(
    socket: impl AsFd,
    message: &M,
    fds: &[BorrowedFd<'_>],
) -> Result<(), TransportError> {
    send_with(socket, message, fds, SendFlags::empty())
}

/// As [`send`], but not now rather than later: [`TransportError::TimedOut`] if the peer has too much unread already. A
/// short message goes whole or not at all.
///
/// # Errors
/// [`TransportError`].
pub fn send_now<M: Serialize>(
    socket: impl AsFd,
    message: &M,
    fds: &[BorrowedFd<'_>],
) -> Result<(), TransportError> {
    send_with(socket, message, fds, SendFlags::DONTWAIT)
}

fn send_with<M: Serialize>(
    socket: impl AsFd,
    message: &M,
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), TransportError> {
    if fds.len() > MAX_FDS {
        return Err(TransportError::TooManyFds(fds.len()));
    }
    let body = codec::encode(message)?;
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(TransportError::TooManyFds(fds.len()));
    }
    let parts = [IoSlice::new(&length), IoSlice::new(&body)];
    let sent = rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &parts, &mut ancillary, SendFlags::NOSIGNAL | flags)
    });
    let mut sent = sent.map_err(TransportError::system("send"))?;
    while sent < length.len() {
        sent += send_some(&socket, &length[sent..])?; // a full buffer may cut a frame anywhere
    }
    let mut body_sent = sent - length.len();
    while body_sent < body.len() {
        body_sent += send_some(&socket, &body[body_sent..])?;
    }
    Ok(())
}

fn send_some(socket: &impl AsFd, bytes: &[u8]) -> Result<usize, TransportError> {
    rustix::io::retry_on_intr(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))
        .map_err(TransportError::system("send"))
}

/// Receives one message and the descriptors that came with it, all close-on-exec.
///
/// # Errors
/// [`TransportError`]; the connection is useless afterwards.
pub fn receive<M: DeserializeOwned>(socket: impl AsFd) -> Result<(M, Vec<OwnedFd>), TransportError> {
    let mut fds = Vec::new();
    let mut length = [0; 4];
    fill(&socket, &mut length, &mut fds)?;
    let length = u32::from_le_bytes(length);
    if length as usize > MAX_BYTES {
        return Err(TransportError::Oversized(length));
    }
    let mut body = vec![0; length as usize];
    fill(&socket, &mut body, &mut fds)?;
    Ok((codec::decode(&body)?, fds))
}

/// Receives one message if all of it has come already; never waits.
///
/// # Errors
/// [`TransportError`]; the connection is useless afterwards.
pub fn receive_now<M: DeserializeOwned>(
    socket: impl AsFd,
) -> Result<Option<(M, Vec<OwnedFd>)>, TransportError> {
    let mut waiting = [0; 4 + SHORT];
    let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let have = match rustix::io::retry_on_intr(|| rustix::net::recv(&socket, &mut waiting, peek)) {
        Ok((0, _)) => return Err(TransportError::Closed),
        Ok((have, _)) => have,
        Err(rustix::io::Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(TransportError::system("receive")(error)),
    };
    let Some((length, _)) = waiting.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length);
    if length as usize > SHORT {
        return Err(TransportError::Oversized(length));
    }
    if have < 4 + length as usize { Ok(None) } else { receive(socket).map(Some) }
}

/// Receives one message if its first byte has come. Whoever sends it sends it at once: the rest is not waited for.
///
/// # Errors
/// [`TransportError`]; the connection is useless afterwards. [`TransportError::TimedOut`]: of a socket that does not block, the
/// rest has not come.
pub fn receive_begun<M: DeserializeOwned>(
    socket: impl AsFd,
) -> Result<Option<(M, Vec<OwnedFd>)>, TransportError> {
    let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::io::retry_on_intr(|| rustix::net::recv(&socket, &mut [0u8; 1], peek)) {
        Err(rustix::io::Errno::AGAIN) => Ok(None),
        _ => receive(socket).map(Some), // an end or an error shows there
    }
}

fn fill(socket: &impl AsFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<(), TransportError> {
    let mut filled = 0;
    while filled < buffer.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer[filled..])];
        let received = rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        });
        match received.map_err(TransportError::system("receive"))?.bytes {
            0 => return Err(TransportError::Closed),
            bytes => filled += bytes,
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::message::Hello;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn hello() -> Hello {
        Hello { protocol: 1, build: "0.1.0".into(), driver: "libcuda.so.1".into(), slot: None }
    }

    #[test]
    fn a_message_and_its_descriptors_arrive_together() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        send(&ours, &hello(), &[file.as_fd(), file.as_fd(), file.as_fd()]).unwrap();
        let (message, fds) = receive::<Hello>(&theirs).unwrap();
        assert_eq!(message, hello());
        assert_eq!(fds.len(), 3);
    }

    #[test]
    fn what_has_not_come_whole_is_not_waited_for() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        assert!(receive_now::<Hello>(&theirs).unwrap().is_none());
        let body = codec::encode(&hello()).unwrap();
        let length = u32::try_from(body.len()).unwrap().to_le_bytes();
        ours.write_all(&[&length[..], &body[..3]].concat()).unwrap();
        assert!(receive_now::<Hello>(&theirs).unwrap().is_none());
        ours.write_all(&body[3..]).unwrap();
        assert_eq!(receive_now::<Hello>(&theirs).unwrap().unwrap().0, hello());
        drop(ours);
        assert!(matches!(receive_now::<Hello>(&theirs), Err(TransportError::Closed)));
    }

    #[test]
    fn a_frame_that_comes_byte_by_byte_is_put_together() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let body = codec::encode(&hello()).unwrap();
        let writer = std::thread::spawn(move || {
            for byte in u32::try_from(body.len()).unwrap().to_le_bytes().iter().chain(&body) {
                ours.write_all(&[*byte]).unwrap();
            }
        });
        assert_eq!(receive::<Hello>(&theirs).unwrap().0, hello());
        writer.join().unwrap();
    }

    #[test]
    fn an_announced_length_beyond_any_message_is_refused_before_it_is_allocated() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(matches!(receive::<Hello>(&theirs), Err(TransportError::Oversized(u32::MAX))));
    }

    #[test]
    fn a_peer_that_goes_in_the_middle_of_a_frame_is_told_as_closed() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&[9, 0]).unwrap();
        drop(ours);
        assert!(matches!(receive::<Hello>(&theirs), Err(TransportError::Closed)));
    }
}
