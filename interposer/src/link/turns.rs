//! This process's part in taking turns with the tenants beside it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::thread::futex;
use weir_core::gate::in_flight;
use weir_core::lock::Lock;
use weir_core::turn::{self, Answer, LEAD, Terms};
use weir_protocol::mapping::Mapped;
use weir_protocol::pages::{ActivityPage, Gate, Stand};
use weir_protocol::units::Nanos;

use super::Gpu;
use super::board::Neighbour;

/// When something of the tenant's work was last seen to be done.
#[derive(Default)]
pub struct Progress(Lock<(u64, Nanos)>);

/// What keeps a launch from going.
pub enum Held {
    /// Nothing, as far as turns are concerned.
    No,
    /// The turn is over; it is passed on in so long, when the work is done.
    Over(Nanos),
    /// A neighbour. Its page, and what it shows.
    Behind(Arc<Mapped<ActivityPage>>, u32),
    /// Another thread is queueing up.
    Queueing,
}

impl Gpu {
    /// Whether a launch that has been waiting since `arrived` may go. Without neighbours, while they are not known, or
    /// where their work and ours run at once: always.
    pub fn ask_turn(&self, arrived: Nanos, now: Nanos) -> Held {
        if self.overlaps() {
            return Held::No;
        }
        let own = &self.activity.turn;
        let held_before = own.look().0 == Stand::Holds;
        let asked = self.board.with_equals(self.grant.board(), |neighbours| {
            if neighbours.is_empty() {
                return (Answer::Mine, None);
            }
            let grant = self.grant.read();
            let saved = self.gate.has_saved(self.pages(), &grant, now);
            let terms = Terms { length: Nanos(grant.resume_at.0.unsigned_abs()), saved };
            let answer = turn::ask(own, neighbours, terms, arrived, now);
            let page = match answer {
                Answer::Behind(at, _) => neighbours.get(at).map(Neighbour::page),
                _ => None,
            };
            (answer, page)
        });
        match asked {
            Some((Answer::Mine, _)) if !held_before => {
                self.progress.0.lock().1 = now; // what it launches begins now
                Held::No
            }
            Some((Answer::Over, _)) => self.pass_on(now).map_or(Held::Queueing, Held::Over),
            Some((Answer::Queueing, _)) => Held::Queueing,
            Some((Answer::Behind(_, word), Some(page))) => Held::Behind(page, word),
            _ => Held::No,
        }
    }

    /// Whether launches go without asking: no better has work, and the tenant holds the turn, or has nobody to take turns
    /// with.
    pub fn has_turn(&self) -> bool {
        let own = &self.activity.turn;
        self.gives_way_to().is_none()
            && ((own.look().0 == Stand::Holds && own.left() > 0)
                || self.overlaps()
                || self.board.is_empty(self.grant.board()))
    }

    /// Who has work to whom the tenant gives way, unless the manager lends it the time all the same; and where its counter
    /// of edges stands.
    pub fn gives_way_to(&self) -> Option<(Arc<Mapped<ActivityPage>>, u32)> {
        let better = self.betters.look().err();
        let gives_way = better.is_some() && self.grant.read().gate != Gate::Lent;
        if gives_way && !self.closed.swap(true, Ordering::Relaxed) {
            self.gate.close(self.pages());
        }
        if !gives_way {
            self.closed.store(false, Ordering::Relaxed);
        }
        better.filter(|_| gives_way)
    }

    /// Tokens that may be drawn at once in what is left of the turn.
    pub fn turn_ceiling(&self) -> i64 {
        let own = &self.activity.turn;
        if own.look().0 == Stand::Holds { own.left().max(1) } else { i64::MAX }
    }

    /// The tenant has nothing to launch, or no tokens to launch it with: the turn is passed on when its work is done.
    pub fn leave_turn(&self, now: Nanos) -> Option<Nanos> {
        self.activity.turn.forfeit();
        self.pass_on(now)
    }

    /// Passes the turn on if the tenant holds it and its work is done, or nearly so; else says in how long that will be.
    pub fn pass_on(&self, now: Nanos) -> Option<Nanos> {
        let left = self.work_left(now);
        if left > LEAD {
            return Some(Nanos(left.0 - LEAD.0));
        }
        self.end_turn();
        None
    }

    /// Ends the tenant's turn, if it holds one.
    pub fn end_turn(&self) {
        let own = &self.activity.turn;
        if own.end() {
            self.stop_flowing();
            let _ = futex::wake(own.futex_word(), futex::Flags::empty(), WAITERS);
        }
    }

    /// Predicted work of the tenant that is not done yet, less the time since any of it was last seen to be done.
    fn work_left(&self, now: Nanos) -> Nanos {
        self.book_runs();
        let slots = &self.usage.slots;
        let queued: u64 = slots.iter().map(|slot| in_flight(slot).0).fold(0, u64::saturating_add);
        // Relaxed: sums that only grow.
        let done =
            slots.iter().map(|slot| slot.completed_ns.load(Ordering::Relaxed)).fold(0, u64::wrapping_add);
        // Beside a neighbour's work ours takes longer than predicted, nobody knows by how much.
        let beside = self.neighbours().is_none();
        let mut progress = self.progress.0.lock();
        if queued == 0 || progress.0 != done || beside {
            *progress = (done, now);
        }
        Nanos(queued.saturating_sub(now.since(progress.1).0))
    }
}

/// Everybody who waits for the turn.
const WAITERS: u32 = i32::MAX.unsigned_abs();
