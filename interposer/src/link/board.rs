//! The board: who else is on a GPU, and whether they have work there now.
//!
//! The manager sends a notice with the neighbours' activity pages whenever tenants come or go, and raises a number on the
//! grant page first. A process that finds the number moved looks for the notice; until it has come it does not know.

use std::mem::take;
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
use super::connection::{File, file_of};

/// What a neighbour did so long ago it does still: a program that waits for each of its steps is away between any two.
const LATELY: Nanos = Nanos::from_millis(100);

/// The neighbours on one GPU.
#[derive(Default)]
pub struct Board(Lock<Neighbours>);

struct Neighbours {
    board: u32,
    complete: bool,
    pages: Vec<Neighbour>, // those with whom turns are taken first
    equals: usize,
    gone: Vec<Presence>, // of who was there until lately: work that is measured now may have run beside it
}

/// One of them.
pub struct Neighbour {
    file: File,
    page: Arc<Mapped<ActivityPage>>,
    seen: Seen,
    precedence: Precedence,
    presence: Presence,
    works: Moves, // its counter of work that began or ended
    turns: Moves, // its word in the queue for turns
}

/// A word of a neighbour's, and since when it shows this.
#[derive(Clone, Copy, Default)]
struct Moves {
    word: u32,
    since: Nanos,
}

impl Moves {
    /// How long it has stood still.
    fn still(&mut self, word: u32, now: Nanos) -> Nanos {
        if word != self.word {
            *self = Self { word, since: now };
        }
        now.since(self.since)
    }
}

impl Neighbour {
    /// How long it has begun and ended no work, as far as was seen here.
    pub fn rests_for(&mut self, now: Nanos) -> Nanos {
        self.works.still(self.page.edges(), now)
    }

    /// Whether it has wanted turns of late, as far as was seen here.
    pub fn wants_turns(&mut self, now: Nanos) -> bool {
        let still = self.turns.still(self.page.turn.look().1, now);
        self.page.turn.is_there() || still < LATELY
    }

    /// Its page, to be kept beyond a change of the board.
    pub fn page(&self) -> Arc<Mapped<ActivityPage>> {
        self.page.clone()
    }

    /// What it shows.
    pub fn activity(&self) -> &ActivityPage {
        &self.page
    }

    /// Looks what it has been up to.
    fn look(&mut self) {
        self.presence.look(self.page.occupancy(None), clock::now);
    }

    /// As `known` by its page; what was seen of it `before` stays.
    fn of(standing: Standing, known: &Better, before: &mut [Self]) -> Self {
        let old = before.iter_mut().find(|neighbour| neighbour.file == known.file);
        let (seen, presence, works, turns) = old
            .map(|old| (take(&mut old.seen), take(&mut old.presence), old.works, old.turns))
            .unwrap_or_default();
        let precedence = standing.precedence().unwrap_or_default();
        Self { file: known.file, page: known.page.clone(), seen, precedence, presence, works, turns }
    }

