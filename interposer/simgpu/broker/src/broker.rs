//! The broker's loop: one thread, one epoll set, no spinning, no waiting for any client.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::{Pid, PidfdFlags};
use weir_simgpu_link::Command;
use weir_simgpu_link::config::Config;

use crate::client::Client;
use crate::ingest::owner_of;
use crate::machine::Gpu;
use crate::teams::Teams;

/// Events taken from epoll at once.
const EVENTS: usize = 256;
/// How long a broker stays for its first client at least, however short it lingers: somebody has just started it.
const FIRST: Duration = Duration::from_secs(5);

/// Whose event it is, as epoll keeps it: client number x 4 + kind.
#[derive(Clone, Copy)]
pub enum Token {
    Listener,
    Socket(usize),
    Process(usize),
    Bell(usize),
}

impl Token {
    pub fn data(self) -> epoll::EventData {
        let (kind, index) = match self {
            Token::Listener => (0, 0),
            Token::Socket(index) => (1, index),
            Token::Process(index) => (2, index),
            Token::Bell(index) => (3, index),
        };
        epoll::EventData::new_u64(index as u64 * 4 + kind)
    }

    fn of(data: epoll::EventData) -> Self {
        let index = usize::try_from(data.u64() / 4).unwrap_or(usize::MAX);
        match data.u64() % 4 {
            0 => Token::Listener,
            1 => Token::Socket(index),
            2 => Token::Process(index),
            _ => Token::Bell(index),
        }
    }
}

/// The broker.
pub struct Broker {
    pub config: Config,
    pub gpus: Vec<Gpu>,
    /// By number; a number is used again only after its events are drained.
    pub clients: Vec<Option<Client>>,
    pub epoll: OwnedFd,
    /// Number of the last context made: never used twice.
    pub last_context: u32,
    /// Multicast objects.
    pub teams: Teams,
    /// Kept between rounds for its memory: commands with time and client.
    pub batch: Vec<(u64, usize, Command)>,
    listener: OwnedFd,
    /// Given up for a moment when descriptors run out, to accept and refuse.
    reserve: Option<OwnedFd>,
    lonely_since: Instant,
    /// Some client has said hello.
    pub welcomed: bool,
}

impl Broker {
    /// A broker that listens.
    pub fn new(config: Config, listener: OwnedFd) -> Result<Self, Errno> {
        // 1 ns: sleeps end when they should. Without it they end 50 us late, which is only slower.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, Token::Listener.data(), epoll::EventFlags::IN)?;
        let reserve = Some(rustix::io::fcntl_dupfd_cloexec(&listener, 0)?);
        let gpus = Gpu::all(&config, weir_simgpu_link::now_ns());
        let (clients, batch) = (Vec::new(), Vec::new());
        Ok(Self {
            config,
            gpus,
            clients,
            epoll,
            last_context: 0,
            teams: Teams::default(),
            batch,
            listener,
            reserve,
            lonely_since: Instant::now(),
            welcomed: false,
        })
    }

    /// Serves until the last client has been gone for the configured time.
    pub fn run(mut self) -> Result<(), Errno> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let now = self.ingest();
            self.publish();
            let nap = self.lie_down(now);
            let Some(limit) = self.limit(nap) else { return Ok(()) };
            let limit = limit.map(|limit| Timespec {
                tv_sec: limit.as_secs().cast_signed(),
                tv_nsec: limit.subsec_nanos().into(),
            });
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(why) => return Err(why),
            }
            self.wake_up();
            // Commands that were pushed before a request was sent come before it.
            self.ingest();
            for event in &events {
                self.handle(Token::of(event.data));
            }
            self.publish();
            self.bury();
        }
    }

    /// How long to sleep; the outer `None` means: leave.
    fn limit(&mut self, nap: Option<Duration>) -> Option<Option<Duration>> {
        if self.clients.iter().any(Option::is_some) {
            self.lonely_since = Instant::now();
            return Some(nap);
        }
        let linger = Duration::from_millis(self.config.linger_ms);
        let linger = if self.welcomed { linger } else { linger.max(FIRST) };
        let left = linger.checked_sub(self.lonely_since.elapsed()).filter(|left| !left.is_zero())?;
        Some(Some(nap.map_or(left, |nap| nap.min(left))))
    }

    fn handle(&mut self, token: Token) {
        match token {
            Token::Listener => self.accept(),
            Token::Socket(index) => self.serve_requests(index),
            Token::Process(index) => {
                if let Some(client) = self.clients[index].as_mut() {
                    client.gone = true;
                }
            }
            Token::Bell(index) => {
                let shared = self.clients[index].as_ref().and_then(|client| client.shared.as_ref());
                if let Some(shared) = shared {
                    // Empties the counter; that it rang is all there is to know.
                    let _ = rustix::io::read(&shared.bell, &mut [0; 8]);
                }
            }
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.listener, flags) {
            // Dropped on failure: the client sees a closed connection.
            Ok(socket) => drop(self.admit(socket)),
            Err(Errno::MFILE | Errno::NFILE) => {
                // Without a free descriptor the listener would stay ready for ever: accept by the reserve, and
                // hang up.
                self.reserve = None;
                drop(rustix::net::accept_with(&self.listener, flags));
                self.reserve = rustix::io::fcntl_dupfd_cloexec(&self.listener, 0).ok();
            }
            Err(_) => {}
        }
    }

    fn admit(&mut self, socket: OwnedFd) -> Result<(), Errno> {
        let pid = rustix::net::sockopt::socket_peercred(&socket)?.pid;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
        let index = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        let ready = epoll::EventFlags::IN;
        epoll::add(&self.epoll, socket.as_fd(), Token::Socket(index).data(), ready)?;
        if let Some(pidfd) = &pidfd {
            epoll::add(&self.epoll, pidfd, Token::Process(index).data(), ready)?;
        }
        let client = Client::new(Pid::as_raw(Some(pid)), socket, pidfd, self.gpus.len());
        if index == self.clients.len() {
            self.clients.push(None);
        }
        self.clients[index] = Some(client);
        Ok(())
    }

    /// Drops clients that are gone: their work, their memory; their books stay.
    fn bury(&mut self) {
        for index in 0..self.clients.len() {
            if !self.clients[index].as_ref().is_some_and(|client| client.gone) {
                continue;
            }
            self.leave_teams(index);
            let Some(mut client) = self.clients[index].take() else { continue };
            self.abandon_locks(index);
            for context in &mut client.contexts {
                context.end(&mut self.gpus[context.gpu]);
            }
            for (number, gpu) in self.gpus.iter_mut().enumerate() {
                gpu.device.forget_events(owner_of(index));
                gpu.used -= std::mem::take(&mut client.memory[number].held);
                if let Some(books) = client.books(number, gpu) {
                    gpu.depart(books);
                }
            }
            // A child of it may hold the same bell: it must not ring for the next client of this number.
            if let Some(shared) = &client.shared {
                let _ = epoll::delete(&self.epoll, &shared.bell);
            }
            let _ = epoll::delete(&self.epoll, &client.socket);
        }
    }
}
