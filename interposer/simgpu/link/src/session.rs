//! A client's session with the broker: everything that a driver library needs, in one value.

mod checkpoint;
mod submit;
mod team;
mod wait;

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use rustix::net::{RecvFlags, SendFlags};

use crate::books::Books;
use crate::config::Config;
use crate::page::{Mapping, Page, PageError, STREAMS};
use crate::place;
use crate::rpc::{Kind, LONGEST_REPLY, LONGEST_WELCOME, PROTOCOL, Refusal, Reply, Request, Welcome};
use crate::socket::{self, SocketError};
use crate::spawn::{self, SpawnError};
use submit::Producer;

/// Brokers tried before one that hangs up is taken for a failure: each may just be leaving.
const TRIES: usize = 10;

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No broker, and none could be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The connection broke: every context is lost.
    #[error("the simulated GPU is gone: {0}")]
    Lost(#[from] SocketError),
    /// The page cannot be used.
    #[error(transparent)]
    Page(#[from] PageError),
    /// The broker says no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An answer to another question: library and broker do not belong together.
    #[error("the broker of the simulated GPU gave an answer that does not fit the question")]
    Confused,
    /// All stream slots are in use.
    #[error("a process can have {STREAMS} streams at a time")]
    Streams,
    /// This session has no page: it was opened as [`Kind::Observer`].
    #[error("an observer submits no work")]
    Observer,
}

/// One process's session. Every method can be called from any thread; after a fork only the parent may.
pub struct Session {
    socket: Mutex<OwnedFd>,
    shared: Option<Shared>,
    welcome: Welcome,
    /// Held by a launch that waits for room in a full queue, where the configuration wants it.
    full: RwLock<()>,
}

/// What a driver has beyond an observer.
struct Shared {
    page: Mapping,
    bell: OwnedFd,
    producer: Mutex<Producer>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Connects to the broker of [`place::directory`], and starts it if there is none.
    ///
    /// # Errors
    /// [`SessionError::Spawn`] tells in full sentences why there is no broker (a bad configuration, say).
    pub fn connect(kind: Kind) -> Result<Self, SessionError> {
        let dir = place::directory();
        for _ in 1..TRIES {
            match Self::over(spawn::connect_or_start(&dir)?, kind) {
                // The broker was just leaving: the next one is there at once.
                Err(SessionError::Lost(SocketError::Closed | SocketError::System(_))) => {}
                other => return other,
            }
        }
        Self::over(spawn::connect_or_start(&dir)?, kind)
    }

    /// Opens a session over a connected socket.
    ///
    /// # Errors
    /// As for [`Session::connect`].
    pub fn over(socket: OwnedFd, kind: Kind) -> Result<Self, SessionError> {
        let (reply, fds) = ask(&socket, &Request::Hello { protocol: PROTOCOL, kind }, LONGEST_WELCOME)?;
        let Reply::Welcome(welcome) = reply else { return Err(SessionError::Confused) };
        let mut fds = fds.into_iter();
        let shared = match (fds.next(), fds.next()) {
            (Some(page), Some(bell)) => {
                Some(Shared { page: Mapping::open(&page)?, bell, producer: Mutex::new(Producer::new()) })
            }
            _ if kind == Kind::Cuda => return Err(SessionError::Confused),
            _ => None,
        };
        Ok(Self { socket: Mutex::new(socket), shared, welcome: *welcome, full: RwLock::new(()) })
    }

    /// What the broker said at the start.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.welcome.config
    }

    /// The page, for counters: `page()?.calls[index].fetch_add(1, Relaxed)`.
    ///
    /// # Errors
    /// [`SessionError::Observer`].
    pub fn page(&self) -> Result<&Page, SessionError> {
        self.shared.as_ref().map(|shared| &*shared.page).ok_or(SessionError::Observer)
    }

    /// Makes a context on `device` and returns its number.
    ///
    /// # Errors
    /// [`Refusal::OutOfMemory`]: its overhead does not fit.
    pub fn create_context(&self, device: u32) -> Result<u32, SessionError> {
        match self.ask(&Request::CreateContext { device })?.0 {
            Reply::Context(context) => Ok(context),
            _ => Err(SessionError::Confused),
        }
    }

    /// Ends a context: what runs in it stops.
    ///
    /// # Errors
    /// [`Refusal::NoSuchContext`].
    pub fn destroy_context(&self, context: u32) -> Result<(), SessionError> {
        self.done(&Request::DestroyContext { context })
    }

    /// Takes device memory.
    ///
    /// # Errors
    /// [`Refusal::OutOfMemory`].
    pub fn reserve(&self, device: u32, bytes: u64) -> Result<(), SessionError> {
        self.done(&Request::Reserve { device, bytes })
    }

    /// Gives device memory back.
    ///
    /// # Errors
    /// [`Refusal::NotHeld`].
    pub fn release(&self, device: u32, bytes: u64) -> Result<(), SessionError> {
        self.done(&Request::Release { device, bytes })
    }

    /// Device memory in bytes: (total, used by all, used by this process).
    ///
    /// # Errors
    /// [`Refusal::NoSuchDevice`].
    pub fn memory(&self, device: u32) -> Result<(u64, u64, u64), SessionError> {
        match self.ask(&Request::Memory { device })?.0 {
            Reply::Memory { total, used, own } => Ok((total, used, own)),
            _ => Err(SessionError::Confused),
        }
    }

    /// The books of all devices.
    ///
    /// # Errors
    /// The connection's.
    pub fn books(&self) -> Result<Books, SessionError> {
        let (Reply::Books, mut fds) = self.ask(&Request::Books)? else { return Err(SessionError::Confused) };
        let file = fds.pop().map(std::fs::File::from).ok_or(SessionError::Confused)?;
        serde_json::from_reader(std::io::BufReader::new(file)).map_err(|_| SessionError::Confused)
    }

    /// Whether a launch that waits for room holds up the process's other calls.
    pub fn is_held_up(&self) -> bool {
        self.full.try_read().is_err()
    }

    fn done(&self, request: &Request) -> Result<(), SessionError> {
        match self.ask(request)?.0 {
            Reply::Done => Ok(()),
            _ => Err(SessionError::Confused),
        }
    }

    fn ask(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), SessionError> {
        ask(&locked(&self.socket), request, LONGEST_REPLY)
    }

    fn shared(&self) -> Result<&Shared, SessionError> {
        self.shared.as_ref().ok_or(SessionError::Observer)
    }
}

impl Shared {
    fn ring(&self) {
        // An eventfd write fails only when the counter is full: then it rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// One request, one reply.
fn ask(socket: &OwnedFd, request: &Request, longest: usize) -> Result<(Reply, Vec<OwnedFd>), SessionError> {
    socket::send(socket, request, &[], SendFlags::empty())?;
    loop {
        match socket::receive::<Reply>(socket, longest, RecvFlags::empty()) {
            Ok((Reply::Refused(why), _)) => return Err(why.into()),
            // A signal of the application's interrupted us.
            Err(SocketError::System(rustix::io::Errno::INTR)) => {}
            other => return Ok(other?),
        }
    }
}
