//! Ten times a second, beside the tick: what has become of each tenant since the last look, told as events, and once a
//! second as a moment of its history, from which `weir why` says what it waited for.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use weir_protocol::pages::{Gate, ProcessSlot, ProcessState, Stall};
use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::cell::Cell;
use super::lasting::Lasting;
use super::ruler::Ruler;
use super::tenant::Tenant;
use crate::events::{About, Ring, What, unix_ms};

/// Length of a moment.
const MOMENT: Nanos = Nanos::from_secs(1);

/// Moments kept of a tenant on a GPU: two minutes of its work. Moments in which nothing moved are not kept.
const MOMENTS: usize = 120;

/// State of a tenant of which a process could not be taken over from an earlier manager.
pub const UNREACHED: &str = "unreached";

/// What a tenant's time on a GPU went to, for one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// When it ended, in milliseconds since 1970.
    pub time_unix_ms: u64,
    /// How long it was.
    pub span_ns: u64,
    /// Wall time of the tenant's processes by what it went to, as in the statistics; several processes add up.
    pub stalls_ns: [u64; Stall::ALL.len()],
    /// SM time charged.
    pub charged_ns: u64,
    /// Launches that waited at the gate.
    pub throttled: u64,
    /// Launches let through the gate so that nothing stood still.
    pub forced: u64,
    /// Allocations refused.
    pub refused: u64,
    /// The rate at its end, in millionths of the GPU.
    pub rate_ppm: u32,
    /// Whether the gate was closed at its end.
    pub gate_closed: bool,
    /// Policy at its end.
    pub policy: String,
    /// The policy's state for the tenant at its end.
    pub state: String,
    /// The neighbour that was charged most, and its share in thousandths.
    pub beside: Option<(String, u16)>,
}

/// Sums that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    stalls_ns: [u64; Stall::ALL.len()],
    charged_ns: u64,
    throttled: u64,
    forced: u64,
    refused: u64,
}

/// What was last seen of a tenant on a GPU, and what went before.
#[derive(Debug, Default)]
pub struct History {
    moments: VecDeque<Moment>,
    begun: Nanos,
    at_begin: Totals,
    last: Totals,
    told_state: Lasting,
    told_over: bool,
    told_uncovered: bool,
    told_unsound: Option<&'static str>,
}

impl History {
    /// The moments, oldest first.
    pub fn moments(&self) -> impl Iterator<Item = &Moment> {
        self.moments.iter()
    }
}

impl Totals {
    fn of(cell: &Cell, slots: &[usize]) -> Self {
        let work = cell.last_work();
        let mut totals = Self {
            stalls_ns: work.stalls.map(|part| part.0),
            charged_ns: cell.charged(),
            throttled: cell.dead.throttled,
            forced: cell.dead.forced,
            refused: cell.dead.refused,
        };
        slots.iter().filter_map(|slot| cell.pages.usage.slots.get(*slot)).for_each(|slot| totals.add(slot));
        totals
    }

    fn add(&mut self, slot: &ProcessSlot) {
        use std::sync::atomic::Ordering::Relaxed; // figures for people; tenants write them, so sums saturate
        let add = |sum: &mut u64, part: u64| *sum = sum.saturating_add(part);
        for lane in &slot.lanes {
            add(&mut self.throttled, lane.throttled.load(Relaxed));
            add(&mut self.forced, lane.forced.load(Relaxed));
        }
        add(&mut self.refused, slot.refused.load(Relaxed));
    }

    /// What came on top of `before`.
    fn since(&self, before: &Self) -> Self {
        let mut grown = *self;
        for (sum, before) in grown.stalls_ns.iter_mut().zip(before.stalls_ns) {
            *sum = sum.saturating_sub(before);
        }
        grown.charged_ns = self.charged_ns.saturating_sub(before.charged_ns);
        grown.throttled = self.throttled.saturating_sub(before.throttled);
        grown.forced = self.forced.saturating_sub(before.forced);
        grown.refused = self.refused.saturating_sub(before.refused);
        grown
    }
}

/// Looks at every tenant.
pub(super) fn look(tenants: &mut [Tenant], rulers: &[Ruler], events: &mut Ring, now: Nanos) {
    let over = |cell: &Cell| now.since(cell.history.begun) >= MOMENT;
    let due = tenants.iter().flat_map(|tenant| &tenant.cells).any(over);
    let charged = if due { charged_now(tenants) } else { Vec::new() };
    for Tenant { id, name, owner, cells, slots, unreached, .. } in tenants {
        let out_of_reach = !unreached.is_empty();
        for cell in cells {
            let about = About::tenant(name, *owner).on(cell.gpu);
            // A sleeper's pages are left alone: each costs misses, and nothing has moved there.
            let totals = if cell.is_asleep() { cell.history.last } else { Totals::of(cell, slots) };
            tell_counts(cell, &totals, about, events);
            tell_state(cell, about, events, now);
            if !cell.is_asleep() {
                tell_standing(cell, about, events);
            }
            tell_soundness(cell, slots, out_of_reach, about, events);
            if now.since(cell.history.begun) >= MOMENT {
                let policy = rulers.get(cell.gpu).map_or("", |ruler| ruler.row.name);
                let rivals = charged.iter().filter(|(gpu, tenant, ..)| *gpu == cell.gpu && tenant != id);
                let beside = rivals.max_by_key(|rival| rival.3).map(|rival| (rival.2.clone(), rival.3));
                keep(cell, totals, policy, beside, now);
            }
        }
    }
}

