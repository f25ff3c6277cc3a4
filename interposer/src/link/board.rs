//! The board: who else is on a GPU, and whether they have work there now.
//!
//! The manager sends a notice with the neighbours' activity pages whenever tenants come or go, and raises a number on the
//! grant page first. A process that finds the number moved looks for the notice; until it has come it does not know.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use weir_core::lock::{Guard, Lock};
use weir_core::overlap::{Beside, Presence};
use weir_core::turn::{self, Seen};
use weir_protocol::mapping::{Access, MapError, Mapped};
use weir_protocol::message::Notice;
use weir_protocol::pages::{ActivityPage, Turn};
use weir_protocol::units::Nanos;

use super::Client;

/// The neighbours on one GPU.
#[derive(Default)]
pub struct Board(Lock<Neighbours>);

struct Neighbours {
    board: u32,
    complete: bool,
    pages: Vec<Neighbour>,
}

/// One of them.
pub struct Neighbour {
    page: Arc<Mapped<ActivityPage>>,
    seen: Seen,
    presence: Presence,
}

impl Neighbour {
    /// Its page, to be kept beyond a change of the board.
    pub fn page(&self) -> Arc<Mapped<ActivityPage>> {
        self.page.clone()
    }

    /// Looks what it has been up to since `before`.
    pub fn look(&mut self, before: Nanos, now: Nanos) {
        self.presence.look(self.page.occupancy(None), before, now);
    }

    /// What it was up to from one moment to another.
    pub fn over(&self, time: (Nanos, Nanos)) -> Beside {
        self.presence.over(time)
    }
}

impl turn::Neighbour for Neighbour {
    fn turn(&self) -> &Turn {
        &self.page.turn
    }

    fn seen(&mut self) -> &mut Seen {
        &mut self.seen
    }
}

impl Default for Neighbours {
    /// Nobody, as long as the grant page's number is zero.
    fn default() -> Self {
        Self { board: 0, complete: true, pages: Vec::new() }
    }
}

impl Board {
    /// The sum of all neighbours' words (see [`ActivityPage::quiet`]); `None` also if they are not known. `board` is the
    /// number on the grant page.
    pub fn quiet(&self, board: u32) -> Option<u64> {
        let neighbours = self.known(board)?;
        let mut words = neighbours.pages.iter().map(|neighbour| neighbour.page.quiet(None));
        words.try_fold(0u64, |sum, word| Some(sum.wrapping_add(word?)))
    }

    /// Asks `f` about the neighbours; `None` if they are not known.
    pub fn with<R>(&self, board: u32, f: impl FnOnce(&mut [Neighbour]) -> R) -> Option<R> {
        Some(f(&mut self.known(board)?.pages))
    }

    fn known(&self, board: u32) -> Option<Guard<'_, Neighbours>> {
        let mut neighbours = self.0.try_lock()?;
        if neighbours.board != board {
            drop(neighbours);
            Client::get()?.take_notices();
            neighbours = self.0.try_lock()?;
        }
        (neighbours.board == board && neighbours.complete).then_some(neighbours)
    }

    /// Whether there is nobody else.
    pub fn is_empty(&self, board: u32) -> bool {
        self.known(board).is_none_or(|neighbours| neighbours.pages.is_empty())
    }

    /// Takes in what the manager says.
    pub fn replace(&self, notice: &Notice, pages: &[OwnedFd]) {
        let open = |page| {
            let page = Arc::new(Mapped::open(page, Access::ReadOnly)?);
            Ok::<_, MapError>(Neighbour { page, seen: Seen::default(), presence: Presence::default() })
        };
        let pages: Result<Vec<_>, _> = pages.iter().map(open).collect();
        let complete = notice.complete && pages.is_ok();
        *self.0.lock() = Neighbours { board: notice.board, complete, pages: pages.unwrap_or_default() };
    }
}
