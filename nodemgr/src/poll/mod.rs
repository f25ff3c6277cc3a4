//! The poll loop: everything that the manager hears over sockets and process descriptors, on one thread that never
//! blocks on anybody.
//!
//! ```text
//!   control.sock --accept--> Line     JSON lines in, JSON lines out
//!   tenant.sock  --accept--> Arrival  has a second to say hello
//!                              |
//!                              +--> Member  its socket: the bell; the end means exec, a lost socket, or death
//!                              +--> Life    its pidfd: readable means death
//! ```
//!
//! Neither of the last two is right alone: a forked child keeps the socket open beyond its parent's death, and
//! `exec` closes the socket of a process that lives on. What an earlier manager left is a life without a member until
//! the process comes back, and a tenant is kept by a process instead of a line (`taken`).

mod arrival;
mod life;
mod line;
mod listener;
mod member;
mod taken;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::control::created;
use crate::control::schema::Response;
use crate::fault::Fault;
use crate::shared::Shared;
use arrival::Arrival;
use life::Life;
use line::Line;
use listener::{Listener, Reserve};
use member::{Member, Newcomer};
use taken::Keeper;

/// Events taken from the kernel at once.
const BATCH: usize = 256;

/// Something that the loop waits for, under a number that is never used twice.
enum Source {
    LetterBox,
    // Boxed are those of which there are few: of the others, which are small, there are thousands.
    Control(Box<Listener>),
    Door { listener: Box<Listener>, tenant: u64 },
    Line(Box<Line>),
    Arrival(Box<Arrival>),
    Member(Member),
    Life(Life),
    Keeper(Keeper),
}

/// The loop's state; only its own thread touches it.
pub struct Poll {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    sources: HashMap<u64, Source>,
    deadlines: BTreeSet<(Instant, u64)>,
    doors: HashMap<u64, u64>,         // tenant -> source
    lines_of: HashMap<u32, usize>,    // user -> control connections
    arrivals_at: HashMap<u64, usize>, // tenant -> processes that have not said hello
    newcomers: VecDeque<Newcomer>,
    reserve: Reserve,
}

