//! A supervisor of a node manager where no systemd runs, by its protocol (sd_notify(3), sd_listen_fds(3)): it keeps the
//! descriptors that it is given, and ends and starts again a manager that gives no sign of life in time, with all of them.

use std::ffi::OsStr;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::node::Node;
use crate::wait;

/// The first descriptor that is handed over.
const FIRST: RawFd = 3;

/// As good as at once.
const SOON: Duration = Duration::from_millis(1);

/// Says to whom the descriptors are handed over: the number is known only once the process is there.
const LAUNCHER: [&str; 3] = ["sh", "-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""];

/// It waits for signs of life of one manager.
pub struct Supervisor {
    socket: UnixDatagram,
    place: PathBuf,
    patience: Duration,
    heard_at: Instant,
    kept: Vec<(String, OwnedFd)>,
}

impl Supervisor {
    /// One that listens at `place` and waits so long for a sign of life.
    ///
    /// # Panics
    /// If it cannot listen there.
    pub fn at(place: PathBuf, patience: Duration) -> Self {
        let socket = UnixDatagram::bind(&place).expect("a socket");
        Self { socket, place, patience, heard_at: Instant::now(), kept: Vec::new() }
    }

    /// How long the packaged unit of systemd waits.
    ///
    /// # Panics
    /// If it does not say.
    pub fn patience_of_the_unit() -> Duration {
        let unit = include_str!("../../packaging/weir-node.service");
        let seconds = unit.lines().find_map(|line| line.strip_prefix("WatchdogSec="));
        Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).expect("seconds"))
    }

    /// Ends the manager and starts it again under this supervisor, with all that is kept, and waits until it serves.
    ///
    /// # Panics
    /// If it does not.
    pub fn start(&mut self, node: &mut Node<'_>) {
        let names: Vec<_> = self.kept.iter().map(|(name, _)| name.as_str()).collect();
        let (patience, count) = (self.patience.as_micros().to_string(), self.kept.len().to_string());
        let names = names.join(":");
        let variables: [(&str, &OsStr); 4] = [
            ("NOTIFY_SOCKET", self.place.as_os_str()),
            ("WATCHDOG_USEC", patience.as_ref()),
            ("LISTEN_FDS", count.as_ref()),
            ("LISTEN_FDNAMES", names.as_ref()),
        ];
        let kept: Vec<_> =
            self.kept.iter().map(|(_, fd)| fd.try_clone().expect("room for one more")).collect();
        node.restart_by(&LAUNCHER, &variables, |command| hand_over(command, &kept));
        while self.hear(wait::PATIENCE).expect("a manager that starts says so") != "READY=1" {}
    }

    /// What is kept of each tenant, by the names that the manager gave it.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(|(name, _)| name.as_str())
    }

    /// Takes in what has been said so far.
    pub fn listen(&mut self) {
        while self.hear(SOON).is_some() {}
    }

    /// Listens until there is no sign of life for its patience; then it ends the manager and starts it again.
    ///
    /// # Panics
    /// If that does not serve.
    pub fn watch(&mut self, node: &mut Node<'_>) {
        while self.heard_at.elapsed() < self.patience {
            self.hear(self.patience.saturating_sub(self.heard_at.elapsed()).max(SOON));
        }
        self.start(node);
    }

    /// Hears one thing, if one is said within this time, and does what it says.
    fn hear(&mut self, within: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(within)).expect("a patience");
        let (text, fds) = receive(&self.socket)?;
        let (what, name) = text.split_once("\nFDNAME=").unwrap_or((&text, ""));
        match what {
            "FDSTORE=1" => fds.into_iter().for_each(|fd| self.keep(name, fd)),
            "FDSTOREREMOVE=1" => self.kept.retain(|(kept, _)| kept != name),
            "READY=1" | "WATCHDOG=1" => self.heard_at = Instant::now(),
            _ => panic!("systemd does not know {what}"),
        }
        Some(what.to_owned())
    }

    /// The same file is kept once, as systemd does.
    fn keep(&mut self, name: &str, fd: OwnedFd) {
        let known = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        if !self.kept.iter().any(|(_, kept)| known(kept) == known(&fd)) {
            self.kept.push((name.to_owned(), fd));
        }
    }
}

/// Has `command` start with these descriptors from the third on.
fn hand_over(command: &mut Command, kept: &[OwnedFd]) {
    let beyond = FIRST + RawFd::try_from(kept.len()).expect("descriptors fit");
    // Copies beyond those places, so that none of them is overwritten before it is copied.
    let copy = |fd| rustix::io::fcntl_dupfd_cloexec(fd, beyond).expect("room for one more");
    let copies: Vec<OwnedFd> = kept.iter().map(copy).collect();
    let place = move || {
        for (at, fd) in (FIRST..).zip(&copies) {
            // SAFETY: takes numbers only, and is async-signal-safe.
            if unsafe { libc::dup2(fd.as_raw_fd(), at) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(place) };
}

/// One message, with its descriptors; nothing if none comes in time.
fn receive(socket: &UnixDatagram) -> Option<(String, Vec<OwnedFd>)> {
    let (mut text, mut space) = ([0; 256], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))]);
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut text)];
    let heard = rustix::net::recvmsg(socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    let fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds = fds.flatten().collect();
    Some((String::from_utf8_lossy(&text[..heard.bytes]).into_owned(), fds))
}
