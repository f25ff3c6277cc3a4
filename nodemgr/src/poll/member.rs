//! A process that has been welcomed: its socket brings the bell and nothing else, and takes notices of who else is on its
//! GPUs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use weir_protocol::message::{Notice, RING, Standing};
use weir_protocol::transport::{self, MAX_FDS, TransportError};

use super::{Poll, Source};
use crate::registry::Pages;

/// A newcomer is told of its neighbours when nobody else has to be heard, and after so long at the latest: it registers at
/// its first call of the driver, and has no context until long after that.
const TOLD_WITHIN: Duration = Duration::from_millis(50);

/// Newcomers told before others have their turn.
const NEWCOMERS: usize = 16;

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
        let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(rustix::net::recv(&self.socket, &mut [0u8; 1], peek), Ok((0, _)))
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

    /// The member will be told who else is on its GPUs.
    pub(super) fn note_newcomer(&mut self, token: u64) {
        self.newcomers.push_back((Instant::now(), token));
    }

    /// Tells some of those who do not know yet, if nobody else has to be heard or they have waited for long.
    pub(super) fn tell_newcomers(&mut self, is_quiet: bool) {
        for _ in 0..NEWCOMERS {
            let Some((since, token)) = self.newcomers.front().copied() else { return };
            if !is_quiet && since.elapsed() < TOLD_WITHIN {
                return;
            }
            self.newcomers.pop_front();
            self.tell_board(token);
        }
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
