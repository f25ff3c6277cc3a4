//! Listening sockets, and what happens when descriptors run out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{Poll, Source};
use crate::codes;
use crate::fault::Fault;
use crate::lock::{Identity, identity};

/// Connections that the kernel keeps for us: a thousand processes may start at once.
const BACKLOG: i32 = 4096;

/// Connections accepted before others have their turn.
pub const TURN: usize = 64;

/// A listening Unix socket. Its file goes with it.
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    file: Option<Identity>,
}

impl Listener {
    /// Listens at `path`, in the place of whatever a dead manager left there (the lock says that it is dead).
    ///
    /// # Errors
    /// [`codes::PLACE`].
    pub fn bind(path: &Path) -> Result<Self, Fault> {
        let bind = || -> rustix::io::Result<OwnedFd> {
            let _ = std::fs::remove_file(path);
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            // Whoever may reach the directory may connect; who he is then decides what he may do.
            rustix::fs::chmod(path, Mode::from_raw_mode(0o666))?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let socket = bind().map_err(|error| {
            let what = format!("listen at `{}`", path.display());
            Fault::system(&codes::PLACE, what, error, "name a directory on a local file system with --dir")
        })?;
        Ok(Self { socket, path: path.to_path_buf(), file: identity(path) })
    }

    /// The next connection; `None` when there is none, or none can be had now.
    pub fn accept(&self, reserve: &mut Reserve) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            match rustix::net::accept_with(&self.socket, flags) {
                Ok(socket) => return Some(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) => {
                    reserve.turn_away(&self.socket);
                    return None;
                }
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Somebody may have put his own in its place.
        if self.file == identity(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A descriptor kept in hand for the moment when there are no more: with it the next connection can be taken and
/// closed, instead of waking the loop for ever.
pub struct Reserve(Option<OwnedFd>);

impl Reserve {
    /// Takes a descriptor.
    pub fn new() -> Self {
        Self(rustix::fs::open("/dev/null", OFlags::CLOEXEC, Mode::empty()).ok())
    }

    fn turn_away(&mut self, listener: &OwnedFd) {
        self.0 = None;
        drop(rustix::net::accept_with(listener, SocketFlags::CLOEXEC));
        *self = Self::new();
        tell_if_full(&Errno::MFILE.into());
    }
}

/// Tells the log that a connection was turned away since no descriptor is left. Whoever has gone by himself is no news.
pub fn tell_if_full(error: &std::io::Error) {
    if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) {
        tracing::warn!("no descriptor is left: a connection was turned away");
    }
}

/// A system call of the loop that failed.
pub fn broken(what: &str, error: Errno) -> Fault {
    Fault::system(&codes::SYSTEM, what, error, "look at the limits of open files")
}

impl Poll {
    /// Makes the tenant's directory and listens in it, if it has no door yet.
    pub(super) fn open_door(&mut self, tenant: u64, dir: &Path) -> Result<(), Fault> {
        if self.doors.contains_key(&tenant) {
            return Ok(());
        }
        let strict = self.shared.mode == weir_protocol::message::FailMode::Strict;
        let prepare = || {
            std::fs::create_dir_all(dir)?;
            // The directory is not the tenant's to write.
            let mark = dir.join(crate::place::STRICT_MARK);
            match strict {
                // After how long without a manager its programs get no more memory.
                true => std::fs::write(mark, format!("{}\n", self.shared.stale_after_s))?,
                false => std::fs::remove_file(mark).or_else(|error| match error.kind() {
                    std::io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })?,
            }
            crate::launch::write(&self.shared, tenant)
        };
        prepare().map_err(|error| {
            let what = format!("make `{}`", dir.display());
            Fault::system(&codes::PLACE, what, error, "name another directory with --dir")
        })?;
        let listener = Box::new(Listener::bind(&dir.join("tenant.sock"))?);
        let source = Source::Door { listener, tenant };
        let token = self.add(source, rustix::event::epoll::EventFlags::IN).map_err(|e| broken("poll", e))?;
        self.doors.insert(tenant, token);
        Ok(())
    }

    /// Stops listening for an ended tenant, and removes its directory.
    pub(super) fn shut_door(&mut self, tenant: u64, name: &str) {
        if let Some(token) = self.doors.remove(&tenant) {
            self.remove(token);
        }
        self.arrivals_at.remove(&tenant);
        let _ = std::fs::remove_dir_all(self.shared.place.tenant_dir(name));
    }
}
