//! The board: who else is on a GPU, and whether they have work there now.
//!
//! The manager sends a notice with the neighbours' activity pages whenever tenants come or go, and raises a number on the
//! grant page first. A process that finds the number moved looks for the notice; until it has come it does not know.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use weir_core::lock::{Guard, Lock};
use weir_core::overlap::{Beside, Presence};
use weir_core::turn::{self, Seen};
use weir_protocol::mapping::{Access, Mapped};
use weir_protocol::message::{Notice, Standing};
use weir_protocol::pages::{ActivityPage, NO_BOARD, Precedence, Turn};
use weir_protocol::units::Nanos;

use crate::clock;

use super::Client;
use super::betters::Better;
use super::connection::file_of;

/// The neighbours on one GPU.
#[derive(Default)]
pub struct Board(Lock<Neighbours>);

struct Neighbours {
    board: u32,
    complete: bool,
    pages: Vec<Neighbour>, // those with whom turns are taken first
    equals: usize,
}

/// One of them.
pub struct Neighbour {
    page: Arc<Mapped<ActivityPage>>,
    seen: Seen,
    precedence: Precedence,
    presence: Presence,
}

impl Neighbour {
    /// Its page, to be kept beyond a change of the board.
    pub fn page(&self) -> Arc<Mapped<ActivityPage>> {
        self.page.clone()
    }

    /// Looks what it has been up to.
    pub fn look(&mut self) {
        self.presence.look(self.page.occupancy(None), clock::now);
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

    fn precedence(&self) -> Precedence {
        self.precedence
    }
}

impl Default for Neighbours {
    /// Nobody, as long as the grant page's number is zero.
    fn default() -> Self {
        Self { board: 0, complete: true, pages: Vec::new(), equals: 0 }
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

    /// The same of those with whom the tenant takes turns.
    pub fn with_equals<R>(&self, board: u32, f: impl FnOnce(&mut [Neighbour]) -> R) -> Option<R> {
        let mut neighbours = self.known(board)?;
        let equals = neighbours.equals;
        neighbours.pages.get_mut(..equals).map(f)
    }

    /// Whether anybody on the GPU gives way to the tenant, or may.
    pub fn has_others(&self, board: u32) -> bool {
        self.known(board).is_none_or(|neighbours| neighbours.pages.len() > neighbours.equals)
    }

    fn known(&self, board: u32) -> Option<Guard<'_, Neighbours>> {
        if board == NO_BOARD {
            return None; // switched off: no notice will come
        }
        // Another thread that looks is waited for: whom nobody knows nobody waits for, and a launch would go out of its turn.
        let mut neighbours = self.0.lock();
        if neighbours.board != board {
            drop(neighbours);
            Client::get()?.take_notices();
            neighbours = self.0.lock();
        }
        (neighbours.board == board && neighbours.complete).then_some(neighbours)
    }

    /// Whether there is nobody with whom to take turns.
    pub fn is_empty(&self, board: u32) -> bool {
        self.known(board).is_none_or(|neighbours| neighbours.equals == 0)
    }

    /// Takes in what the manager says; returns those to whom the tenant gives way.
    pub fn replace(&self, notice: &Notice, pages: &[OwnedFd]) -> Vec<Better> {
        let open = |page: &OwnedFd| {
            let file = file_of(page.as_fd())?;
            Some(Better { file, page: Arc::new(Mapped::open(page, Access::ReadOnly).ok()?) })
        };
        let opened: Option<Vec<_>> = pages.iter().map(open).collect();
        let complete = notice.complete && opened.is_some() && notice.standings.len() == pages.len();
        let mut standing: Vec<_> = notice.standings.iter().copied().zip(opened.unwrap_or_default()).collect();
        standing.sort_by_key(|(standing, _)| standing.precedence().is_none());
        let equals = standing.iter().take_while(|(standing, _)| standing.precedence().is_some()).count();
        let neighbour = |(standing, known): &(Standing, Better)| Neighbour {
            page: known.page.clone(),
            seen: Seen::default(),
            precedence: standing.precedence().unwrap_or_default(),
            presence: Presence::default(),
        };
        let pages = standing.iter().map(neighbour).collect();
        let now = Neighbours { board: notice.board, complete, pages, equals };
        // Unmapped at the end, while nobody waits for it.
        let _before = std::mem::replace(&mut *self.0.lock(), now);
        let betters = standing.into_iter().filter(|(standing, _)| *standing == Standing::Better);
        betters.map(|(_, better)| better).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const BOARD: u32 = 1;

    /// A board with tenants that stand so.
    fn board(standings: &[Standing]) -> Board {
        let (files, pages): (Vec<OwnedFd>, Vec<_>) =
            standings.iter().map(|_| Mapped::<ActivityPage>::create("test").unwrap()).unzip();
        (1..).zip(&pages).for_each(|(number, page)| page.init(number));
        let (board, standings) = (Board::default(), standings.to_vec());
        board.replace(&Notice { gpu: 0, board: BOARD, complete: true, standings }, &files);
        board
    }

    #[test]
    fn those_with_whom_turns_are_taken_are_told_from_the_others() {
        let board = board(&[Standing::Better, Standing::Equal, Standing::Lesser, Standing::Later]);
        assert_eq!(board.with(BOARD, |all| all.len()), Some(4));
        assert_eq!(board.with_equals(BOARD, |equals| equals.len()), Some(2));
        assert!(!board.is_empty(BOARD) && board.has_others(BOARD) && board.quiet(BOARD).is_some());
    }

    #[test]
    fn a_board_that_another_thread_looks_at_is_not_taken_for_empty() {
        let (board, looks) = (board(&[Standing::Equal]), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                board.with(BOARD, |_| {
                    looks.wait();
                    (0..1_000).for_each(|_| std::thread::yield_now());
                })
            });
            looks.wait();
            assert!(!board.is_empty(BOARD) && board.quiet(BOARD).is_some());
        });
    }

    #[test]
    fn nobody_is_known_while_the_manager_is_switched_off() {
        assert_eq!(board(&[Standing::Equal]).with(NO_BOARD, |_| ()), None);
    }
}
