//! What a supervisor hears of the daemon, by systemd's protocol (sd_notify(3)): datagrams to the socket that
//! `$NOTIFY_SOCKET` names. Without one nobody hears anything, and everything else is the same. Descriptors go with a
//! datagram to be kept, and come back at the next start from the third on (sd_listen_fds(3)).

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use weir_protocol::transport::MAX_FDS;

/// The first descriptor that is handed over.
const FIRST: RawFd = 3;

/// Whoever started us and wants to know how we are.
#[derive(Debug, Default)]
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    patience: Option<Duration>,
}

impl Supervisor {
    /// As the environment says.
    pub fn from_environment() -> Self {
        let text = |name| std::env::var(name).unwrap_or_default();
        // Set for another process: one that started us without clearing its environment.
        let is_ours = ["".to_owned(), std::process::id().to_string()].contains(&text("WATCHDOG_PID"));
        let patience = text("WATCHDOG_USEC").parse().ok().filter(|_| is_ours).map(Duration::from_micros);
        Self::at(&text("NOTIFY_SOCKET"), patience)
    }

    /// At `place`, a path or `@` and an abstract name; `patience` is how long it waits for a sign of life.
    pub fn at(place: &str, patience: Option<Duration>) -> Self {
        let address = match place.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(place),
        };
        let connect = || {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address?)?;
            socket.set_nonblocking(true)?; // a supervisor that does not listen holds nobody up
            std::io::Result::Ok(socket)
        };
        let socket = if place.is_empty() { None } else { connect().ok() };
        Self { patience: patience.filter(|_| socket.is_some()), socket }
    }

    /// How often it wants a sign of life: twice as often as it waits.
    pub fn period(&self) -> Option<Duration> {
        self.patience.map(|patience| patience / 2)
    }

    /// The daemon serves, or a message for people changes.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// The daemon lives.
    pub fn alive(&self) {
        if self.patience.is_some() {
            self.say("WATCHDOG=1");
        }
    }

    /// The daemon ends because it was told to.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// Has these descriptors kept under this name; says whether that was heard.
    pub fn keep(&self, name: &str, fds: &[BorrowedFd<'_>]) -> bool {
        let text = format!("FDSTORE=1\nFDNAME={name}");
        fds.chunks(MAX_FDS).all(|fds| self.send(&text, fds))
    }

    /// What is kept under this name is not needed any more; says whether that was heard.
    pub fn forget(&self, name: &str) -> bool {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[])
    }

    fn say(&self, what: &str) {
        self.send(what, &[]);
    }

    fn send(&self, text: &str, fds: &[BorrowedFd<'_>]) -> bool {
        let Some(socket) = &self.socket else { return false };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fit = fds.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(fds));
        let parts = [IoSlice::new(text.as_bytes())];
        fit && rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL).is_ok()
    }
}

/// What an earlier run of the daemon had kept, each with its name. To be called once.
pub fn handed_over() -> Vec<(String, OwnedFd)> {
    let text = |name| std::env::var(name).unwrap_or_default();
    let listed =
        listed(std::process::id(), &text("LISTEN_PID"), &text("LISTEN_FDS"), &text("LISTEN_FDNAMES"));
    listed.into_iter().filter_map(|(fd, name)| Some((name, take(fd)?))).collect()
}

/// The descriptors that are said to be there, if it is us whom they are for.
fn listed(own: u32, pid: &str, count: &str, names: &str) -> Vec<(RawFd, String)> {
    let count = count.parse().ok().filter(|_| pid.parse() == Ok(own)).unwrap_or(0);
    let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
    (FIRST..).zip(names).take(count).collect()
}

/// Takes hold of one; our own children do not get it.
fn take(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: the call touches no memory, and fails where there is no such descriptor.
    let is_open = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    // SAFETY: it is open, and the environment of this very process says that it is there for us to take.
    is_open.then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(supervisor: &UnixDatagram) -> String {
        let mut text = [0; 64];
        let length = supervisor.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    #[test]
    fn a_supervisor_hears_what_sd_notify_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let supervisor = UnixDatagram::bind(&path).unwrap();
        let told = Supervisor::at(path.to_str().unwrap(), Some(Duration::from_secs(10)));
        assert_eq!(told.period(), Some(Duration::from_secs(5)));
        told.ready();
        told.alive();
        told.stopping();
        assert_eq!([(); 3].map(|()| heard(&supervisor)), ["READY=1", "WATCHDOG=1", "STOPPING=1"]);
    }

    #[test]
    fn a_supervisor_may_have_an_abstract_name_and_no_patience() {
        let name = format!("weir-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let supervisor = UnixDatagram::bind_addr(&address).unwrap();
        let told = Supervisor::at(&format!("@{name}"), None);
        told.alive();
        told.ready();
        assert_eq!((heard(&supervisor).as_str(), told.period()), ("READY=1", None));
    }

    #[test]
    fn without_a_supervisor_nothing_is_said_and_nothing_fails() {
        for place in ["", "/not/there", "@not-there-either"] {
            let told = Supervisor::at(place, Some(Duration::from_secs(1)));
            told.ready();
            assert_eq!(told.period(), None, "{place}");
        }
    }

    #[test]
    fn descriptors_go_with_a_name_and_are_forgotten_by_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let supervisor = UnixDatagram::bind(&path).unwrap();
        let told = Supervisor::at(path.to_str().unwrap(), None);
        assert!(told.keep("tenant-7", &[std::os::fd::AsFd::as_fd(&supervisor)]) && told.forget("tenant-7"));
        let heard = [(); 2].map(|()| heard(&supervisor));
        assert_eq!(heard, ["FDSTORE=1\nFDNAME=tenant-7", "FDSTOREREMOVE=1\nFDNAME=tenant-7"]);
    }

    #[test]
    fn what_is_handed_over_is_for_the_process_that_is_named() {
        // sd_listen_fds(3).
        let found = [(3, "tenant-1".to_owned()), (4, "tenant-1".to_owned()), (5, String::new())];
        assert_eq!(listed(812, "812", "3", "tenant-1:tenant-1"), found);
        for (pid, count) in [("813", "3"), ("", "3"), ("812", ""), ("812", "-1"), ("812", "many")] {
            assert_eq!(listed(812, pid, count, "tenant-1"), [], "{pid} {count}");
        }
    }

    #[test]
    fn a_descriptor_that_is_there_is_taken_and_stays_with_us() {
        use std::os::fd::IntoRawFd;
        let fd = tempfile::tempfile().unwrap().into_raw_fd();
        // SAFETY: it is ours, and open.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }, 0);
        let taken = take(fd).unwrap();
        let flags = rustix::io::fcntl_getfd(&taken).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        assert!(take(-1).is_none());
    }
}
