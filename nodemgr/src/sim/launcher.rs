//! A tenant's launches, on their way through the same gate, purse and turns that `libweir.so` has.
//!
//! The order of the questions is `weir-core`'s ([`admission`]), and so are the answers, on the pages that the manager made. What
//! differs from a real program:
//!
//! * Prices are true: what a kernel takes alone is known from its first launch.
//! * What is done is seen at once, as by the words that the GPU writes; a program that neither waits nor asks looks no
//!   more often than in reality.
//! * Turns end where they drain: none is kept through a short rest ([`weir_core::rests`]), and launches wait on the host.
//! * The board: a filler finds that a better one works [`BOARD`] after that one's first launch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_core::admission::{self, Asked, Held, Launching, Wanted};
use weir_core::gate::{self, Gate, Patience, in_flight};
use weir_core::hold::{Holder, Terms};
use weir_core::progress::{Progress, Work};
use weir_core::purse::Purse;
use weir_core::turn::{self, Seen};
use weir_protocol::pages::{Grant, Precedence, ProcessSlot, Turn};
use weir_protocol::units::{Nanos, Tokens};

use crate::registry::Pages;

/// From a better one's first launch until fillers find it on the board (design 5: closed in less than 2 us).
pub const BOARD: Nanos = Nanos::from_micros(2);

/// A neighbour on the board.
pub struct Neighbour {
    /// Which seat it has.
    pub seat: usize,
    precedence: Precedence,
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

    fn precedence(&self) -> Precedence {
        self.precedence
    }
}

/// Adds to a word of the process's slot, which nobody else writes: a run has one thread.
pub fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// What wakes a sleeping launch, besides its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// Another grant than this one; or the tenant in this seat passes its turn on, or has no work any more.
    Set(u32, Option<usize>),
    /// It has gone off already.
    Off,
}

/// What was said to a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It goes.
    Goes,
    /// It sleeps, at most so long.
    Sleeps(Nanos, Alarm),
}

/// A launch at the gate.
#[derive(Clone, Copy, Debug)]
struct Asking {
    arrived: Nanos,
    patience: Patience,
    held: Option<Held<usize>>, // when it last asked
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
    progress: Progress,
    queued: VecDeque<u64>,
    turn_passed: bool,
    closed_by: Option<usize>, // the better one that was found to work
    holder: Holder,
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
            progress: Progress::default(),
            queued: VecDeque::new(),
            turn_passed: false,
            closed_by: None,
            holder: Holder::default(),
        }
    }

    /// Adds who else is on the GPU.
    pub fn meet(&mut self, seat: usize, precedence: Precedence, pages: Arc<Pages>) {
        self.neighbours.push(Neighbour { seat, precedence, pages, seen: Seen::default() });
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
        let was_open = std::mem::replace(&mut self.closed_by, closed_by).is_none();
        if self.asking.is_none() && closed_by.is_none() && self.pays_at_once(price) {
            return Said::Goes;
        }
        let grant = self.pages.grant.read();
        let closes = was_open && closed_by.is_some();
        if closes || self.purse.generation() != grant.generation {
            // Drawn in better times, or under another grant: too much, perhaps.
            self.pages.bucket.charge(Tokens(-self.purse.empty()));
        }
        let asking = self.again(now, grant.generation);
        let wanted = self.wanted(price, &grant);
        match admission::ask(self, wanted, asking.patience, (asking.arrived, now)) {
            Asked::Goes(generation, drawn) => self.go(price, wanted.map(|_| drawn), generation),
            Asked::Waits(_) if self.stands_still(asking.arrived, now) => self.pass_as_debt(price, &grant),
            Asked::Waits(held) => {
                self.stir();
                self.asking = Some(Asking { held: Some(held), ..asking });
                return Said::Sleeps(held.at_most, Alarm::Set(held.generation, held.neighbour));
            }
        }
        self.asking = None;
        self.count_wait(now, asking.arrived);
        Said::Goes
    }

    /// The launch path: the purse suffices, and the tenant has work on the GPU that it may add to.
    fn pays_at_once(&mut self, price: i64) -> bool {
        (self.flows || admission::has_turn(self)) && self.purse.pay(price, self.pages.grant.generation())
    }

    /// The launch as it stands at the gate: new, or after a sleep.
    fn again(&self, now: Nanos, generation: u32) -> Asking {
        let Some(before) = self.asking else {
            let patience = Patience::under(self.purse.generation(), generation);
            return Asking { arrived: now, patience, held: None };
        };
        let patience =
            before.held.map_or(before.patience, |held| held.patience_then(before.patience, generation));
        Asking { patience, ..before }
    }

    /// What it asks of the bucket; nothing if the purse suffices. Behind a closed gate nobody draws ahead.
    fn wanted(&self, price: i64, grant: &Grant) -> Option<Wanted> {
        let lacks = self.purse.lacks(price);
        let tokens = Tokens(self.purse.ask(price, Gate::slice_ceiling(grant, 1, price, false)));
        (lacks > 0 || self.closed_by.is_some()).then_some(Wanted { price: Tokens(lacks), tokens })
    }

    /// A launch goes; `drawn` for it, if it had not been paid.
    fn go(&mut self, price: i64, drawn: Option<Tokens>, generation: u32) {
        match drawn {
            Some(tokens) => self.purse.fill(tokens.0, price, generation),
            None => {
                self.purse.pay(price, generation);
            }
        }
    }

    fn stands_still(&self, arrived: Nanos, now: Nanos) -> bool {
        now > arrived && self.gate.stands_still_itself(self.gate_pages(), arrived, now)
    }

    /// Nothing of the tenant completes: the launch passes as debt (gpu-truths, rule 8).
    fn pass_as_debt(&mut self, price: i64, grant: &Grant) {
        self.pages.bucket.charge(Tokens(price));
        self.purse.fill(price, price, grant.generation);
        add(&self.slot().lanes[0].forced, 1);
    }

    fn count_wait(&self, now: Nanos, arrived: Nanos) {
        if now > arrived {
            self.gate_pages().let_in();
            let lane = &self.slot().lanes[0];
            add(&lane.throttled, 1);
            add(&lane.waited_ns, now.since(arrived).0);
        }
    }

    fn gate_pages(&self) -> gate::Pages<'_> {
        let Pages { grant, bucket, usage, .. } = &*self.pages;
        gate::Pages { grant, bucket, usage, slot: self.slot() }
    }

    /// A paid launch goes out.
    pub fn submitted(&mut self, price: u64) {
        if self.pages.activity.begin(self.slot, || Nanos(0)) {
            // nobody here asks since when
            self.stir();
        }
        self.flows = true;
        self.queued.push_back(price);
        let slot = self.slot();
        add(&slot.submitted_ns, price);
        add(&slot.lanes[0].charged_ns, price);
        add(&slot.lanes[0].calls[0], 1);
    }

    /// Tells a manager that takes the tenant for asleep.
    fn stir(&self) {
        if self.pages.grant.bell.wants().stir {
            self.pages.usage.stir();
        }
    }

    /// The oldest launch under way is done.
    pub fn completed(&mut self) {
        if let Some(price) = self.queued.pop_front() {
            add(&self.slot().completed_ns, price);
        }
    }

    /// The program looks: if nothing is under way, it says so on the board and passes its turn on.
    pub fn look(&mut self, now: Nanos) {
        if self.queued.is_empty() && self.pages.activity.is_busy(self.slot) {
            self.flows = false;
            let submitted = self.slot().submitted_ns.load(Ordering::Relaxed);
            self.holder.ended(submitted, now);
            self.pages.activity.end(self.slot);
            admission::drained(self, now);
            self.turn_passed = true; // whoever gives way to it sleeps until now
        }
    }
}