impl Poll {
    /// A loop that listens on the control socket.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn new(shared: Arc<Shared>) -> Result<Self, Fault> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|e| listener::broken("poll", e))?;
        let mut poll = Self {
            shared,
            epoll,
            sources: HashMap::new(),
            deadlines: BTreeSet::new(),
            doors: HashMap::new(),
            lines_of: HashMap::new(),
            arrivals_at: HashMap::new(),
            newcomers: VecDeque::new(),
            reserve: Reserve::new(),
        };
        let control = Listener::bind(&poll.shared.place.control())?;
        poll.add(Source::Control(Box::new(control)), EventFlags::IN)
            .map_err(|e| listener::broken("poll", e))?;
        poll.add(Source::LetterBox, EventFlags::IN).map_err(|e| listener::broken("poll", e))?;
        Ok(poll)
    }

    /// Opens the doors of tenants that are there before anybody has asked for them.
    ///
    /// # Errors
    /// A door cannot be opened.
    pub fn open_doors(&mut self, tenants: &[u64]) -> Result<(), Fault> {
        for tenant in tenants {
            let created = created(&self.shared, &self.shared.registry(), *tenant, true);
            created.map_or(Ok(()), |created| self.open_door(*tenant, &created.dir))?;
        }
        Ok(())
    }

    /// Runs until the manager stops.
    pub fn run(mut self) {
        let mut events = [const { MaybeUninit::uninit() }; BATCH];
        while !self.shared.is_stopping() {
            let timeout = self.timeout();
            let ready = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
                Ok((ready, _)) => ready.iter().map(|event| event.data.u64()).collect::<Vec<_>>(),
                Err(Errno::INTR) => continue,
                Err(error) => return tracing::error!(%error, "the poll loop failed"),
            };
            ready.into_iter().for_each(|token| self.serve(token));
            self.expire();
            self.sweep();
            self.tell_boards();
            self.settle_newcomers();
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let deadline = self.deadlines.first().map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let left = [deadline, self.until_calm()].into_iter().flatten().min()?;
        Some(Timespec {
            tv_sec: i64::try_from(left.as_secs()).ok()?,
            tv_nsec: i64::from(left.subsec_nanos()),
        })
    }

    /// Waits for `source` under a new number.
    fn add(&mut self, source: Source, flags: EventFlags) -> rustix::io::Result<u64> {
        let token = self.enter(source);
        self.listen(token, flags).inspect_err(|_| drop(self.sources.remove(&token)))?;
        Ok(token)
    }

    /// Gives `source` a new number. Nothing of it is heard yet.
    fn enter(&mut self, source: Source) -> u64 {
        let token = self.shared.registry().next_id();
        self.sources.insert(token, source);
        token
    }

    /// Waits for a source, if it is still there.
    fn listen(&self, token: u64, flags: EventFlags) -> rustix::io::Result<()> {
        let Some(source) = self.sources.get(&token) else { return Ok(()) };
        epoll::add(&self.epoll, self.fd_of(source), EventData::new_u64(token), flags)
    }

    fn fd_of<'a>(&'a self, source: &'a Source) -> std::os::fd::BorrowedFd<'a> {
        match source {
            Source::LetterBox => self.shared.letter_box().as_fd(),
            Source::Control(listener) | Source::Door { listener, .. } => listener.as_fd(),
            Source::Line(line) => line.as_fd(),
            Source::Arrival(arrival) => arrival.as_fd(),
            Source::Member(member) => member.as_fd(),
            Source::Life(life) => life.as_fd(),
            Source::Keeper(keeper) => keeper.as_fd(),
        }
    }

    /// Stops waiting for a source.
    fn remove(&mut self, token: u64) -> Option<Source> {
        let source = self.sources.remove(&token)?;
        // Closing would do as well, but an arrival's socket lives on as a member's.
        let _ = epoll::delete(&self.epoll, self.fd_of(&source));
        let fewer = |count: Option<&mut usize>| {
            if let Some(count) = count {
                *count = count.saturating_sub(1);
            }
        };
        match &source {
            Source::Line(line) => fewer(self.lines_of.get_mut(&line.peer.uid)),
            Source::Arrival(arrival) => fewer(self.arrivals_at.get_mut(&arrival.tenant)),
            _ => {}
        }
        Some(source)
    }

    fn serve(&mut self, token: u64) {
        // A source that an earlier event of the same batch removed is no longer there.
        match self.sources.get(&token) {
            None => {}
            Some(Source::LetterBox) => self.deliver(),
            Some(Source::Control(_)) => self.accept_line(token),
            Some(Source::Door { .. }) => self.accept_arrival(token),
            Some(Source::Line(_)) => self.serve_line(token),
            Some(Source::Arrival(_)) => self.hear(token),
            Some(Source::Member(_)) => self.attend(token),
            Some(Source::Life(_)) => self.bury(token),
            Some(Source::Keeper(_)) => self.release_kept(token),
        }
    }

    /// Hands out the answers of other threads.
    fn deliver(&mut self) {
        for (to, answer) in self.shared.take_mail() {
            self.reply(to, &answer);
        }
    }

    fn reply(&mut self, to: u64, answer: &Response) {
        let Some(Source::Line(line)) = self.sources.get_mut(&to) else { return };
        line.write(answer);
        self.settle_line(to);
    }

    /// Whatever had until now and did not make it.
    fn expire(&mut self) {
        let now = Instant::now();
        while let Some((at, token)) = self.deadlines.first().copied() {
            if at > now {
                return;
            }
            self.deadlines.pop_first();
            match self.sources.get(&token) {
                Some(Source::Arrival(_)) => drop(self.remove(token)),
                Some(Source::Life(_)) => self.judge(token),
                Some(Source::Member(_)) => self.listen_again(token),
                _ => {}
            }
        }
    }

    /// Ends the tenants that nobody needs any more, and shuts their doors. What has changed is decided upon with the next tick.
    fn sweep(&mut self) {
        let over = {
            let mut registry = self.shared.registry();
            let over = registry.sweep();
            if registry.is_anew() {
                self.shared.hasten(&mut registry);
            }
            over
        };
        for (tenant, name) in over {
            self.shut_door(tenant, &name);
            tracing::info!(tenant = %name, "the tenant has ended; its budget is free");
        }
    }
}
