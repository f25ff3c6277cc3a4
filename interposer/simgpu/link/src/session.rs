//! A client's session with the broker: everything that a driver library needs, in one value.
#![allow(clippy::cast_possible_truncation, reason = "constants of the page layout, far below 2^32")]

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SendFlags};

use crate::books::Books;
use crate::command::{Command, StreamKind, Work};
use crate::config::Config;
use crate::page::{Mapping, Page, PageError, STREAMS};
use crate::ring::{NAP, SLEEP};
use crate::rpc::{Kind, PROTOCOL, Refusal, Reply, Request, Welcome};
use crate::socket::{self, SocketError};
use crate::spawn::{self, SpawnError};
use crate::wait::Target;
use crate::{now_ns, place};

/// Longest sleep before a waiter makes sure that the broker lives.
const LOOK: Duration = Duration::from_millis(100);

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
}

/// What a driver has beyond an observer.
struct Shared {
    page: Mapping,
    bell: OwnedFd,
    producer: Mutex<Producer>,
}

/// What the one producer of the ring knows, per stream slot.
struct Producer {
    /// Sequence number of the last command.
    submitted: Vec<u64>,
    free: Vec<u32>,
    /// Where each event slot was last recorded: record number, stream, sequence.
    records: Vec<(u32, u32, u64)>,
}

impl Producer {
    fn new() -> Self {
        let free = (0..STREAMS as u32).rev().collect();
        Self { submitted: vec![0; STREAMS], free, records: Vec::new() }
    }

