//! This process's part in taking turns with the tenants beside it: what [`admission`] wants to know of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;
use weir_core::admission::{self, Launching, SHORTEST};
use weir_core::gate::{self, in_flight};
use weir_core::hold::Terms;
use weir_core::price::Estimate;
use weir_core::progress::{Progress, Work};
use weir_core::turn::ROOM;
use weir_protocol::mapping::Mapped;
use weir_protocol::pages::{ActivityPage, Gate, Stand, Turn};
use weir_protocol::units::Nanos;

use super::board::Neighbour;
use super::solo::Sibling;
use super::{Client, Gpu, helper};
use crate::clock;

/// A neighbour's word to sleep on, and what it shows.
#[derive(Clone)]
pub enum Watched {
    /// It is its turn.
    Turn(Arc<Mapped<ActivityPage>>, u32),
    /// It has work to which this tenant gives way.
    Edges(Arc<Mapped<ActivityPage>>, u32),
    /// It is its turn: another process of the tenant.
    Sibling(&'static Turn, u32),
}

impl Watched {
    /// The word, and what it shows.
    pub fn word(&self) -> (&AtomicU32, u32) {
        match self {
            Self::Turn(page, shows) => (page.turn.futex_word(), *shows),
            Self::Edges(page, shows) => (page.futex_word(), *shows),
            Self::Sibling(turn, shows) => (turn.futex_word(), *shows),
        }
    }

    /// Whether it shows something else by now.
    pub fn has_moved(&self) -> bool {
        let (word, shows) = self.word();
        word.load(Ordering::Relaxed) != shows
    }

    /// How long to sleep on it at most, if not for `time` anyway: one that has drained no longer counts as at work soon.
    pub fn at_most(&self, time: Nanos) -> Nanos {
        match self {
            Self::Edges(page, _) if page.quiet(None).is_some() => {
                time.min(page.standing.grace().max(SHORTEST))
            }
            _ => time,
        }
    }
}

impl Gpu {
    /// Whether launches go without asking.
    pub fn has_turn(&self) -> bool {
        self.goes_first() || (admission::has_turn(&self) && self.who_goes_first().is_none())
    }

    /// Whether it is the tenant's turn.
    pub fn holds_turn(&self) -> bool {
        self.activity.turn.look().0 == Stand::Holds
    }

    /// Who has work to whom the tenant gives way, unless the manager lends it the time all the same.
    pub fn gives_way_to(&self) -> Option<Watched> {
        let (better, edges) = self.betters.look(clock::now).err()?;
        (self.grant.read().gate != Gate::Lent).then_some(Watched::Edges(better, edges))
    }

    /// The launch at hand is to be measured, or is not: its turn goes by that.
    pub fn room_for(&self, estimate: &Estimate) {
        let room = if estimate.wants_room() { ROOM } else { Nanos(0) };
        if self.room.load(Ordering::Relaxed) != room.0 {
            self.room.store(room.0, Ordering::Relaxed); // of several threads the last one that says it is right
        }
    }

    /// Nothing of this process is on the GPU any more.
    pub fn burst_ended(&self) {
        if self.holder.is_on() {
            self.holder.ended(self.submitted(), clock::now());
        }
    }

