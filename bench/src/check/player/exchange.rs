//! A job of two processes that exchange after each step, through the host, as data-parallel training over gloo does: while they do,
//! the GPU is idle. The first process plays; the second one follows it over a socket, and is the same tenant's, as it inherits the
//! environment.
//!
//! The first one says what comes next by a number: [`ONE`] for a step and an exchange, else so many steps and no exchange. What is
//! exchanged are bytes that both send and read whole, one after the other.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use super::{Player, Refused, work};
use crate::client::ClientError;
use crate::stage::THIS_PROGRAM;

/// Name of the second process among the works.
pub const FOLLOWER: &str = "exchange-peer";

/// A step and an exchange.
const ONE: u32 = 0;

/// What each sends the other: gradients of four million parameters, as PyTorch's job has them.
const BYTES: usize = 16 << 20;

/// A piece of that, which a socket holds.
static PIECE: [u8; 1 << 16] = [1; 1 << 16];

/// The second process, seen from the first one.
pub struct Peer {
    link: Option<UnixStream>,
    child: Child,
}

impl Peer {
    /// Starts it, and waits until it can step.
    pub fn start() -> io::Result<Self> {
        let (link, theirs) = UnixStream::pair()?;
        let mut command = Command::new(THIS_PROGRAM);
        command.args(["check-player", FOLLOWER]).stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command.stdout(Stdio::null()).spawn()?;
        drop(command); // its copy of the other end: whoever is left reads an end when the other has died
        let mut peer = Self { link: Some(link), child };
        peer.link()?.read_exact(&mut [0])?;
        Ok(peer)
    }

    fn link(&mut self) -> io::Result<&mut UnixStream> {
        self.link.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// A step of both, and the exchange.
    pub fn exchange(&mut self, step: impl FnOnce() -> Result<(), ClientError>) -> Result<(), ClientError> {
        self.link()?.write_all(&ONE.to_ne_bytes())?;
        step()?;
        let link = self.link()?;
        send(link)?;
        Ok(receive(link)?)
    }

    /// So many steps of both, with no exchange between them.
    pub fn steps(
        &mut self,
        count: u32,
        mut step: impl FnMut() -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        self.link()?.write_all(&count.to_ne_bytes())?;
        (0..count).try_for_each(|_| step())?;
        Ok(self.link()?.read_exact(&mut [0])?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.link.take()); // by which it ends
        let _ = self.child.wait();
    }
}

/// The second process: as many steps as the first one makes, until that ends.
pub fn follow() -> Result<(), Refused> {
    let mut link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(ClientError::from)?);
    let player = Player::open(work::STEP.parse().map_err(Refused::Order)?)?;
    link.write_all(&[0]).map_err(ClientError::from)?;
    let mut next = [0; 4];
    while link.read_exact(&mut next).is_ok() {
        let count = u32::from_ne_bytes(next);
        (0..count.max(1)).try_for_each(|_| player.step())?;
        let answered = match count {
            ONE => receive(&mut link).and_then(|()| send(&mut link)),
            _ => link.write_all(&[0]),
        };
        answered.map_err(ClientError::from)?;
    }
    Ok(())
}

fn send(link: &mut UnixStream) -> io::Result<()> {
    (0..BYTES / PIECE.len()).try_for_each(|_| link.write_all(&PIECE))
}

fn receive(link: &mut UnixStream) -> io::Result<()> {
    let mut piece = PIECE;
    (0..BYTES / PIECE.len()).try_for_each(|_| link.read_exact(&mut piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_sends_whole_the_other_reads_whole() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let reads = std::thread::spawn(move || receive(&mut other).and_then(|()| send(&mut other)));
        send(&mut one).and_then(|()| receive(&mut one)).unwrap();
        reads.join().unwrap().unwrap();
        assert_eq!(one.read(&mut [0]).unwrap(), 0, "and no more");
    }
}
