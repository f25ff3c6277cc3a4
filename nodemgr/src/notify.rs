//! What a supervisor hears of the daemon, by systemd's protocol (sd_notify(3)): datagrams to the socket that
//! `$NOTIFY_SOCKET` names. Without one nobody hears anything, and everything else is the same.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

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
    fn at(place: &str, patience: Option<Duration>) -> Self {
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

    fn say(&self, what: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(what.as_bytes());
        }
    }
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
}
