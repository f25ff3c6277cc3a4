//! Pieces: launches that wait in their streams, each behind a wait for a number, and are let go together. So the host runs ahead
//! while its tenant waits, and the GPU does not idle while a thread wakes up.
//!
//! ```text
//!   stream   ... work | wait for 7 | launch launch launch | wait for 8 | launch ...
//!   number   6: piece 7 waits. A store of 7 does, and no call of the driver.
//! ```
//!
//! Numbers only grow, so it does not matter when the GPU looks. Who lets pieces go asks the gate for each as a launch on the host does
//! for itself ([`crate::admission`]).

use std::collections::VecDeque;

use weir_protocol::sync::{AtomicBool, Ordering, fence};
use weir_protocol::units::Nanos;

use crate::lock::Lock;

/// Most predicted work of a piece of several launches where somebody may come who goes first, and of fillers: so long that one waits at
/// most. Half of it costs twice the waits, some microseconds of the GPU each; twice of it is too much in a pause of a millisecond.
pub const PIECE: Nanos = Nanos::from_micros(500);

/// Among tenants that only take turns a piece is this part of one: that is how early or late a turn may end.
const OF_A_TURN: u64 = 8;

/// Most launches of a piece.
const LAUNCHES: u64 = 128;

/// The host runs ahead by so many launches at most: the driver's queue holds twice as many, and who fills that holds the driver's
/// locks ...
const RUN_AHEAD: u64 = 512;

/// ... and by this amount of predicted work. Half of it shows the pauses of a host that loads data; twice of it goes as debt when a context ends
/// with launches in it.
const AHEAD: Nanos = Nanos::from_millis(100);

/// How much of a tenant's work forms a piece, when its turns are this long and `cap` may be in flight; 0: any amount.
pub fn size(turn: Nanos, beside_first: bool, cap: Nanos) -> Nanos {
    let size = if beside_first { PIECE } else { PIECE.max(Nanos(turn.0 / OF_A_TURN)) };
    if cap == Nanos(0) { size } else { size.min(cap) }
}

/// Launches that are let go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its streams wait for this.
    pub number: u64,
    /// What its launches are predicted to take, in nanoseconds.
    pub work: u64,
    /// So many launches.
    pub launches: u64,
    /// When the first of them was put there.
    pub since: Nanos,
}

/// A launch has joined a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The piece.
    pub number: u64,
    /// Whether its stream has no wait for that yet.
    pub waits: bool,
    /// Whether nothing waited before.
    pub is_first: bool,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Piece>, // oldest first; the last one may grow
    asked: u64,              // number of the last one that ever was
    launches: u64,
    work: u64,
}

/// The pieces of one process on one GPU.
#[derive(Debug, Default)]
pub struct Pieces {
    any: AtomicBool,
    flow: AtomicBool, // launches that follow others go on without asking
    queue: Lock<Queue>,
}

