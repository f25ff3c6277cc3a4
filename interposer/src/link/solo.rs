//! This process's part in taking turns with its siblings, the tenant's other processes ([`weir_core::solo`]).

use std::sync::atomic::Ordering;

use rustix::thread::futex;
use weir_core::lock::Lock;
use weir_core::solo::{Missing, Solo};
use weir_core::turn::{self, Seen};
use weir_protocol::pages::{Turn, UsagePage};
use weir_protocol::units::Nanos;

use super::Gpu;
use crate::clock;

/// When they shall, as far as this process goes, and what it has seen of them.
#[derive(Default)]
pub struct Solos {
    asks: Lock<Solo>,
    siblings: Lock<Siblings>,
}

/// The other slots of a page.
#[derive(Default)]
struct Siblings {
    page: Option<&'static UsagePage>,
    all: Vec<Sibling>,
}

/// Another process of the tenant, or a slot for one.
pub struct Sibling {
    /// Its turn.
    pub turn: &'static Turn,
    seen: Seen,
}

impl Siblings {
    /// Those of a process in slot `own` of this page, which may be another page than before.
    fn on(&mut self, page: &'static UsagePage, own: usize) -> &mut [Sibling] {
        if self.page.is_none_or(|known| !std::ptr::eq(known, page)) {
            let others = page.slots.iter().enumerate().filter(|(slot, _)| *slot != own);
            self.all = others.map(|(_, slot)| Sibling { turn: &slot.turn, seen: Seen::default() }).collect();
            self.page = Some(page);
        }
        &mut self.all
    }
}

impl turn::Neighbour for Sibling {
    fn turn(&self) -> &Turn {
        self.turn
    }

    fn seen(&mut self) -> &mut Seen {
        &mut self.seen
    }
}

impl Gpu {
    /// Whether the tenant's processes take turns of their own.
    pub fn is_solo(&self) -> bool {
        let until = self.usage.solo_until();
        if until == Nanos(0) {
            return false;
        }
        let goes_on = clock::now() < until;
        if !goes_on {
            self.usage.end_solo(until);
        }
        goes_on
    }

    /// Asks about this process's own turn, if they do. Otherwise it has none.
    pub fn solo<R>(&self, ask: impl FnOnce(&Turn, &mut [Sibling]) -> R) -> Option<R> {
        let own = &self.slot().turn;
        if !self.is_solo() {
            if own.is_there() {
                own.reset();
                self.solo_passed();
            }
            return None;
        }
        let mut siblings = self.solos.siblings.lock();
        Some(ask(own, siblings.on(self.usage.current(), self.slot_index())))
    }

    /// How long its turns are.
    pub fn solo_turn(&self) -> Nanos {
        self.solos.asks.lock().turn()
    }

    /// Its own turn has been passed on.
    pub fn solo_passed(&self) {
        self.stop_flowing();
        let _ = futex::wake(self.slot().turn.futex_word(), futex::Flags::empty(), i32::MAX.unsigned_abs());
    }

    /// A look at what was measured: prices were `taught` by what ran alone, or this was `missing` for it, since somebody else
    /// was there.
    pub fn has_measured(&self, taught: bool, missing: Option<Missing>) {
        if !taught && missing.is_none() {
            return;
        }
        let mut asks = self.solos.asks.lock();
        let now = clock::now();
        if taught {
            asks.learnt(now);
        }
        if let Some(missing) = missing.filter(|_| self.has_siblings())
            && let Some(until) = asks.ask(missing, now)
        {
            self.usage.ask_for_solo(until);
            self.stop_flowing();
        }
    }

    /// Whether other processes of the tenant are there.
    pub(super) fn has_siblings(&self) -> bool {
        let others = self.usage.slots.iter().filter(|slot| !std::ptr::eq(*slot, self.slot()));
        // Relaxed: the manager writes it before the process knows of its slot.
        others.map(|slot| slot.pid.load(Ordering::Relaxed)).any(|pid| pid != 0)
    }
}
