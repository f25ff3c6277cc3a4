//! Who waits on this GPU: whether this process passes without turns, and who goes first beside it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_core::admission;
use weir_core::lag::{self, Look};
use weir_core::lock::Lock;
use weir_core::pace::Pace;
use weir_core::piece::PIECE;
use weir_core::rests::Rests;
use weir_core::turn::LEAD;
use weir_protocol::message::Class;
use weir_protocol::pages::ActivityPage;
use weir_protocol::units::Nanos;

use super::board::Neighbour;
use super::{Client, Gpu, Watched, helper};
use crate::clock;

/// How things stand is looked at so often at most.
const EVERY: Nanos = Nanos::from_micros(100);

/// Who goes first and has had work within so long may be back at any moment: what is queued then runs before it. For half as long a
/// server of few requests waits for a turn's work now and then; for twice as long others let their work go in small pieces that
/// serve no purpose.
const EXPECTED: Nanos = Nanos::from_millis(1_000);

/// How this process stands here.
#[derive(Default)]
pub struct Standing {
    pace: Lock<Pace>,
    rests: Lock<Rests>,
    passes: AtomicBool,
    would_pass: AtomicBool, // if it was within its share
    drains: AtomicBool,     // the program waits for all that it has launched
    looked_at: AtomicU64,
    before: Lock<Cost>,
}

/// What the time from one look to the next costs, by how things stand at the first of them.
#[derive(Clone, Copy, Default)]
struct Cost {
    holds_up: Option<u32>,
    charged: u64,
}

/// What the neighbours make of the time, at one look.
#[derive(Default)]
struct Around {
    wanted_ppm: u64,
    passing: u32,
    any_gives_way: bool,
}

impl Around {
    fn add(&mut self, page: &ActivityPage) {
        let wants = page.quiet(None).is_none() || page.turn.is_there();
        self.wanted_ppm += if wants { u64::from(page.standing.request().as_ppm()) } else { 0 };
        self.passing += u32::from(page.works_first());
        self.any_gives_way |= page.standing.gives_way();
    }
}

impl Gpu {
    /// Whether launches of this process go without turns.
    pub fn passes(&self) -> bool {
        self.standing.passes.load(Ordering::Relaxed)
    }

    /// In how long this process passes again: it is bound by its host and beyond its share, and a neighbour that is due more takes
    /// turns. `None`: it asks as anybody does.
    pub fn beyond_share(&self, now: Nanos) -> Option<Nanos> {
        if self.passes() || !self.standing.would_pass.load(Ordering::Relaxed) {
            return None;
        }
        self.look_at_standing(now);
        let lag_ns = self.activity.standing.lag_ns();
        let is_due_more = |neighbour: &Neighbour| {
            let page = neighbour.activity();
            page.turn.is_there() && page.standing.lag_ns() > lag_ns
        };
        let any = self.board.with_equals(self.grant.board(), |all| all.iter().any(is_due_more)) == Some(true);
        any.then(|| lag::passes_again(lag_ns, self.grant.read().fallback_rate))
    }

    /// Whether others wait until its work is drained.
    pub fn goes_first(&self) -> bool {
        self.passes() && self.activity.standing.goes_first(self.slot_index())
    }

    /// Whether what it is granted holds it back, and not its limit alone: others want turns, it is a filler, or work of all runs at
    /// once.
    pub fn is_contended(&self) -> bool {
        let now = clock::now();
        let is_filler = Client::get().is_none_or(|client| client.class == Class::Filler);
        let any = |equals: &mut [Neighbour]| equals.iter_mut().any(|neighbour| neighbour.wants_turns(now));
        self.overlaps()
            || is_filler
            || self.board.with_equals(self.grant.board(), any).is_none_or(|contended| contended)
    }

    /// A launch takes the long way now.
    pub fn note_launch(&self, now: Nanos) {
        self.standing.pace.lock().launches(now, self.charged());
        self.note_rest_over(now);
        self.look_at_standing(now);
    }