impl Pieces {
    /// Whether any piece waits: then every launch has to wait, too.
    pub fn any_wait(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether launches that follow others go on without asking: for the launch path.
    #[inline]
    pub fn flow(&self) -> bool {
        self.flow.load(Ordering::Relaxed)
    }

    /// They do from now on, unless a piece waits.
    pub fn start_flow(&self) {
        self.flow.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // as in `join`: either this finds the piece that another thread has begun, or that one stops it
        if self.any_wait() {
            self.stop_flow();
        }
    }

    /// The next launch shall ask.
    pub fn stop_flow(&self) {
        self.flow.store(false, Ordering::Relaxed);
    }

    /// A launch at this price waits in a stream that waits for the piece of number `behind`, if for any; pieces are of this `size`.
    pub fn join(&self, behind: u64, price: u64, size: Nanos, now: Nanos) -> Joined {
        let mut queue = self.queue.lock();
        let is_first = queue.pieces.is_empty();
        let fits = |piece: &&Piece| piece.launches < LAUNCHES && piece.work.saturating_add(price) <= size.0;
        if queue.pieces.back().filter(fits).is_none() {
            queue.open(now);
        }
        self.any.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.stop_flow();
        queue.launches += 1;
        queue.work = queue.work.saturating_add(price);
        let number = queue.pieces.back_mut().map_or(behind, |piece| {
            piece.launches += 1;
            piece.work = piece.work.saturating_add(price);
            piece.number
        });
        Joined { number, waits: behind < number, is_first }
    }

    /// Whether the host has run ahead so far that it is to wait.
    pub fn are_full(&self) -> bool {
        let queue = self.queue.lock();
        queue.launches >= RUN_AHEAD || queue.work >= AHEAD.0
    }

    /// The piece that goes next.
    pub fn next(&self) -> Option<Piece> {
        self.queue.lock().pieces.front().copied()
    }

    /// Takes the piece of this number off the queue, if it is the next one: the number is to be stored now.
    pub fn take(&self, number: u64) -> Option<Piece> {
        let mut queue = self.queue.lock();
        let piece = queue.pieces.pop_front_if(|piece| piece.number == number)?;
        queue.launches = queue.launches.saturating_sub(piece.launches);
        queue.work = queue.work.saturating_sub(piece.work);
        self.any.store(!queue.pieces.is_empty(), Ordering::Relaxed);
        Some(piece)
    }

    /// The number of the last piece that ever was.
    pub fn last(&self) -> u64 {
        self.queue.lock().asked
    }

    /// The number of the last piece that was let go.
    pub fn last_gone(&self) -> u64 {
        let queue = self.queue.lock();
        queue.pieces.front().map_or(queue.asked, |piece| piece.number - 1)
    }
}

impl Queue {
    fn open(&mut self, now: Nanos) {
        if self.pieces.capacity() == 0 {
            self.pieces.reserve(usize::try_from(RUN_AHEAD).unwrap_or(0));
        }
        self.asked += 1;
        self.pieces.push_back(Piece { number: self.asked, work: 0, launches: 0, since: now });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn launches_share_a_piece_until_it_is_full_and_each_stream_waits_once_for_each_piece() {
        let pieces = Pieces::default();
        let join = |behind, us: u64| pieces.join(behind, us * 1_000, PIECE, Nanos(7));
        assert_eq!(join(0, 200), Joined { number: 1, waits: true, is_first: true });
        assert_eq!(join(1, 200), Joined { number: 1, waits: false, is_first: false });
        assert_eq!(join(0, 100), Joined { number: 1, waits: true, is_first: false }, "another stream");
        assert_eq!(join(1, 1), Joined { number: 2, waits: true, is_first: false });
        assert_eq!(join(2, 9_000), Joined { number: 3, waits: true, is_first: false }, "long ones are alone");
        assert!(pieces.any_wait() && !pieces.are_full());
        assert_eq!(pieces.next(), Some(Piece { number: 1, work: 500_000, launches: 3, since: Nanos(7) }));
    }

    #[test]
    fn a_piece_that_was_let_go_takes_no_more_and_numbers_go_on() {
        let pieces = Pieces::default();
        pieces.join(0, 10, PIECE, Nanos(1));
        assert!(pieces.take(2).is_none() && pieces.last() == 1, "there is no second one");
        assert_eq!((pieces.last_gone(), pieces.take(1).map(|piece| piece.number)), (0, Some(1)));
        assert!(!pieces.any_wait() && pieces.last_gone() == 1 && pieces.take(1).is_none());
        assert_eq!(pieces.join(1, 10, PIECE, Nanos(2)), Joined { number: 2, waits: true, is_first: true });
    }

    #[test]
    fn the_host_runs_ahead_by_so_much_work_or_half_of_what_the_drivers_queue_holds() {
        let (short, long) = (Pieces::default(), Pieces::default());
        let joined = |pieces: &Pieces, ns| {
            let mut joined = 0;
            while !pieces.are_full() {
                pieces.join(0, ns, PIECE, Nanos(1));
                joined += 1;
            }
            joined
        };
        assert_eq!((joined(&short, 1_000), joined(&long, 1_000_000)), (512, 100));
        long.take(1);
        assert!(!long.are_full());
    }

    #[test]
    fn a_piece_is_small_where_somebody_may_come_and_else_a_part_of_a_turn() {
        let sizes = [(5, true, 0), (5, false, 20_000), (1, false, 0), (1, true, 300)]
            .map(|(ms, first, cap_us)| size(Nanos::from_millis(ms), first, Nanos::from_micros(cap_us)).0);
        assert_eq!(sizes, [500_000, 625_000, 500_000, 300_000]);
    }
}
