//! The other side of the control socket, for the command line, benchmarks and the cluster.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::history::{AskEvents, Events, Why};
use super::park::ParkDone;
use super::policy::{AskPolicy, Policies};
use super::schema::{CreateTenant, Created, Request, Response, SetBudget, SetDone};
use super::stats::{AskStats, Stats};
use super::switch::Switched;
use crate::codes;
use crate::fault::Fault;
use crate::place::Place;

/// Longest answer that is read, in bytes: a full node's statistics take a hundredth of it.
const MAX_ANSWER: u64 = 256 << 20;

/// Longest wait for an answer; a change of budget takes a second when the tenant launches nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same where device memory goes over the bus: 15 s were reported of a full H100 (gpu-truths, rule 15), and a card may have
/// twice as much.
const PARK_PATIENCE: Duration = Duration::from_secs(120);

/// Why nobody listens in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// There is no socket.
    Never,
    /// There is a socket that a node manager left behind.
    Ended,
}

/// A connection to a node manager. The tenants made through it live at least as long as it does.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the node manager of `place`.
    ///
    /// # Errors
    /// [`codes::UNREACHABLE`].
    pub fn connect(place: &Place) -> Result<Self, Fault> {
        let path = place.control();
        let connect = || {
            let stream = UnixStream::connect(&path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream = connect().map_err(|error: std::io::Error| {
            let message = format!("no node manager at `{}`: {error}", path.display());
            Fault::new(
                &codes::UNREACHABLE,
                message,
                "start it with `weir node`, or name its directory with --dir",
            )
        })?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Whether nobody listens at `place`: nobody at all, not somebody whom we may not reach.
    pub fn absence(place: &Place) -> Option<Absence> {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        match UnixStream::connect(place.control()).map_err(|error| error.kind()) {
            Err(NotFound) => Some(Absence::Never),
            Err(ConnectionRefused) => Some(Absence::Ended),
            _ => None,
        }
    }

    /// Whether the node manager has closed this connection, as it does when it ends.
    pub fn is_closed(&self) -> bool {
        use rustix::net::RecvFlags;
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let heard = rustix::net::recv(self.reader.get_ref(), &mut [0u8; 1], flags);
        matches!(heard, Ok((0, _)) | Err(rustix::io::Errno::CONNRESET | rustix::io::Errno::PIPE))
    }

    /// Makes or joins a tenant.
    ///
    /// # Errors
    /// The manager's refusal, or [`codes::UNREACHABLE`]; so with all that follow.
    pub fn create(&mut self, wanted: CreateTenant) -> Result<Created, Fault> {
        match self.ask(&Request::Create(wanted))? {
            Response::Created(created) => Ok(created),
            other => Err(unexpected(&other)),
        }
    }

    /// Changes a tenant's budget, and waits up to a second for the first launch under it.
    ///
    /// # Errors
    /// As with [`Self::create`].
    pub fn set(&mut self, change: SetBudget) -> Result<SetDone, Fault> {
        match self.ask(&Request::Set(change))? {
            Response::Set(done) => Ok(done),
            other => Err(unexpected(&other)),
        }
    }

    /// Everything that the manager knows.
    ///
    /// # Errors
    /// As with [`Self::create`].
    pub fn stats(&mut self) -> Result<Stats, Fault> {
        self.ask_stats(AskStats::default())
    }

    /// The same without what each process did.
    ///
    /// # Errors
    /// As with [`Self::create`].
    pub fn overview(&mut self) -> Result<Stats, Fault> {
        self.ask_stats(AskStats { overview: true })
    }

    fn ask_stats(&mut self, asked: AskStats) -> Result<Stats, Fault> {
        match self.ask(&Request::Stats(asked))? {
            Response::Stats(stats) => Ok(*stats),
            other => Err(unexpected(&other)),
        }
    }

    /// Shows or switches policies.
    ///
    /// # Errors
    /// As with [`Self::create`].
    pub fn policy(&mut self, asked: AskPolicy) -> Result<Policies, Fault> {
        match self.ask(&Request::Policy(asked))? {
            Response::Policies(policies) => Ok(policies),
            other => Err(unexpected(&other)),
        }
    }

    /// Enforces nothing but memory, or everything again.
    ///
    /// # Errors
    /// As with [`Self::create`].
    pub fn switch(&mut self, off: bool) -> Result<Switched, Fault> {
        match self.ask(&Request::Switch { off })? {
            Response::Switched(switched) => Ok(switched),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes an idle tenant's memory to the host.
    ///
    /// # Errors
    /// As with [`Self::create`].
    pub fn park(&mut self, tenant: &str) -> Result<ParkDone, Fault> {
        self.change_park(&Request::Park { tenant: tenant.to_owned() })
    }

    /// Brings it back.
    ///
    /// # Errors
    /// As with [`Self::create`].
    pub fn unpark(&mut self, tenant: &str) -> Result<ParkDone, Fault> {
        self.change_park(&Request::Unpark { tenant: tenant.to_owned() })
    }

    fn change_park(&mut self, request: &Request) -> Result<ParkDone, Fault> {
        // A failure leaves the usual patience, which is too short for a large card and no worse.
        let _ = self.reader.get_ref().set_read_timeout(Some(PARK_PATIENCE));
        match self.ask(request)? {
            Response::Parked(done) => Ok(done),
            other => Err(unexpected(&other)),
        }
    }

    /// What has happened.
    ///
    /// # Errors
    /// As with [`Self::create`].
    pub fn events(&mut self, asked: AskEvents) -> Result<Events, Fault> {
        match self.ask(&Request::Events(asked))? {
            Response::Events(events) => Ok(events),
            other => Err(unexpected(&other)),
        }
    }

    /// What a tenant waited for.
    ///
    /// # Errors
    /// As with [`Self::create`].
    pub fn why(&mut self, tenant: &str) -> Result<Why, Fault> {
        match self.ask(&Request::Why { tenant: tenant.to_owned() })? {
            Response::Why(why) => Ok(*why),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks anything.
    ///
    /// # Errors
    /// As with [`Self::create`].
    pub fn ask(&mut self, request: &Request) -> Result<Response, Fault> {
        let gone = |error: std::io::Error| {
            let message = format!("the node manager does not answer: {error}");
            Fault::new(&codes::UNREACHABLE, message, "look whether `weir node` still runs")
        };
        let mut line = serde_json::to_vec(request).map_err(|error| not_understood(&error))?;
        line.push(b'\n');
        self.reader.get_mut().write_all(&line).map_err(gone)?;
        let mut answer = Vec::new();
        self.reader.by_ref().take(MAX_ANSWER).read_until(b'\n', &mut answer).map_err(gone)?;
        if answer.is_empty() {
            return Err(gone(std::io::ErrorKind::UnexpectedEof.into()));
        }
        match serde_json::from_slice(&answer).map_err(|error| not_understood(&error))? {
            Response::Error(fault) => Err(fault),
            response => Ok(response),
        }
    }
}

fn not_understood(error: &serde_json::Error) -> Fault {
    let message = format!("the node manager's answer is not understood: {error}");
    Fault::new(&codes::PROTOCOL, message, "use a `weir` of the node manager's version")
}

fn unexpected(response: &Response) -> Fault {
    let message = format!("the node manager answers something else: {response:?}");
    Fault::new(&codes::PROTOCOL, message, "use a `weir` of the node manager's version")
}
