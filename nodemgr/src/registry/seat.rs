//! A tenant's place among those of a GPU, and what a tick has to look at there.

use weir_policy::{Sample, is_busy};
use weir_protocol::units::Nanos;

use super::cell::Cell;
use super::round::Round;
use super::sleeper::Beat;
use super::tenant::Tenant;

/// A tenant that has stood still for so long may count as idle.
const STILL: Nanos = weir_policy::IDLE_AFTER;

/// How a tenant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleep {
    /// It is awake.
    Awake,
    /// Asleep, and looked at in each tick.
    Watched,
    /// Asleep, and says by itself when it stirs.
    Sound,
}

/// A tenant's place.
pub(super) struct Seat {
    /// Position of the tenant.
    pub(super) tenant: usize,
    cell: usize,
    /// Whether it is a filler's.
    pub(super) gives_way: bool,
    /// How the tenant stands.
    pub(super) sleep: Sleep,
    /// Whether it was busy when it was last looked at in full.
    pub(super) busy: bool,
    beat: Option<Beat>, // none before the first look
    renewed: bool,      // the processes that it follows are not the tenant's any more
    /// Whether what was decided last has been granted.
    pub(super) granted: bool,
    state: &'static str, // as its cell knows it
}

impl Seat {
    /// That of a tenant's cell.
    pub(super) fn of(tenant: usize, cell: usize, gives_way: bool) -> Self {
        Self {
            tenant,
            cell,
            gives_way,
            sleep: Sleep::Awake,
            busy: false,
            beat: None,
            renewed: false,
            granted: false,
            state: "",
        }
    }

    /// The cell.
    pub(super) fn cell<'a>(&self, tenants: &'a mut [Tenant]) -> &'a mut Cell {
        &mut tenants[self.tenant].cells[self.cell]
    }

    /// Whether it has to be looked at in full. `rests`: its policy looks at nothing but who is busy.
    pub(super) fn has_news(&mut self, now: Nanos, rests: bool) -> bool {
        let Some(beat) = self.beat.as_mut().filter(|_| !self.renewed) else { return true };
        match self.sleep {
            Sleep::Sound => false,
            Sleep::Watched => beat.has_moved(),
            Sleep::Awake => !(rests && self.busy && beat.look(now) < STILL),
        }
    }

    /// When a policy that looks at nothing but who is busy may have to know of it anew, if it says nothing by itself.
    pub(super) fn due(&self, now: Nanos) -> Nanos {
        match (self.sleep, &self.beat) {
            (Sleep::Sound, _) => Nanos(u64::MAX),
            (Sleep::Awake, Some(beat)) if self.busy && !self.renewed => Nanos(beat.since.0 + STILL.0),
            _ => now,
        }
    }

    /// Its turn, in which there is nothing to be granted.
    pub(super) fn tick(&self) {
        if let Some(beat) = &self.beat {
            beat.tick();
        }
    }

    /// Its tenant has stirred, or may have.
    pub(super) fn disturb(&mut self) {
        if self.sleep == Sleep::Sound {
            self.sleep = Sleep::Watched;
        }
    }

    /// Its tenant has other processes than before.
    pub(super) fn renew(&mut self) {
        self.disturb();
        self.renewed = true;
    }

    /// Whether a sound sleeper has moved and has not said so.
    pub(super) fn has_stirred_unheard(&self) -> bool {
        self.sleep == Sleep::Sound && self.beat.as_ref().is_none_or(Beat::has_moved)
    }

    /// For how long it has stood still, by what was last seen.
    pub(super) fn still(&self, now: Nanos) -> Nanos {
        self.beat.as_ref().map_or(Nanos(0), |beat| now.since(beat.since))
    }

    /// Tells the cell what was seen since it was last looked at in full.
    pub(super) fn catch_up(&self, tenants: &mut [Tenant]) {
        if let Some(beat) = &self.beat {
            self.cell(tenants).catch_up(beat);
        }
    }

    /// Looks at the tenant in full.
    pub(super) fn observe(&mut self, tenants: &mut [Tenant], round: &Round) -> Sample {
        self.catch_up(tenants);
        let tenant = &mut tenants[self.tenant];
        let sample = tenant.observe(self.cell, round.mode, round.now);
        self.busy = is_busy(&sample);
        let cell = &mut tenant.cells[self.cell];
        let beat = self.beat.get_or_insert_with(|| cell.beat());
        cell.tell_beat(beat, &tenant.slots);
        let is_asleep = cell.is_asleep();
        self.sleep = match cell.mark_asleep(is_asleep, beat) {
            true => Sleep::Sound,
            false if is_asleep => Sleep::Watched,
            false => Sleep::Awake,
        };
        self.renewed = false;
        sample
    }

    /// Notes the policy's state for the tenant.
    pub(super) fn note_state(&mut self, tenants: &mut [Tenant], state: &'static str) {
        if !std::ptr::eq(self.state, state) {
            self.state = state;
            self.cell(tenants).note_state(state);
        }
    }
}