    /// A launch goes on that waited at the gate.
    pub fn note_wait_over(&self, now: Nanos) {
        self.standing.pace.lock().goes_on(now, self.charged());
    }

    /// The program waits for the GPU from now on, for all that it has launched or for a part of it, ...
    pub fn note_blocks(&self, for_all: bool) {
        let now = clock::now();
        self.standing.pace.lock().blocks(now, self.charged());
        self.standing.drains.store(for_all, Ordering::Relaxed);
        if self.lets_next_in(now).is_some_and(|left| left > LEAD || self.is_waited_for()) {
            helper::call(); // which does it when the time has come, if somebody waits by then
        }
    }

    /// ... and until now.
    pub fn note_returns(&self) {
        self.standing.drains.store(false, Ordering::Relaxed);
        self.standing.pace.lock().returns(clock::now());
    }

    /// Lets the next tenant in if one waits, the program waits for all its work and that is about to end. In how long it will be.
    pub(super) fn lets_next_in(&self, now: Nanos) -> Option<Nanos> {
        if !self.standing.drains.load(Ordering::Relaxed) || !self.holds_turn() || !self.is_contended() {
            return None;
        }
        admission::about_to_drain(&mut &*self, || self.is_waited_for(), now)
    }

    /// A launch has come: if the tenant rested, that is over.
    pub fn note_rest_over(&self, now: Nanos) {
        let own = &self.activity.standing;
        let Some(since) = own.end_rest() else { return };
        let rest = now.since(since);
        if self.holds_turn() {
            self.activity.turn.spend(i64::try_from(rest.0).unwrap_or(i64::MAX)); // others waited meanwhile
        }
        let mut rests = self.standing.rests.lock();
        rests.add(rest, self.switch);
        let is_online = Client::get().is_some_and(|client| client.class == Class::Latency);
        own.set_grace(if is_online { rests.grace_of_latency(self.switch) } else { rests.grace(self.switch) });
    }

    /// Whether it is worth keeping a turn while nothing is in flight.
    pub(super) fn nearly_always_rests_shortly(&self) -> bool {
        self.standing.rests.lock().keeps_turn()
    }

    /// Its work has ended: from now on it rests. Others wait for it no longer than it usually takes to be back.
    pub fn note_rest(&self) {
        if !self.pages().waits() {
            self.activity.standing.begin_rest(clock::now());
        }
        if self.goes_first() {
            self.count_and_decide(clock::now());
        }
    }

    /// Counts the time since the last look, and decides whether this process passes.
    pub fn look_at_standing(&self, now: Nanos) {
        let looked_at = Nanos(self.standing.looked_at.load(Ordering::Relaxed));
        if now.since(looked_at) >= EVERY {
            self.count_and_decide(now);
        }
    }

    fn count_and_decide(&self, now: Nanos) {
        self.standing.looked_at.store(now.0, Ordering::Relaxed); // of two threads one looks for nothing
        let class = Client::get().map(|client| client.class);
        let mut around = Around::default();
        let known = self.board.with(self.grant.board(), |neighbours| {
            neighbours.iter().for_each(|neighbour| around.add(neighbour.activity()));
            !neighbours.is_empty()
        });
        let may_pass = known == Some(true) && class != Some(Class::Filler) && !self.overlaps();
        let online = class == Some(Class::Latency);
        let lag_ns = self.count_time(&around, online, now);
        let fits = online || self.standing.pace.lock().is_host_bound();
        self.standing.would_pass.store(may_pass && fits, Ordering::Relaxed);
        let passes = may_pass && fits && lag::is_within_share(lag_ns, self.passes());
        self.set_passes(passes, online);
    }

