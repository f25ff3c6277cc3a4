//! One tenant on one GPU: its pages, what was seen of it last, and the grant that holds.

mod granting;
mod remains;

pub(super) use granting::unlimited;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_policy::{Beside, Work};
use weir_protocol::mapping::MapError;
use weir_protocol::pages::{Grant, ProcessSlot, ProcessState, Rate};
use weir_protocol::units::{Bytes, Nanos, SmShare, Tokens};

use super::counters::{Counters, charged_ns};
use super::pages::Pages;
use super::sleeper::{ASLEEP, Beat, Pulse};
use super::watch::History;
use super::window::Window;
use crate::control::schema::Budget;

/// Adds what one process has done.
fn add_work(mut sum: Work, slot: &ProcessSlot) -> Work {
    // Relaxed: figures, each whole by itself. The tenant writes them, so sums wrap or saturate, and nothing else.
    let ns = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let charged = ns(&slot.submitted_ns).wrapping_add(ns(&slot.corrected_ns)).cast_signed();
    sum.charged = Tokens(sum.charged.0.saturating_add(charged));
    for (sum, part) in sum.stalls.iter_mut().zip(&slot.stalls.parts_ns) {
        *sum = Nanos(sum.0.saturating_add(ns(part)));
    }
    sum
}

/// One tenant on one GPU.
pub struct Cell {
    /// Index of the GPU.
    pub gpu: usize,
    /// Its pages.
    pub pages: Arc<Pages>,
    /// How often the tenants on its GPU have changed since it was made.
    pub board: u32,
    /// What its dead processes did.
    pub dead: Counters,
    dead_charged_ns: u64,
    dead_work: Work,
    work: Work,
    charged_ns: u64, // at the last mark
    left: u64,       // what its processes had left to others then
    /// Energy that its work has taken, in mJ; none where its GPU has not told.
    pub energy_mj: Option<u64>,
    energy_charged_ns: u64, // when that was divided last
    granted: Grant,
    off: bool,
    parked: bool,
    /// What was seen of it beside the tick.
    pub history: History,
    /// Memory by which its tenant, with what contexts may grow by, and those that came before it exceed the card.
    pub(super) uncovered: Bytes,
    state: &'static str,
    changes: u32, // of the state, since they were last taken
    pulse: Pulse,
    moved_at: Nanos,
    still: Nanos,
    window: Window,
    held_lately: Bytes,
    bell_armed: bool,
    marked_asleep: bool,
    /// What its dead processes have of its memory still.
    pub drains: Bytes,
    began: u32, // its edges on the board when it was last heard or looked at for the bell
}

impl Cell {
    /// New pages with the request as their first grant.
    pub fn create(gpu: usize, tenant: u64, budget: &Budget) -> Result<Self, MapError> {
        let first =
            weir_policy::grant(Rate::from(budget.request), budget.request, budget.memory, Beside::default());
        let granted = Grant { copy_limit: budget.copy_limit, ..first };
        Ok(Self::with(gpu, Pages::create(&granted, tenant)?, granted))
    }

    /// Over pages that an earlier manager made; `dead` is what it knew of processes that had died.
    pub fn take_over(gpu: usize, pages: Pages, dead: Counters) -> Self {
        // With the generation in it no decision is equal to it: the first tick publishes anew.
        let granted = pages.grant.read();
        let board = pages.grant.board();
        pages.grant.bell.arm(false); // until a tick finds a gate open
        pages.grant.bell.mark_asleep(false);
        Self { board, ..Self::with(gpu, pages, granted) }.with_dead(dead)
    }

    /// The same, of a tenant whose processes that have died did so much.
    pub fn with_dead(self, dead: Counters) -> Self {
        let dead_charged_ns = dead.charged_ns;
        Self { dead, dead_charged_ns, ..self }
    }

    fn with(gpu: usize, pages: Pages, granted: Grant) -> Self {
        Self {
            gpu,
            pages: Arc::new(pages),
            board: 0,
            dead: Counters::default(),
            dead_charged_ns: 0,
            dead_work: Work::default(),
            work: Work::default(),
            charged_ns: 0,
            left: 0,
            energy_mj: None,
            energy_charged_ns: 0,
            granted,
            off: false,
            parked: false,
            history: History::default(),
            uncovered: Bytes(0),
            state: "",
            changes: 0,
            pulse: Pulse::default(),
            moved_at: Nanos(0),
            still: Nanos(0),
            window: Window::default(),
            held_lately: Bytes(0),
            bell_armed: false,
            marked_asleep: false,
            drains: Bytes(0),
            began: 0,
        }
    }

    /// Predicted work under way, and how long nothing has moved. `slots` are those of the tenant's living processes.
    pub fn observe(&mut self, now: Nanos, slots: &[usize]) -> (Nanos, Nanos) {
        let pulse = Pulse::of(&self.pages, slots.iter().copied());
        // Its page knows more than the sums: the tenant sees the end of work behind which no word stands by prediction.
        let is_quiet = !pulse.waits() && self.pages.activity.quiet(None).is_some();
        let outstanding = if is_quiet { Nanos(0) } else { pulse.outstanding() };
        let first = self.moved_at == Nanos(0); // whoever is new is awake
        if pulse != self.pulse || first {
            self.pulse = pulse;
            self.moved_at = now;
        }
        self.still = now.since(self.moved_at);
        let works = self.still == Nanos(0) || self.still <= self.excused(outstanding);
        (outstanding, if works && !slots.is_empty() { Nanos(0) } else { self.still })
    }