    /// Notes where an event is recorded, as what number.
    fn record(&mut self, slot: u32, stream: u32) -> u32 {
        let place = slot as usize;
        if self.records.len() <= place {
            self.records.resize(place + 1, (0, 0, 0));
        }
        let record = self.records[place].0 + 1;
        self.records[place] = (record, stream, self.submitted[stream as usize] + 1);
        record
    }
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
        match Self::over(spawn::connect_or_start(&dir)?, kind) {
            // The broker was just leaving: the next one is there at once.
            Err(SessionError::Lost(_)) => Self::over(spawn::connect_or_start(&dir)?, kind),
            other => other,
        }
    }

    /// Opens a session over a connected socket.
    ///
    /// # Errors
    /// As for [`Session::connect`].
    pub fn over(socket: OwnedFd, kind: Kind) -> Result<Self, SessionError> {
        let (reply, fds) = ask(&socket, &Request::Hello { protocol: PROTOCOL, kind })?;
        let Reply::Welcome(welcome) = reply else { return Err(SessionError::Confused) };
        let mut fds = fds.into_iter();
        let shared = match (fds.next(), fds.next()) {
            (Some(page), Some(bell)) => {
                Some(Shared { page: Mapping::open(&page)?, bell, producer: Mutex::new(Producer::new()) })
            }
            _ if kind == Kind::Cuda => return Err(SessionError::Confused),
            _ => None,
        };
        Ok(Self { socket: Mutex::new(socket), shared, welcome: *welcome })
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

    fn done(&self, request: &Request) -> Result<(), SessionError> {
        match self.ask(request)?.0 {
            Reply::Done => Ok(()),
            _ => Err(SessionError::Confused),
        }
    }

    fn ask(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), SessionError> {
        ask(&locked(&self.socket), request)
    }

    /// Makes a stream and returns its slot on the page. At most one [`StreamKind::Legacy`] per context.
    ///
    /// # Errors
    /// [`SessionError::Streams`].
    pub fn open_stream(&self, context: u32, kind: StreamKind, priority: i32) -> Result<u32, SessionError> {
        let shared = self.shared()?;
        let slot = locked(&shared.producer).free.pop().ok_or(SessionError::Streams)?;
        self.push(slot, Work::Open { context, kind, priority })?;
        Ok(slot)
    }

    /// Ends a stream; what it holds is still done.
    ///
    /// # Errors
    /// [`SessionError::Lost`].
    pub fn close_stream(&self, stream: u32) -> Result<(), SessionError> {
        self.push(stream, Work::Close)?;
        locked(&self.shared()?.producer).free.push(stream);
        Ok(())
    }

    /// Sequence number of the last command in a stream.
    ///
    /// # Errors
    /// [`SessionError::Observer`].
    pub fn submitted(&self, stream: u32) -> Result<u64, SessionError> {
        Ok(locked(&self.shared()?.producer).submitted[stream as usize])
    }

    /// Submits a command and returns its sequence number. Waits while the stream has `queue_depth` commands
    /// outstanding, as a real launch does. No system call unless it waits or the GPU was idle.
    ///
    /// # Errors
    /// [`SessionError::Lost`]: the broker is gone.
    pub fn push(&self, stream: u32, work: Work) -> Result<u64, SessionError> {
        self.push_with(stream, |_| work)
    }

    /// Submits a record of event slot `slot` and returns the record's number: see [`Session::event_stamp`].
    ///
    /// # Errors
    /// As for [`Session::push`].
    pub fn push_record(&self, stream: u32, slot: u32) -> Result<u32, SessionError> {
        let mut record = 0;
        self.push_with(stream, |producer| {
            record = producer.record(slot, stream);
            Work::Record { slot, record }
        })?;
        Ok(record)
    }

    /// Waits for room without the lock, then takes the lock and looks again.
    fn push_with(&self, stream: u32, work: impl FnOnce(&mut Producer) -> Work) -> Result<u64, SessionError> {
        let shared = self.shared()?;
        let mut producer = locked(&shared.producer);
        while let Some(target) = self.obstacle(shared, producer.submitted[stream as usize], stream) {
            drop(producer);
            self.wait(target)?;
            producer = locked(&shared.producer);
        }
        let work = work(&mut producer);
        let last = &mut producer.submitted[stream as usize];
        *last += u64::from(!matches!(work, Work::Open { .. } | Work::Close));
        let sequence = *last;
        shared.page.push(&Command { stream, sequence, at_ns: now_ns(), work });
        drop(producer);
        if shared.page.must_ring(SLEEP) {
            shared.ring();
        }
        Ok(sequence)
    }

    /// What a producer must wait for before it may push, if anything.
    fn obstacle(&self, shared: &Shared, submitted: u64, stream: u32) -> Option<Target> {
        let depth = u64::from(self.welcome.config.queue_depth);
        if submitted >= self.completed_in(shared, stream) + depth {
            // A quarter of the queue at once: the launcher is not woken for each command.
            return Some(Target::Completed { stream, sequence: submitted - depth + depth.div_ceil(4) });
        }
        (!shared.page.has_room()).then(|| {
            // Relaxed: the lock is held, nobody else writes it.
            Target::Taken(shared.page.tail.0.load(Ordering::Relaxed) - crate::page::RING as u64 / 2)
        })
    }

    fn completed_in(&self, shared: &Shared, stream: u32) -> u64 {
        // Acquire: what the completed work did is seen by who sees the completion.
        shared.page.completed[stream as usize].load(Ordering::Acquire)
    }

    /// Sequence number up to which a stream is complete. Plain load; [`Session::look`] makes it fresh.
    ///
    /// # Errors
    /// [`SessionError::Observer`].
    pub fn completed(&self, stream: u32) -> Result<u64, SessionError> {
        Ok(self.completed_in(self.shared()?, stream))
    }

    /// Asks the broker to bring completions up to now (it does so within a millisecond by itself). For queries:
    /// look at the word, and if it is not there yet, `look` and say "not ready". Does not wait.
    ///
    /// # Errors
    /// [`SessionError::Observer`].
    pub fn look(&self) -> Result<(), SessionError> {
        let shared = self.shared()?;
        if shared.page.must_ring(NAP) {
            shared.ring();
        }
        Ok(())
    }

    /// Waits until a stream is complete up to `sequence`.
    ///
    /// # Errors
    /// [`SessionError::Lost`]: the broker is gone.
    pub fn wait_completed(&self, stream: u32, sequence: u64) -> Result<(), SessionError> {
        self.wait(Target::Completed { stream, sequence })
    }

    fn wait(&self, target: Target) -> Result<(), SessionError> {
        let shared = self.shared()?;
        while !shared.page.wait(target, LOOK, || {
            if shared.page.must_ring(NAP) {
                shared.ring();
            }
        }) {
            self.check_broker()?;
        }
        Ok(())
    }

    /// When the front end reached this record (or a later one of the same slot), ns; `None`: not yet.
    pub fn event_stamp(&self, slot: u32, record: u32) -> Option<u64> {
        let stamp = self.page().ok()?.stamps.get(slot as usize)?;
        // Acquire: the time was stored before the record's number.
        (stamp.record.load(Ordering::Acquire) >= u64::from(record)).then(|| stamp.ns.load(Ordering::Relaxed))
    }

    /// Waits for a record.
    ///
    /// # Errors
    /// [`SessionError::Lost`].
    pub fn wait_event(&self, slot: u32, record: u32) -> Result<(), SessionError> {
        while self.event_stamp(slot, record).is_none() {
            // The record's place in its stream tells the broker when to wake us. A later record of the same
            // event may have taken its place: then this waits in steps, and looks at the stamp each time.
            let place = locked(&self.shared()?.producer).records.get(slot as usize).copied();
            let (latest, stream, sequence) = place.unwrap_or_default();
            if latest == record {
                self.wait_completed(stream, sequence)?;
            } else {
                self.look()?;
                std::thread::sleep(Duration::from_micros(100));
                self.check_broker()?;
            }
        }
        Ok(())
    }

    /// Ends the stalls ([`Work::Host`], a spinning kernel) of a stream up to `sequence`.
    ///
    /// # Errors
    /// [`SessionError::Observer`].
    pub fn resume(&self, stream: u32, sequence: u64) -> Result<(), SessionError> {
        let shared = self.shared()?;
        // Release: what the host function wrote is seen by who sees the completion that follows. Max: two
        // threads may end two stalls in either order.
        shared.page.resumed[stream as usize].fetch_max(sequence, Ordering::Release);
        self.look()
    }

    fn shared(&self) -> Result<&Shared, SessionError> {
        self.shared.as_ref().ok_or(SessionError::Observer)
    }

    /// An error if the broker has hung up.
    fn check_broker(&self) -> Result<(), SessionError> {
        let socket = locked(&self.socket);
        let mut fds = [PollFd::new(&*socket, PollFlags::empty())];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let gone = rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0);
        if gone { Err(SocketError::Closed.into()) } else { Ok(()) }
    }
}

impl Shared {
    fn ring(&self) {
        // An eventfd write fails only when the counter is full: then it rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// One request, one reply.
fn ask(socket: &OwnedFd, request: &Request) -> Result<(Reply, Vec<OwnedFd>), SessionError> {
    socket::send(socket, request, &[], SendFlags::empty())?;
    loop {
        match socket::receive::<Reply>(socket, RecvFlags::empty()) {
            Ok((Reply::Refused(why), _)) => return Err(why.into()),
            // A signal of the application's interrupted us.
            Err(SocketError::System(rustix::io::Errno::INTR)) => {}
            other => return Ok(other?),
        }
    }
}
