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
//! Each step is taken by whoever looks for a notice next, and none waits: a launch may be under way.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use weir_protocol::PROTOCOL_VERSION;
use weir_protocol::message::{Hello, Notice, RING, Reply};
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
    socket: ManuallyDrop<OwnedFd>, // its number may be another file's by now: see `close`
    file: Option<File>,
    place: PathBuf,
    slot: u32,
    stand: Stand,
    again_at: Nanos,
    pause: Nanos,
}

impl Connection {
    /// Over a socket that was just made, to the manager behind `place`, which has given us `slot`.
    pub fn new(socket: impl Into<OwnedFd>, place: PathBuf, slot: u32) -> Self {
        let socket = ManuallyDrop::new(socket.into());
        let file = file_of(socket.as_fd());
        let (stand, again_at, pause) = (Stand::Member, Nanos(0), PAUSES.0);
        Self { socket, file, place, slot, stand, again_at, pause }
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
        if matches!(self.stand, Stand::Member) && self.is_ours() {
            let _ = rustix::net::send(&*self.socket, &[RING], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    fn hear(&mut self) -> Option<(Notice, Vec<OwnedFd>)> {
        let heard = if self.is_ours() { transport::receive_now(&*self.socket).ok() } else { None };
        if heard.is_none() {
            self.stand = Stand::Lost;
            self.come_back(clock::now());
        }
        heard.flatten()
    }

    fn hear_answer(&mut self) {
        let heard = if self.is_ours() { transport::receive_now::<Reply>(&*self.socket).ok() } else { None };
        match heard {
            Some(None) => {}
            Some(Some((Reply::Rejoined, _))) => (self.stand, self.pause) = (Stand::Member, PAUSES.0),
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
            slot: Some(self.slot),
        };
        let Ok(socket) = connect(&self.place) else { return };
        if transport::send_now(&socket, &hello, &[]).is_ok() {
            self.close();
            (self.file, self.stand) = (file_of(socket.as_fd()), Stand::Asked);
            self.socket = ManuallyDrop::new(socket);
        }
    }

    /// A program may have closed every descriptor and use our number for a file of its own.
    fn is_ours(&self) -> bool {
        self.file.is_some() && file_of(self.socket.as_fd()) == self.file
    }

    /// Closes the socket, unless it is not ours any more.
    fn close(&mut self) {
        if self.is_ours() {
            // SAFETY: `come_back` puts another one in its place before anybody uses it.
            unsafe { ManuallyDrop::drop(&mut self.socket) };
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
        rustix::io::dup2(&file, &mut connection.socket).unwrap();
        let taken = connection.socket.as_fd().try_clone_to_owned().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&*connection.socket);
        connection.ring();
        assert!(connection.notice().is_none());
        door.accept().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0, "not a byte in it");
        assert!(std::path::Path::new(&format!("/proc/self/fd/{number}")).exists(), "and it is open");
        drop(taken);
    }
}
