//! The connection to the manager: notices come over it, and its end tells the manager that we are gone.
//!
//! A manager that died has left the pages; the next one takes them back and raises the board's number on them. Whoever
//! then looks for the notice finds the connection broken, and comes back with the slot that it has:
//!
//! ```text
//!   Member --- closed ---> Lost --- connect, hello ---> Asked --- Rejoined ---> Member
//!                           ^                             |
//!                           +------ closed, refused ------+
//! ```
//!
//! A process that has found no manager, and keeps its own limits, begins as lost, and without a slot: its hello is a
//! newcomer's, and the answer a welcome.
//!
//! Each step is taken by whoever looks for a notice next, and none waits: a launch may be under way.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use weir_protocol::PROTOCOL_VERSION;
use weir_protocol::message::{Hello, Notice, RING, Reply, Welcome};
use weir_protocol::transport;
use weir_protocol::units::Nanos;

use crate::clock;

/// Between two attempts to come back: first, and at most.
const PAUSES: (Nanos, Nanos) = (Nanos::from_millis(50), Nanos::from_secs(2));

/// How the process stands to the manager.
enum Stand {
    /// It is known there.
    Member,
    /// It has asked to be.
    Asked,
    /// Its connection has broken off.
    Lost,
}

/// The connection.
pub struct Connection {
    socket: Option<ManuallyDrop<OwnedFd>>, // its number may be another file's by now: see `close`
    file: Option<File>,
    place: PathBuf,
    slot: Option<u32>, // none before it was ever welcome
    welcome: Option<(Welcome, Vec<OwnedFd>)>,
    stand: Stand,
    again_at: Nanos,
    pause: Nanos,
}

impl Connection {
    /// Over a socket that was just made, to the manager behind `place`, which has given us `slot`.
    pub fn new(socket: impl Into<OwnedFd>, place: PathBuf, slot: u32) -> Self {
        let socket = ManuallyDrop::new(socket.into());
        let file = file_of(socket.as_fd());
        Self { socket: Some(socket), file, slot: Some(slot), stand: Stand::Member, ..Self::none(place) }
    }

    /// None yet: nobody behind `place` has let the process in.
    pub fn none(place: PathBuf) -> Self {
        let (again_at, pause) = (Nanos(0), PAUSES.0);
        Self {
            socket: None,
            file: None,
            place,
            slot: None,
            welcome: None,
            stand: Stand::Lost,
            again_at,
            pause,
        }
    }

    /// The welcome of a manager that has come, once.
    pub fn take_welcome(&mut self) -> Option<(Welcome, Vec<OwnedFd>)> {
        self.welcome.take()
    }

    /// The process has moved to the pages that came with the welcome.
    pub fn settle(&mut self, slot: u32) {
        self.slot = Some(slot);
    }

    /// Whether nobody is at its other end any more.
    pub fn has_ended(&self) -> bool {
        self.ours().is_none_or(has_ended)
    }

    /// What has come is of no use: the manager is told by the connection's end, and asked again later.
    pub fn give_up(&mut self) {
        self.close();
        self.stand = Stand::Lost;
    }

    /// The next notice, if one has come.
    pub fn notice(&mut self) -> Option<(Notice, Vec<OwnedFd>)> {
        match self.stand {
            Stand::Member => self.hear(),
            Stand::Asked => {
                self.hear_answer();
                if matches!(self.stand, Stand::Member) { self.hear() } else { None }
            }
            Stand::Lost => {
                self.come_back(clock::now());
                None
            }
        }
    }

