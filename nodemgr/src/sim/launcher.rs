//! A tenant's launches, on their way through the same gate, purse and turns that `libweir.so` has.
//!
//! The order of the questions is that of `interposer/src/wait.rs`: the purse, the turn, the bucket; what each of them
//! answers is `weir-core`'s, on the pages that the manager made. What differs from a real program:
//!
//! * Prices are true: what a kernel takes alone is known from its first launch.
//! * What is done is seen at once, as by the words that the GPU writes; a program that neither waits nor asks looks no
//!   more often than in reality.
//! * The board: a filler finds that a better one works [`BOARD`] after that one's first launch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_core::gate::{Cause, Gate, Patience, Request, Verdict, in_flight};
use weir_core::purse::Purse;
use weir_core::turn::{self, Answer, LEAD, Seen, Terms};
use weir_protocol::pages::{Grant, ProcessSlot, Stand, Turn};
use weir_protocol::units::{Nanos, Tokens};

use crate::registry::Pages;

/// From a better one's first launch until fillers find it on the board (design 5: closed in less than 2 us).
pub const BOARD: Nanos = Nanos::from_micros(2);

/// A wait for a turn is looked at anew so often; as in the interposer.
const TURN_STEP: Nanos = Nanos::from_millis(1);
/// While a turn ends, so often.
const LOOK: Nanos = Nanos::from_micros(200);
/// A launch that waits until its own tenant's work is done looks so soon again, at least.
const SHORTEST: Nanos = Nanos::from_micros(30);

/// A neighbour on the board.
pub struct Neighbour {
    /// Which seat it has.
    pub seat: usize,
    pages: Arc<Pages>,
    seen: Seen,
}

impl turn::Neighbour for Neighbour {
    fn turn(&self) -> &Turn {
        &self.pages.activity.turn
    }

    fn seen(&mut self) -> &mut Seen {
        &mut self.seen
    }
}

/// What a sleeping launch is woken by, besides its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bell {
    /// A new grant.
    Grant(u32),
    /// The turn of the tenant in this seat moves on.
    Turn(usize),
    /// It has rung already.
    Rung,
}

/// What was said to a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It goes.
    Goes,
    /// It sleeps, at most so long.
    Sleeps(Nanos, Bell),
}

/// A launch at the gate.
#[derive(Clone, Copy, Debug)]
struct Asking {
    arrived: Nanos,
    patience: Patience,
    generation: u32,
    cause: Cause,
}

/// One process of a tenant, with one thread.
pub struct Launcher {
    pages: Arc<Pages>,
    slot: usize,
    gate: Gate,
    purse: Purse,
    neighbours: Vec<Neighbour>,
    asking: Option<Asking>,
    overlaps: bool,
    flows: bool,
    progress: (u64, Nanos),
    queued: VecDeque<u64>,
    turn_passed: bool,
    closed: bool, // a better one was found to work
}

impl Launcher {
    /// A process in this slot; with tenants that overlap there are no turns.
    pub fn new(pages: Arc<Pages>, slot: usize, overlaps: bool) -> Self {
        Self {
            pages,
            slot,
            gate: Gate::default(),
            purse: Purse::new(),
            neighbours: Vec::new(),
            asking: None,
            overlaps,
            flows: false,
            progress: (0, Nanos(0)),
            queued: VecDeque::new(),
            turn_passed: false,
            closed: false,
        }
    }

    /// Adds who else is on the GPU.
    pub fn meet(&mut self, seat: usize, pages: Arc<Pages>) {
        self.neighbours.push(Neighbour { seat, pages, seen: Seen::default() });
    }

    /// The pages.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Whether the tenant passed its turn on since the last call: whoever waits for that wakes.
    pub fn take_turn_passed(&mut self) -> bool {
        std::mem::take(&mut self.turn_passed)
    }

    /// This process's slot.
    pub fn slot(&self) -> &ProcessSlot {
        &self.pages.usage.slots[self.slot]
    }