    fn count_time(&self, around: &Around, online: bool, now: Nanos) -> i64 {
        let request = self.grant.read().fallback_rate;
        let own = &self.activity.standing;
        let passing_work = self.passes() && self.is_busy();
        let works = self.activity.quiet(None).is_none() || self.activity.turn.is_there();
        let wants = works || self.pages().waits();
        let wanted = if wants { u64::from(request.as_ppm()) } else { 0 };
        let holds_up = (online && passing_work && around.any_gives_way).then_some(around.passing + 1);
        let cost = Cost { holds_up, charged: self.charged() };
        let before = std::mem::replace(&mut *self.standing.before.lock(), cost);
        let work = Nanos(if online { 0 } else { cost.charged.saturating_sub(before.charged) });
        let holds_up = before.holds_up;
        let wanted_ppm = around.wanted_ppm + wanted;
        own.look(request, now, |lag_ns, since| {
            let look = Look { since, wants, online, request, wanted_ppm, holds_up, work };
            lag::after(lag_ns, &look)
        });
        own.lag_ns()
    }

    fn set_passes(&self, passes: bool, online: bool) {
        self.standing.passes.store(passes, Ordering::Relaxed);
        self.activity.set_passes(self.slot_index(), passes);
        if self.activity.standing.set_goes_first(self.slot_index(), passes && online) {
            self.stop_flowing();
            self.wake_others();
        }
    }

    /// A neighbour that goes first and has work: dense work waits until it is drained.
    pub fn who_goes_first(&self) -> Option<Watched> {
        let now = clock::now();
        let first = |neighbours: &mut [Neighbour]| {
            neighbours.iter_mut().find_map(|neighbour| {
                let page = neighbour.page();
                let edges = page.edges(); // first: who ends after this moves it on
                let is_back =
                    page.standing.may_go_first() && neighbour.rests_for(now) < page.standing.grace();
                (page.works_first() || is_back).then(|| Watched::Edges(page, edges))
            })
        };
        if self.overlaps() { None } else { self.board.with_equals(self.grant.board(), first).flatten() }
    }

    /// Most work that may be queued here, where somebody goes first; 0: no such bound.
    pub fn piece(&self) -> Nanos {
        let now = clock::now();
        let comes = |neighbour: &mut Neighbour| {
            neighbour.activity().standing.may_go_first() && neighbour.rests_for(now) < EXPECTED
        };
        let any = |neighbours: &mut [Neighbour]| neighbours.iter_mut().any(comes);
        let bound = !self.goes_first() && self.board.with_equals(self.grant.board(), any) == Some(true);
        if bound { PIECE } else { Nanos(0) }
    }

    /// Whether this process may queue any amount of work: it passes, and no other tenant goes before it; or there is none but fillers, which
    /// wait until it is drained. A host that pauses is ahead by all that it has launched.
    pub fn runs_ahead(&self) -> bool {
        let is_filler = Client::get().is_none_or(|client| client.class == Class::Filler);
        let none = |equals: &mut [Neighbour]| equals.is_empty();
        let is_first = || self.passes() && self.piece() == Nanos(0);
        !is_filler
            && !self.overlaps()
            && (is_first() || self.board.with_equals(self.grant.board(), none) == Some(true))
    }

    /// Whether there are other tenants on the GPU.
    pub fn has_company(&self) -> bool {
        self.board.with(self.grant.board(), |all| !all.is_empty()) == Some(true)
    }

    /// Whether any of them waits for the end of this one's work.
    pub fn is_waited_for(&self) -> bool {
        let waits = |neighbour: &Neighbour| {
            let page = neighbour.activity();
            page.standing.gives_way() || page.turn.waits()
        };
        self.board.with(self.grant.board(), |all| all.iter().any(waits)) == Some(true)
    }

    /// How many of them have work there.
    pub fn working_neighbours(&self) -> u64 {
        let works = |neighbour: &&Neighbour| neighbour.activity().quiet(None).is_none();
        let count = |all: &mut [Neighbour]| all.iter().filter(works).count();
        self.board.with(self.grant.board(), |all| count(all) as u64).unwrap_or(0)
    }

    /// What was charged to this process here so far.
    fn charged(&self) -> u64 {
        // Relaxed: sums that only grow.
        self.slot()
            .lanes
            .iter()
            .map(|lane| lane.charged_ns.load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }
}