    /// Tells the manager that this process begins work. One that is gone, or does not listen, is told nothing.
    pub fn ring(&self) {
        if let (Stand::Member, Some(socket)) = (&self.stand, self.ours()) {
            let _ = rustix::net::send(socket, &[RING], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    fn hear(&mut self) -> Option<(Notice, Vec<OwnedFd>)> {
        let heard = self.ours().and_then(|socket| transport::receive_now(socket).ok());
        if heard.is_none() {
            self.stand = Stand::Lost;
            self.come_back(clock::now());
        }
        heard.flatten()
    }

    fn hear_answer(&mut self) {
        let heard = self.ours().and_then(|socket| transport::receive_begun::<Reply>(socket).ok());
        match (heard, self.slot) {
            (Some(None), _) => {}
            (Some(Some((Reply::Rejoined, _))), Some(_)) => {
                (self.stand, self.pause) = (Stand::Member, PAUSES.0)
            }
            (Some(Some((Reply::Welcome(welcome), pages))), None) => {
                self.welcome = Some((welcome, pages));
                (self.stand, self.pause) = (Stand::Member, PAUSES.0);
            }
            // Nobody there, or somebody who does not know us: perhaps the next one does.
            _ => self.stand = Stand::Lost,
        }
    }

    /// Asks for our place, if it is time to.
    fn come_back(&mut self, now: Nanos) {
        if now < self.again_at {
            return;
        }
        self.again_at = Nanos(now.0.saturating_add(self.pause.0));
        self.pause = Nanos((self.pause.0 * 2).min(PAUSES.1.0));
        let hello = Hello {
            protocol: PROTOCOL_VERSION,
            build: env!("CARGO_PKG_VERSION").into(),
            driver: "libcuda.so.1".into(),
            slot: self.slot,
        };
        let Ok(socket) = connect(&self.place) else { return };
        if transport::send_now(&socket, &hello, &[]).is_ok() {
            self.close();
            (self.file, self.stand) = (file_of(socket.as_fd()), Stand::Asked);
            self.socket = Some(ManuallyDrop::new(socket));
        }
    }

    /// The socket. A program may have closed every descriptor and use our number for a file of its own.
    fn ours(&self) -> Option<BorrowedFd<'_>> {
        let socket = self.socket.as_ref()?.as_fd();
        (self.file.is_some() && file_of(socket) == self.file).then_some(socket)
    }

    /// Closes the socket, unless it is not ours any more.
    fn close(&mut self) {
        if self.ours().is_some()
            && let Some(socket) = self.socket.take()
        {
            drop(ManuallyDrop::into_inner(socket));
        }
    }
}

/// A connection to the socket at `place`, which does not block, now or never: a manager with a full backlog is asked later.
pub(super) fn connect(place: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(place)?)?;
    Ok(socket)
}

/// Whether the other end of a connection is closed.
pub(super) fn has_ended(socket: BorrowedFd<'_>) -> bool {
    let heard = rustix::net::recv(socket, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(heard, Ok((1.., _)) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR))
}

/// What a file is known by, whatever its number: device and inode.
pub(super) type File = (u64, u64);

/// The file behind a descriptor.
pub(super) fn file_of(fd: BorrowedFd<'_>) -> Option<File> {
    rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    const NOTICE: Notice = Notice { gpu: 0, board: 7, complete: true, standings: Vec::new() };

    /// A connection whose manager has died, and the next manager's door.
    fn lost() -> (tempfile::TempDir, UnixListener, Connection) {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("tenant.sock");
        let door = UnixListener::bind(&place).unwrap();
        let (ours, _) = UnixStream::pair().unwrap();
        (dir, door, Connection::new(ours, place, 3))
    }

    #[test]
    fn a_broken_connection_is_made_anew_with_the_slot_that_the_process_has() {
        let (_dir, door, mut connection) = lost();
        assert!(connection.notice().is_none());
        let (manager, _) = door.accept().unwrap();
        let (hello, _) = transport::receive::<Hello>(&manager).unwrap();
        assert_eq!((hello.slot, hello.protocol), (Some(3), PROTOCOL_VERSION));
        assert!(connection.notice().is_none(), "no answer yet");
        transport::send(&manager, &Reply::Rejoined, &[]).unwrap();
        transport::send(&manager, &NOTICE, &[]).unwrap();
        assert_eq!(connection.notice().unwrap().0, NOTICE);
    }

    #[test]
    fn whoever_is_refused_asks_again_later_and_not_at_once() {
        let (_dir, door, mut connection) = lost();
        connection.notice();
        let (manager, _) = door.accept().unwrap();
        transport::send(&manager, &Reply::Refused { reason: "no".into() }, &[]).unwrap();
        door.set_nonblocking(true).unwrap();
        connection.notice();
        connection.notice();
        assert!(matches!(connection.stand, Stand::Lost));
        assert!(door.accept().is_err(), "the pause is not over");
        connection.come_back(Nanos(u64::MAX / 2));
        assert!(door.accept().is_ok());
    }

    #[test]
    fn the_bell_is_one_byte_and_a_manager_that_has_died_hears_none() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, mut manager) = UnixStream::pair().unwrap();
        let connection = Connection::new(ours, dir.path().join("tenant.sock"), 3);
        connection.ring();
        let mut heard = Vec::new();
        manager.set_nonblocking(true).unwrap();
        let rest = std::io::Read::read_to_end(&mut manager, &mut heard).map_err(|error| error.kind());
        assert_eq!((heard, rest), (vec![RING], Err(std::io::ErrorKind::WouldBlock)), "and nothing more");
        drop(manager);
        connection.ring(); // and no signal ends the program
    }

    #[test]
    fn a_file_that_took_our_number_is_left_alone() {
        let (_dir, door, mut connection) = lost();
        let file = tempfile::tempfile().unwrap();
        rustix::io::dup2(&file, connection.socket.as_mut().unwrap()).unwrap();
        let taken = connection.socket.as_ref().unwrap().as_fd().try_clone_to_owned().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&**connection.socket.as_ref().unwrap());
        connection.ring();
        assert!(connection.notice().is_none());
        door.accept().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0, "not a byte in it");
        assert!(std::path::Path::new(&format!("/proc/self/fd/{number}")).exists(), "and it is open");
        drop(taken);
    }
}