    /// Whether a launch at `price` may go now; asked again after a sleep it is the same launch. `closed_by`: the board
    /// shows that this better one works.
    pub fn ask(&mut self, price: i64, now: Nanos, closed_by: Option<usize>) -> Said {
        if self.asking.is_none() && closed_by.is_none() && self.pays_at_once(price) {
            return Said::Goes;
        }
        let grant = self.pages.grant.read();
        let asking = self.again(now, &grant);
        let closes = closed_by.is_some() && !std::mem::replace(&mut self.closed, closed_by.is_some());
        if closes {
            self.pages.bucket.charge(Tokens(-self.purse.empty())); // drawn in better times
            self.gate.close(self.gate_pages());
        }
        if let Some(better) = closed_by {
            let said = self.ask_closed(price, now, asking, better);
            if said == Said::Goes {
                self.count_wait(now, asking.arrived);
                self.asking = None;
            }
            return said;
        }
        if self.purse.generation() != grant.generation {
            self.pages.bucket.charge(Tokens(-self.purse.empty())); // drawn under another grant: too much, perhaps
        }
        let paid = self.purse.lacks(price) == 0;
        let said = self.ask_once(price, now, &grant, asking, paid);
        if said == Said::Goes {
            self.count_wait(now, asking.arrived);
            self.asking = None;
        }
        said
    }

    /// The launch path: the purse suffices, and the tenant has work on the GPU that it may add to.
    fn pays_at_once(&mut self, price: i64) -> bool {
        (self.flows || self.has_turn()) && self.purse.pay(price, self.pages.grant.generation())
    }

    fn has_turn(&self) -> bool {
        let own = &self.pages.activity.turn;
        self.overlaps || self.neighbours.is_empty() || (own.look().0 == Stand::Holds && own.left() > 0)
    }

    /// The launch as it stands at the gate: new, or after a sleep.
    fn again(&self, now: Nanos, grant: &Grant) -> Asking {
        let fresh = Asking {
            arrived: now,
            patience: Patience::Fresh,
            generation: grant.generation,
            cause: Cause::Turn,
        };
        let Some(before) = self.asking else { return fresh };
        let patience = if grant.generation != before.generation {
            Patience::None // a new grant takes effect at once
        } else if before.cause == Cause::Tokens && before.patience == Patience::Fresh {
            Patience::Turn
        } else {
            before.patience
        };
        Asking { patience, generation: grant.generation, ..before }
    }

    /// While a better one works a launch goes at the rate of the request, whoever's turn it is. Its own turn is left.
    fn ask_closed(&mut self, price: i64, now: Nanos, asking: Asking, better: usize) -> Said {
        self.leave_turn(now);
        let lacks = Tokens(self.purse.lacks(price));
        let request = Request { price: lacks, tokens: lacks, patience: asking.patience, closed: true };
        match self.gate.ask(self.gate_pages(), now, request) {
            Verdict::Admitted { generation, tokens } => {
                self.purse.fill(tokens.0, price, generation);
                Said::Goes
            }
            Verdict::Wait(wait) => {
                self.sleep(asking, wait.at_most.clamp(SHORTEST, TURN_STEP), Bell::Turn(better), wait.cause)
            }
        }
    }

    fn ask_once(&mut self, price: i64, now: Nanos, grant: &Grant, asking: Asking, paid: bool) -> Said {
        let waited = now > asking.arrived;
        if waited && self.gate.stands_still(self.gate_pages(), (0, 0), asking.arrived, now) {
            return self.pass_as_debt(price, grant);
        }
        if asking.patience != Patience::None
            && let Some((at_most, bell)) = self.ask_turn(asking.arrived, now, grant)
        {
            return self.sleep(asking, at_most.clamp(SHORTEST, TURN_STEP), bell, Cause::Turn);
        }
        if paid {
            self.purse.pay(price, grant.generation);
            return Said::Goes;
        }
        let ceiling = Gate::slice_ceiling(grant, 1);
        let lacks = self.purse.lacks(price);
        let wanted = self.purse.ask(price, ceiling).min(self.turn_ceiling().max(lacks));
        let request = Request {
            price: Tokens(lacks),
            tokens: Tokens(wanted),
            patience: asking.patience,
            closed: false,
        };
        match self.gate.ask(self.gate_pages(), now, request) {
            Verdict::Admitted { generation, tokens } => {
                self.pages.activity.turn.spend(tokens.0);
                self.purse.fill(tokens.0, price, generation);
                Said::Goes
            }
            Verdict::Wait(wait) => {
                let left = if wait.cause == Cause::Tokens { self.leave_turn(now) } else { None };
                let at_most = left.map_or(wait.at_most, |left| wait.at_most.min(left.max(SHORTEST)));
                self.sleep(asking, at_most, Bell::Grant(wait.generation), wait.cause)
            }
        }
    }

    /// Nothing of the tenant completes: the launch passes as debt (gpu-truths, rule 8).
    fn pass_as_debt(&mut self, price: i64, grant: &Grant) -> Said {
        self.pages.bucket.charge(Tokens(price));
        self.purse.fill(price, price, grant.generation);
        self.slot().lanes[0].forced.fetch_add(1, Ordering::Relaxed);
        Said::Goes
    }