    /// What is known to be done, of all the tenant's processes.
    pub fn done(&self) -> u64 {
        let slots = self.usage.slots.iter();
        // Relaxed: sums that only grow.
        slots.map(|slot| slot.completed_ns.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    fn submitted(&self) -> u64 {
        self.slot().submitted_ns.load(Ordering::Relaxed)
    }

    /// The tenant's turn has been passed on.
    pub fn turn_passed(&self) {
        self.stop_flowing();
        let _ = futex::wake(self.activity.turn.futex_word(), futex::Flags::empty(), WAITERS);
    }
}

/// Everybody who waits for the turn.
const WAITERS: u32 = i32::MAX.unsigned_abs();

impl Launching for &Gpu {
    type Word = Watched;
    type Neighbour = Neighbour;
    type Sibling = Sibling;

    fn gate(&self) -> &gate::Gate {
        &self.gate
    }

    fn pages(&self) -> gate::Pages<'_> {
        Gpu::pages(self)
    }

    fn turn(&self) -> &Turn {
        &self.activity.turn
    }

    fn gives_way_to(&self) -> Option<Watched> {
        Gpu::gives_way_to(self)
    }

    fn passes(&self) -> bool {
        Gpu::passes(self)
    }

    fn beyond_share(&mut self, now: Nanos) -> Option<Nanos> {
        Gpu::beyond_share(self, now)
    }

    fn goes_first(&self) -> bool {
        Gpu::goes_first(self)
    }

    fn is_contended(&mut self) -> bool {
        Gpu::is_contended(self)
    }

    fn who_goes_first(&mut self) -> Option<Watched> {
        Gpu::who_goes_first(self)
    }

    fn keeps_turn(&self) -> bool {
        // Without a helper no one would end the turn.
        helper::runs() && self.nearly_always_rests_shortly()
    }

    fn is_back_soon(&self, now: Nanos) -> bool {
        self.activity.standing.grace_left(now).is_some_and(|left| left > Nanos(0))
    }

    fn set_gives_way(&mut self, gives_way: bool) {
        self.activity.standing.set_gives_way(gives_way);
    }

    fn piece(&self) -> Nanos {
        Gpu::piece(self)
    }

    fn runs_ahead(&self) -> bool {
        Gpu::runs_ahead(self)
    }

    /// The ranks of a gang would wait for each other, and without a manager nobody knows what there is to spare.
    fn held_back(&self, arrived: Nanos, now: Nanos) -> Option<Nanos> {
        let grant = self.grant.read();
        let in_a_gang = || Client::get().is_none_or(|client| client.gpus.len() > 1);
        if Gpu::is_busy(self) || grant.hold == Nanos(0) && !self.holder.is_on() {
            return None;
        }
        let nothing_to_spare = in_a_gang() || self.gate.is_left_alone(Gpu::pages(self), now);
        let hold = if nothing_to_spare { Nanos(0) } else { grant.hold };
        self.holder.ask(Terms { hold, request: grant.fallback_rate }, self.submitted(), arrived, now)
    }

    fn is_alone(&self) -> bool {
        self.overlaps() || self.board.is_empty(self.grant.board())
    }

    fn has_neighbours(&self) -> bool {
        self.board.with(self.grant.board(), |neighbours| !neighbours.is_empty()).unwrap_or(false)
    }

    fn queue<R>(&mut self, ask: impl FnOnce(&Turn, &mut [Neighbour]) -> R) -> Option<R> {
        self.board.with_equals(self.grant.board(), |neighbours| ask(&self.activity.turn, neighbours))
    }

    fn word(neighbour: &Neighbour, shows: u32) -> Watched {
        Watched::Turn(neighbour.page(), shows)
    }

    fn is_busy(&self) -> bool {
        Gpu::is_busy(self)
    }

    fn switch(&self) -> Nanos {
        self.switch
    }

    fn with_progress<R>(&mut self, look: impl FnOnce(&mut Progress) -> R) -> R {
        look(&mut self.progress.lock())
    }

    fn work(&self) -> Work {
        self.book_runs();
        let (slots, done) = (&self.usage.slots, self.done());
        let queued = slots.iter().map(|slot| in_flight(slot).0).fold(0, u64::saturating_add);
        Work { queued, done, beside: self.neighbours().quiet.is_none() }
    }

    fn turn_passed(&mut self) {
        Gpu::turn_passed(self);
    }

    fn room(&self) -> Nanos {
        Nanos(self.room.load(Ordering::Relaxed))
    }

    fn is_solo(&self) -> bool {
        Gpu::is_solo(self)
    }

    fn solo<R>(&mut self, ask: impl FnOnce(&Turn, &mut [Sibling]) -> R) -> Option<R> {
        Gpu::solo(self, ask)
    }

    fn solo_turn(&self) -> Nanos {
        Gpu::solo_turn(self)
    }

    fn sibling_word(sibling: &Sibling, shows: u32) -> Watched {
        Watched::Sibling(sibling.turn, shows)
    }

    fn solo_passed(&mut self) {
        Gpu::solo_passed(self);
    }
}