    /// What it has done since it was made. Read anew only while it is awake: each process is some cache misses.
    pub fn work(&mut self, slots: &[usize]) -> Work {
        if !self.is_asleep() {
            self.work = slots
                .iter()
                .filter_map(|slot| self.pages.usage.slots.get(*slot))
                .fold(self.dead_work, add_work);
        }
        self.work
    }

    /// How long a tenant may stand still and yet be at work: its GPU works on what was submitted, or a launch waits for a turn or for
    /// tokens. Twice the prediction, since it may be wrong; never longer than until it counts as asleep, since what a dead helper
    /// thread left behind must not hold a share for ever.
    fn excused(&self, outstanding: Nanos) -> Nanos {
        if self.pulse.waits() { ASLEEP } else { Nanos(outstanding.0.saturating_mul(2)).min(ASLEEP) }
    }

    /// How long nothing of it has moved.
    pub fn idle_for(&self, now: Nanos) -> Nanos {
        now.since(self.moved_at)
    }

    /// Whether it has stood still for so long that its pages are looked at no more than they must be.
    pub fn is_asleep(&self) -> bool {
        self.still > ASLEEP
    }

    /// Its pulse, to be followed by whoever has to know no more.
    pub fn beat(&self) -> Beat {
        Beat::new(self.pages.clone())
    }

    /// Tells a beat what was seen last. `slots` are those of the tenant's living processes.
    pub fn tell_beat(&self, beat: &mut Beat, slots: &[usize]) {
        beat.note(slots, self.pulse, self.moved_at);
    }

    /// Its pulse was followed meanwhile.
    pub fn catch_up(&mut self, beat: &Beat) {
        if beat.since > self.moved_at {
            (self.pulse, self.moved_at) = (beat.pulse, beat.since);
        }
    }

    /// Says on its page whether it is taken for asleep. Whether it then says by itself when it stirs: it has no work, and its
    /// pulse stands where it did.
    pub fn mark_asleep(&mut self, asleep: bool, beat: &Beat) -> bool {
        if std::mem::replace(&mut self.marked_asleep, asleep) != asleep {
            self.pages.grant.bell.mark_asleep(asleep);
        }
        asleep && self.pages.activity.quiet(None).is_some() && !beat.has_moved()
    }

    /// Notes the policy's state for it.
    pub fn note_state(&mut self, state: &'static str) {
        self.changes = self.changes.saturating_add(u32::from(self.state != state));
        self.state = state;
    }

    /// Notes the charge so far, for the share of the last second.
    pub fn mark(&mut self, now: Nanos, slots: &[usize]) {
        if !self.is_asleep() {
            let living = || slots.iter().filter_map(|slot| self.pages.usage.slots.get(*slot));
            // Relaxed: a figure. Slots of nobody hold nothing, and are a miss each.
            let held = living().map(|slot| slot.held_bytes.load(Ordering::Relaxed));
            self.held_lately = Bytes(held.fold(0, u64::saturating_add));
            self.charged_ns = living().map(charged_ns).fold(self.dead_charged_ns, u64::saturating_add);
            self.work(slots); // where a policy does not ask, no tick reads it
        }
        self.window.push(now, self.charged_ns);
    }

    /// Share of the GPU charged during the last second.
    pub fn achieved(&self) -> SmShare {
        self.window.share()
    }

    /// The policy's state for it.
    pub fn state(&self) -> &'static str {
        self.state
    }

    /// The policy's state for it, and how often it has changed since the last call.
    pub fn take_changes(&mut self) -> (&'static str, u32) {
        (self.state, std::mem::take(&mut self.changes))
    }

    /// What it had done when it was last awake in a tick.
    pub fn last_work(&self) -> &Work {
        &self.work
    }

    /// SM time charged up to the last mark, in nanoseconds.
    pub fn charged(&self) -> u64 {
        self.charged_ns
    }

    /// What of it came since energy was last divided.
    pub(super) fn take_charged(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.energy_charged_ns, self.charged_ns);
        self.charged_ns.saturating_sub(before)
    }

    /// Memory held beyond the limit.
    pub fn excess(&self) -> Bytes {
        Bytes(self.held().0.saturating_sub(self.granted.memory_limit.0))
    }

    /// Whether a process in one of these slots is no client of MPS.
    pub fn has_one_beside_mps(&self, slots: &[usize]) -> bool {
        let states =
            slots.iter().filter_map(|slot| self.pages.usage.slots.get(*slot)).map(|slot| &slot.state);
        // Relaxed: a word that is looked at again with the next tick.
        states.into_iter().any(|state| state.load(Ordering::Relaxed) == ProcessState::BesideMps as u32)
    }

    /// What contexts may grow by and the card has not, in all.
    pub fn uncovered(&self) -> Bytes {
        self.uncovered
    }

    /// Whether the memory held is more than the limit allows, because a process could not refuse it.
    pub fn holds_too_much(&self, held: Bytes) -> bool {
        let flagged =
            || self.pages.usage.slots.iter().any(|slot| slot.overcommitted.load(Ordering::Relaxed) != 0);
        held > self.granted.memory_limit && flagged()
    }

    /// Memory held by its living processes at the last mark. To sum it up is a cache miss for each, so a tick does not.
    pub fn held_lately(&self) -> Bytes {
        self.held_lately
    }

    /// Memory held by all processes.
    pub fn held(&self) -> Bytes {
        self.pages.usage.held()
    }
}