/// Who was charged how much during the last second: (GPU, tenant, its name, thousandths).
fn charged_now(tenants: &[Tenant]) -> Vec<(usize, u64, String, u16)> {
    let cells = tenants.iter().flat_map(|tenant| tenant.cells.iter().map(move |cell| (tenant, cell)));
    let charged = cells.filter(|(_, cell)| cell.achieved() > SmShare::ZERO);
    charged.map(|(t, cell)| (cell.gpu, t.id, t.name.clone(), cell.achieved().as_permille())).collect()
}

fn tell_counts(cell: &mut Cell, totals: &Totals, about: About<'_>, events: &mut Ring) {
    let grown = totals.since(&cell.history.last);
    cell.history.last = *totals;
    if grown.forced > 0 {
        events.push(about, What::GateForced { launches: grown.forced });
    }
    if grown.refused > 0 {
        events.push(about, What::MemoryRefused { allocations: grown.refused });
    }
}

/// Which state the policy has for it, once that lasts.
fn tell_state(cell: &mut Cell, about: About<'_>, events: &mut Ring, now: Nanos) {
    let (state, changes) = cell.take_changes();
    if let Some((old, changes)) = cell.history.told_state.look(state, changes, now) {
        events.push(about, What::StateChanged { old: old.to_owned(), new: state.to_owned(), changes });
    }
}

/// How it stands to its memory limit.
fn tell_standing(cell: &mut Cell, about: About<'_>, events: &mut Ring) {
    let uncovered = cell.uncovered();
    if uncovered > Bytes(0) && !cell.history.told_uncovered {
        events.push(about, What::GrowthUncovered { lacks_bytes: uncovered.0 });
    }
    cell.history.told_uncovered = uncovered > Bytes(0);
    let over = cell.holds_too_much(cell.held_lately());
    if over && !cell.history.told_over {
        events.push(about, What::Overcommitted { over_bytes: cell.excess().0 });
    }
    cell.history.told_over = over;
}

/// Whether all of its budget is enforced.
fn tell_soundness(cell: &mut Cell, slots: &[usize], out_of_reach: bool, about: About<'_>, events: &mut Ring) {
    let told = cell.history.told_unsound;
    let unsound = match () {
        () if out_of_reach => Some(UNREACHED),
        () if cell.is_asleep() && told != Some(UNREACHED) => return, // see `look`
        () => unsound(cell, slots).map(ProcessState::name),
    };
    if unsound != told {
        events.push(
            about,
            unsound.map_or(What::EnforcedAgain, |state| What::NotEnforced { state: state.to_owned() }),
        );
    }
    cell.history.told_unsound = unsound;
}

/// The worst that a living process says of itself, if it is not enforced.
fn unsound(cell: &Cell, slots: &[usize]) -> Option<ProcessState> {
    use std::sync::atomic::Ordering::Relaxed; // see `Totals::add`
    let slots = slots.iter().filter_map(|slot| cell.pages.usage.slots.get(*slot));
    let states = slots.map(|slot| ProcessState::from_word(slot.state.load(Relaxed)));
    states.filter(|state| *state as u32 > ProcessState::Enforced as u32).max_by_key(|state| *state as u32)
}

/// Ends a moment; one in which nothing moved is not worth a row.
fn keep(cell: &mut Cell, totals: Totals, policy: &'static str, beside: Option<(String, u16)>, now: Nanos) {
    let grant = cell.pages.grant.read();
    let state = cell.state().to_owned();
    let history = &mut cell.history;
    let grown = totals.since(&history.at_begin);
    let span_ns = now.since(history.begun).0;
    let first = history.begun == Nanos(0);
    (history.begun, history.at_begin) = (now, totals);
    if first || grown == Totals::default() {
        return;
    }
    let Totals { stalls_ns, charged_ns, throttled, forced, refused } = grown;
    if history.moments.len() == MOMENTS {
        history.moments.pop_front();
    }
    history.moments.push_back(Moment {
        time_unix_ms: unix_ms(),
        span_ns,
        stalls_ns,
        charged_ns,
        throttled,
        forced,
        refused,
        rate_ppm: grant.rate.as_ppm(),
        gate_closed: grant.gate == Gate::Closed,
        policy: policy.to_owned(),
        state,
        beside,
    });
}