    fn sleep(&mut self, asking: Asking, at_most: Nanos, bell: Bell, cause: Cause) -> Said {
        self.asking = Some(Asking { cause, ..asking });
        Said::Sleeps(at_most, bell)
    }

    fn count_wait(&self, now: Nanos, arrived: Nanos) {
        if now > arrived {
            let lane = &self.slot().lanes[0];
            lane.throttled.fetch_add(1, Ordering::Relaxed);
            lane.waited_ns.fetch_add(now.since(arrived).0, Ordering::Relaxed);
        }
    }

    fn gate_pages(&self) -> weir_core::gate::Pages<'_> {
        let Pages { grant, bucket, usage, .. } = &*self.pages;
        weir_core::gate::Pages { grant, bucket, usage, slot: self.slot() }
    }

    /// How long to wait for a turn, and for whom; nothing: it is the tenant's.
    fn ask_turn(&mut self, arrived: Nanos, now: Nanos, grant: &Grant) -> Option<(Nanos, Bell)> {
        if self.overlaps || self.neighbours.is_empty() {
            return None;
        }
        let own = &self.pages.activity.turn;
        let held_before = own.look().0 == Stand::Holds;
        let saved = self.gate.has_saved(self.gate_pages(), grant, now);
        let terms = Terms { length: Nanos(grant.resume_at.0.unsigned_abs()), saved };
        let soon = (SHORTEST, Bell::Grant(grant.generation));
        match turn::ask(own, &mut self.neighbours, terms, arrived, now) {
            Answer::Mine => {
                if !held_before {
                    self.progress.1 = now; // what it launches begins now
                }
                None
            }
            Answer::Over => match self.pass_on(now) {
                Some(left) => Some((left.min(LOOK), soon.1)),
                None => Some(soon),
            },
            Answer::Queueing => Some(soon),
            Answer::Behind(at, _) => {
                let step = if self.queued.is_empty() { TURN_STEP } else { LOOK };
                Some((step, Bell::Turn(self.neighbours.get(at)?.seat)))
            }
        }
    }

    fn turn_ceiling(&self) -> i64 {
        let own = &self.pages.activity.turn;
        if own.look().0 == Stand::Holds { own.left().max(1) } else { i64::MAX }
    }

    /// The tenant has nothing to launch, or no tokens to launch it with: the turn goes on when its work is done.
    fn leave_turn(&mut self, now: Nanos) -> Option<Nanos> {
        self.pages.activity.turn.forfeit();
        self.pass_on(now)
    }

    /// Passes the turn on if the work is done, or nearly so; else says in how long that will be.
    fn pass_on(&mut self, now: Nanos) -> Option<Nanos> {
        let left = self.work_left(now);
        if left > LEAD {
            return Some(Nanos(left.0 - LEAD.0));
        }
        self.end_turn();
        None
    }

    fn end_turn(&mut self) {
        if self.pages.activity.turn.end() {
            self.flows = false;
            self.turn_passed = true;
        }
    }

    /// Predicted work that is not done, less the time since any of it was last seen to be done.
    fn work_left(&mut self, now: Nanos) -> Nanos {
        let queued = in_flight(self.slot()).0;
        let done = self.slot().completed_ns.load(Ordering::Relaxed);
        let beside = self.neighbours.iter().any(|other| other.pages.activity.quiet(None).is_none());
        if queued == 0 || self.progress.0 != done || beside {
            self.progress = (done, now);
        }
        Nanos(queued.saturating_sub(now.since(self.progress.1).0))
    }

    /// A paid launch goes out.
    pub fn submitted(&mut self, price: u64) {
        self.pages.activity.begin(self.slot);
        self.flows = true;
        self.queued.push_back(price);
        let slot = self.slot();
        slot.submitted_ns.fetch_add(price, Ordering::Relaxed);
        slot.lanes[0].charged_ns.fetch_add(price, Ordering::Relaxed);
        slot.lanes[0].calls[0].fetch_add(1, Ordering::Relaxed);
    }

    /// The oldest launch under way is done.
    pub fn completed(&mut self) {
        if let Some(price) = self.queued.pop_front() {
            self.slot().completed_ns.fetch_add(price, Ordering::Relaxed);
        }
    }

    /// The program looks: if nothing is under way, it says so on the board and passes its turn on.
    pub fn look(&mut self) {
        if self.queued.is_empty() && self.pages.activity.is_busy(self.slot) {
            self.flows = false;
            self.pages.activity.end(self.slot);
            self.pages.activity.turn.forfeit();
            self.end_turn();
            self.turn_passed = true; // whoever gives way to it sleeps until now
        }
    }
}
