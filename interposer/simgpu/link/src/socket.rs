//! Packets with file descriptors over a Unix socket (`SOCK_SEQPACKET`: one packet is one message).
//!
//! Not Weir's own transport: that one reads frames from a stream and waits for the rest of a frame, while the
//! broker is one thread that waits for nobody. A packet is there whole, or not at all.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use weir_protocol::codec::{self, CodecError};

/// Most descriptors that come with one message.
const MAX_FDS: usize = 4;

/// Why a message did not come or go.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The other side is gone.
    #[error("the connection is closed")]
    Closed,
    /// A system call failed; `AGAIN` means: not now.
    #[error("the connection failed: {0}")]
    System(#[from] Errno),
    /// A packet longer than any message of its kind.
    #[error("a message of {got} bytes came where one has {longest} at most")]
    Oversized {
        /// The packet's length.
        got: usize,
        /// What was expected.
        longest: usize,
    },
    /// Bytes that are no message.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// A new socket, close-on-exec.
///
/// # Errors
/// The system's.
pub fn socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Connects to the broker's socket.
///
/// # Errors
/// `NOENT` or `CONNREFUSED`: no broker is there.
pub fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = socket(SocketFlags::empty())?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Sends one message with descriptors.
///
/// # Errors
/// [`SocketError::System`] with `AGAIN` if `flags` say not to wait and the other side does not read.
pub fn send<M: Serialize>(
    socket: impl AsFd,
    message: &M,
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), SocketError> {
    let bytes = codec::encode(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    // NOSIGNAL: a broken connection is an error here, never a signal for the application.
    rustix::net::sendmsg(&socket, &[IoSlice::new(&bytes)], &mut ancillary, flags | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message of at most `longest` bytes and the descriptors that come with it (close-on-exec).
///
/// # Errors
/// [`SocketError::Closed`] at the end, [`SocketError::Oversized`], [`SocketError::Codec`] for bytes that are no
/// message.
pub fn receive<M: DeserializeOwned>(
    socket: impl AsFd,
    longest: usize,
    flags: RecvFlags,
) -> Result<(M, Vec<OwnedFd>), SocketError> {
    let mut bytes = vec![0; longest];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    // TRUNC: the packet's true length is answered, so that one cut off is never taken for a message.
    let flags = flags | RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
    let got = rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    match got.bytes {
        0 => Err(SocketError::Closed),
        got if got > longest => Err(SocketError::Oversized { got, longest }),
        got => Ok((codec::decode(&bytes[..got])?, fds)),
    }
}
