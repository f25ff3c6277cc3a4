//! A process that has been welcomed: its socket brings the bell and nothing else, and takes notices of who else is on its
//! GPUs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use weir_protocol::message::{Notice, RING, Standing};
use weir_protocol::transport::{self, MAX_FDS, TransportError};

use super::arrival::take;
use super::{Poll, Source};
use crate::registry::Pages;

/// A newcomer settles when nobody has come after it for so long: a thousand may come at once, and each of them waits for
/// nothing but its pages.
const CALM: Duration = Duration::from_millis(1);

/// After so long at the latest: it registers at its first call of the driver, and has no context until long after that.
const SETTLED_WITHIN: Duration = Duration::from_millis(100);

/// Newcomers that settle before others have their turn.
const NEWCOMERS: usize = 16;

/// A member that has its pages, and nothing else yet.
pub(super) struct Newcomer {
    member: u64,
    since: Instant,
    hello: Option<usize>, // it is not listened to, and so many bytes of its hello lie in the socket still
}

/// What a member's socket has brought.
enum Heard {
    /// Nothing after all.
    Nothing,
    /// The bell.
    Rings,
    /// Its end, or what no member sends.
    End,
}

/// One such process.
pub struct Member {
    socket: OwnedFd,
    /// Its life, under its own number.
    pub life: u64,
    tenant: u64,
    boards: Vec<u32>, // for each of its GPUs: what it was told last
}

impl Member {
    /// The process behind `socket`, of `tenant`; `life` is the source that watches over it.
    pub fn new(socket: OwnedFd, life: u64, tenant: u64) -> Self {
        Self { socket, life, tenant, boards: Vec::new() }
    }

    fn hear(&self) -> Heard {
        let mut bytes = [0u8; 64];
        match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((length @ 1.., _)) if bytes[..length].iter().all(|byte| *byte == RING) => Heard::Rings,
            Err(Errno::AGAIN | Errno::INTR) => Heard::Nothing,
            _ => Heard::End,
        }
    }

    /// Whether the other end is closed.
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Whatever lies in it still: a newcomer's hello does.
        poll(&mut [PollFd::new(&self.socket, PollFlags::RDHUP)], Some(&now)) == Ok(1)
    }
}

impl AsFd for Member {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Poll {
    /// The member rings, or its socket has ended. Who has rung is not listened to for a tick: by then the bell is armed anew
    /// or not needed, and a member that never stops ringing costs the loop no more than the tick does.
    pub(super) fn attend(&mut self, token: u64) {
        let Some(Source::Member(member)) = self.sources.get(&token) else { return };
        match member.hear() {
            Heard::Nothing => {}
            Heard::End => self.lose(token),
            Heard::Rings => {
                let tenant = member.tenant;
                let mut registry = self.shared.registry();
                registry.hear_bell(tenant);
                self.shared.hasten(&mut registry);
                drop(registry);
                self.listen_for(token, EventFlags::RDHUP);
                self.deadlines.insert((Instant::now() + Duration::from_micros(self.shared.tick_us), token));
            }
        }
    }

    /// A member that has rung may ring again.
    pub(super) fn listen_again(&self, token: u64) {
        self.listen_for(token, EventFlags::IN | EventFlags::RDHUP);
    }

    fn listen_for(&self, token: u64, flags: EventFlags) {
        if let Some(source) = self.sources.get(&token) {
            // Fails for no descriptor that is open and was added.
            let _ = epoll::modify(&self.epoll, self.fd_of(source), EventData::new_u64(token), flags);
        }
    }

    /// The member will settle. `hello`: nobody listens to it yet, and so much of its hello lies in its socket still.
    pub(super) fn note_newcomer(&mut self, member: u64, hello: Option<usize>) {
        self.newcomers.push_back(Newcomer { member, since: Instant::now(), hello });
    }

    /// How long until newcomers settle, if there are any.
    pub(super) fn until_calm(&self) -> Option<Duration> {
        self.newcomers.back().map(|last| CALM.saturating_sub(last.since.elapsed()))
    }

    /// Lets some newcomers settle, if nobody comes any more or they have waited for long.
    pub(super) fn settle_newcomers(&mut self) {
        let is_calm = self.until_calm().is_some_and(|left| left.is_zero());
        for _ in 0..NEWCOMERS {
            let due = |first: &Newcomer| is_calm || first.since.elapsed() >= SETTLED_WITHIN;
            if !self.newcomers.front().is_some_and(due) {
                return;
            }
            self.settle_first();
        }
    }

    /// From now on the newcomer is listened to and its life is watched, and it knows who else is on its GPUs. Who has ended
    /// meanwhile is found then.
    fn settle_first(&mut self) {
        let Some(Newcomer { member: token, hello, .. }) = self.newcomers.pop_front() else { return };
        let Some(Source::Member(member)) = self.sources.get(&token) else { return };
        let life = member.life;
        if let Some(left) = hello {
            take(&member.socket, left);
            let listens = self.listen(life, EventFlags::IN);
            let listens = listens.and_then(|()| self.listen(token, EventFlags::IN | EventFlags::RDHUP));
            if listens.is_err() {
                self.remove(token);
                return self.bury(life);
            }
        }
        self.tell_board(token);
    }

    /// Tells all members whose neighbours have changed.
    pub(super) fn tell_boards(&mut self) {
        if !self.shared.registry().take_boards_changed() {
            return;
        }
        let members = self.sources.iter().filter(|(_, source)| matches!(source, Source::Member(_)));
        let members: Vec<u64> = members.map(|(token, _)| *token).collect();
        members.into_iter().for_each(|token| self.tell_board(token));
    }

    /// Tells one member who else is on its GPUs, where it does not know. One that has too much unread is told at the next
    /// change; until then it knows from its grant page that it does not know.
    pub(super) fn tell_board(&mut self, token: u64) {
        let Some(Source::Member(member)) = self.sources.get_mut(&token) else { return };
        let registry = self.shared.registry();
        let Some(tenant) = registry.tenant(member.tenant) else { return };
        member.boards.resize(tenant.cells.len(), 0);
        for (index, (told, cell)) in member.boards.iter_mut().zip(&tenant.cells).enumerate() {
            if *told == cell.board {
                continue;
            }
            let neighbours = registry.neighbours(tenant, cell.gpu);
            if notify(&member.socket, index, cell.board, &neighbours).is_ok() {
                *told = cell.board;
            }
        }
    }
}

fn notify(
    socket: &OwnedFd,
    gpu: usize,
    board: u32,
    neighbours: &[(Standing, Arc<Pages>)],
) -> Result<(), TransportError> {
    let gpu = u32::try_from(gpu).unwrap_or(u32::MAX);
    let complete = neighbours.len() <= MAX_FDS;
    let (standings, fds) = neighbours
        .iter()
        .take(MAX_FDS)
        .map(|(standing, pages)| (*standing, pages.activity_for_neighbours()))
        .unzip::<_, _, Vec<_>, Vec<_>>();
    transport::send_now(socket, &Notice { gpu, board, complete, standings }, &fds)
}