impl Launching for Launcher {
    type Word = usize; // the neighbour's seat
    type Neighbour = Neighbour;
    type Sibling = Neighbour; // a tenant is one process here

    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn pages(&self) -> gate::Pages<'_> {
        self.gate_pages()
    }

    fn turn(&self) -> &Turn {
        &self.pages.activity.turn
    }

    fn gives_way_to(&self) -> Option<usize> {
        self.closed_by
    }

    fn held_back(&self, arrived: Nanos, now: Nanos) -> Option<Nanos> {
        if !self.queued.is_empty() {
            return None;
        }
        let grant = self.pages.grant.read();
        let terms = Terms { hold: grant.hold, request: grant.fallback_rate };
        let submitted = self.slot().submitted_ns.load(Ordering::Relaxed);
        self.holder.ask(terms, submitted, arrived, now)
    }

    fn is_alone(&self) -> bool {
        self.overlaps || self.neighbours.is_empty()
    }

    fn has_neighbours(&self) -> bool {
        !self.neighbours.is_empty()
    }

    fn queue<R>(&mut self, ask: impl FnOnce(&Turn, &mut [Neighbour]) -> R) -> Option<R> {
        Some(ask(&self.pages.activity.turn, &mut self.neighbours))
    }

    fn word(neighbour: &Neighbour, _: u32) -> usize {
        neighbour.seat
    }

    fn is_busy(&self) -> bool {
        !self.queued.is_empty()
    }

    fn with_progress<R>(&mut self, look: impl FnOnce(&mut Progress) -> R) -> R {
        look(&mut self.progress)
    }

    fn work(&self) -> Work {
        let slot = self.slot();
        let beside = self.neighbours.iter().any(|other| other.pages.activity.quiet(None).is_none());
        Work { queued: in_flight(slot).0, done: slot.completed_ns.load(Ordering::Relaxed), beside }
    }

    fn turn_passed(&mut self) {
        self.flows = false;
        self.turn_passed = true;
    }

    fn room(&self) -> Nanos {
        Nanos(0) // it knows its prices
    }

    fn is_solo(&self) -> bool {
        false
    }

    fn solo<R>(&mut self, _: impl FnOnce(&Turn, &mut [Neighbour]) -> R) -> Option<R> {
        None
    }

    fn solo_turn(&self) -> Nanos {
        Nanos(0)
    }

    fn sibling_word(sibling: &Neighbour, _: u32) -> usize {
        sibling.seat
    }

    fn solo_passed(&mut self) {}
}