    /// What is kept of one that has gone.
    fn leave(&mut self) -> Presence {
        self.look();
        self.presence.leave();
        take(&mut self.presence)
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
        Self { board: 0, complete: true, pages: Vec::new(), equals: 0, gone: Vec::new() }
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

    /// How often any of them has ended work (see [`ActivityPage::ended`]); `None` if they are not known.
    pub fn ended(&self, board: u32) -> Option<u64> {
        let neighbours = self.known(board)?;
        let ended = neighbours.pages.iter().map(|neighbour| neighbour.page.ended(None));
        Some(ended.fold(0, u64::wrapping_add))
    }

    /// Whether any of them takes no turns, as far as is known.
    pub fn any_passes(&self, board: u32) -> bool {
        self.known(board)
            .is_none_or(|neighbours| neighbours.pages.iter().any(|neighbour| neighbour.page.passes()))
    }

    /// Asks `f` about the neighbours; `None` if they are not known.
    pub fn with<R>(&self, board: u32, f: impl FnOnce(&mut [Neighbour]) -> R) -> Option<R> {
        Some(f(&mut self.known(board)?.pages))
    }

    /// Looks what the neighbours have been up to.
    pub fn look(&self, board: u32) {
        let Some(mut neighbours) = self.known(board) else { return };
        neighbours.pages.iter_mut().for_each(Neighbour::look);
        let now = clock::now();
        neighbours.gone.retain_mut(|presence| presence.fade(now));
    }

    /// Adds what the neighbours were up to from one moment to another.
    pub fn add_over(&self, board: u32, time: (Nanos, Nanos), present: &mut Vec<Beside>) {
        let Some(neighbours) = self.known(board) else { return };
        let there = neighbours.pages.iter().map(|neighbour| &neighbour.presence);
        present.extend(there.chain(&neighbours.gone).map(|presence| presence.over(time)));
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

    /// Takes in what the manager says; returns those to whom the tenant gives way. What was seen of who stays stays, and what was
    /// seen of who has gone for as long as it may matter, if tenants' kernels run `at_once`.
    pub fn replace(&self, notice: &Notice, pages: &[OwnedFd], at_once: bool) -> Vec<Better> {
        let open = |page: &OwnedFd| {
            let file = file_of(page.as_fd())?;
            Some(Better { file, page: Arc::new(Mapped::open(page, Access::ReadOnly).ok()?) })
        };
        let opened: Option<Vec<_>> = pages.iter().map(open).collect();
        let complete = notice.complete && opened.is_some() && notice.standings.len() == pages.len();
        let mut standing: Vec<_> = notice.standings.iter().copied().zip(opened.unwrap_or_default()).collect();
        standing.sort_by_key(|(standing, _)| standing.precedence().is_none());
        let equals = standing.iter().take_while(|(standing, _)| standing.precedence().is_some()).count();
        let stays = |old: &&mut Neighbour| standing.iter().any(|(_, known)| known.file == old.file);
        let mut before; // unmapped at the end, while nobody waits for it
        let mut neighbours = self.0.lock();
        before = take(&mut neighbours.pages);
        let of = |(standing, known): &(Standing, Better)| Neighbour::of(*standing, known, &mut before);
        neighbours.pages = standing.iter().map(of).collect();
        if at_once {
            let left = before.iter_mut().filter(|old| !stays(old));
            neighbours.gone.extend(left.map(Neighbour::leave));
        }
        (neighbours.board, neighbours.complete, neighbours.equals) = (notice.board, complete, equals);
        drop(neighbours);
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
        board.replace(&Notice { gpu: 0, board: BOARD, complete: true, standings }, &files, false);
        board
    }

    #[test]
    fn what_a_neighbour_held_counts_also_when_others_come_and_when_it_has_gone() {
        let (board, one, two) =
            (Board::default(), Mapped::<ActivityPage>::create("test"), Mapped::create("test"));
        let ((first, page), (second, other)) = (one.unwrap(), two.unwrap());
        page.init(1);
        ActivityPage::init(&other, 2);
        let say = |number, files: &[&OwnedFd]| {
            let files: Vec<_> = files.iter().map(|file| file.try_clone().unwrap()).collect();
            let standings = vec![Standing::Equal; files.len()];
            board.replace(&Notice { gpu: 0, board: number, complete: true, standings }, &files, true);
        };
        say(1, &[&first]);
        board.look(1);
        let begun = clock::now();
        page.begin(0, || begun);
        board.look(1);
        let until = clock::now();
        let there = |number| {
            let mut present = Vec::new();
            board.look(number);
            board.add_over(number, (begun, until), &mut present);
            present.iter().map(|beside: &Beside| beside.part).fold(0.0, f64::max)
        };
        // Of the same nanoseconds, by sums of floats.
        let all_along = |number| (there(number) - 1.0).abs() < 1e-12;
        assert!(all_along(1));
        say(2, &[&second, &first]);
        assert!(all_along(2), "another one came");
        say(3, &[&second]);
        assert!(all_along(3), "it has gone");
        assert_eq!(board.with(3, |all| all.len()), Some(1));
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
