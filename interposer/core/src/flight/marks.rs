//! Marks: timing events behind work, and the stretches between them.
//!
//! The marks of one stream form a chain. Two that follow each other bound a *stretch*: the launches between them. If the
//! first had not been reached when the second was put, the stream was never idle in between, and the time between the two
//! events is what the stretch took. Otherwise it took at least that, less the time in which the stream may have idled
//! (gpu-truths, rule 5). It is *measured* only if no neighbour was at work (rule 2) between two looks: the last one at which
//! the first mark had not been reached, and the first one at which the second had.

use std::collections::VecDeque;

use weir_protocol::units::Nanos;

use super::{BOOKS, Driver};
use crate::meter::Meter;
use crate::price::Parts;

/// Marks outstanding at most: a stream that runs far ahead gets no more of them until some were reached.
const MARKS: usize = 256;

/// Event times are `f32` milliseconds: measured against an event no older than this, in nanoseconds, they are exact to
/// 30 ns.
const ANCHOR_NS: f64 = 200e6;

/// So soon after a launch onto an idle stream the mark behind it says when it ended, however short it was, in
/// nanoseconds.
const PROMPT_NS: f64 = 20_000.0;

/// A mark under way, with the stretch that it ends.
#[derive(Debug)]
struct Mark {
    event: u64,
    book: usize,
    value: u64,
    launched: u64,
    stretch: Option<Stretch>,
    quiet: Option<u64>, // of the neighbours, when it was last seen not to be reached
}

/// An event that is to become a mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blank {
    pub event: u64,
    life: u32, // of the marks from which it came
}

/// A mark that the driver has taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub blank: Blank,
    /// On the processor's clock, when the call began and when it was over.
    pub from: Nanos,
    pub by: Nanos,
    /// Launches of the process until then.
    pub launched: u64,
}

/// The launches between a mark and the one before it, on one stream.
#[derive(Debug)]
struct Stretch {
    charged: f64,
    slack: f64,       // at most so long the stream idled in between, ns
    late: (f64, f64), // so long after the first mark, least and most, the first launch came onto an idle stream, ns
    parts: Parts,
}

/// The last mark of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    stream: u64,
    value: u64,
    recorded_from: Nanos,    // the record began ...
    recorded_by: Nanos,      // ... and was over
    launched_at: Nanos,      // the first launch behind it, if the stream was idle
    stood: bool,             // work stood still since
    reached_at: Option<f64>, // the last one that was reached, on the GPU's clock ...
    quiet: Option<u64>,      // ... and the neighbours, not long before that
    switched: bool,          // a neighbour had the GPU since the one before
}

/// All marks of one context.
#[derive(Debug)]
pub(super) struct Marks {
    under_way: VecDeque<Mark>,
    spare: Vec<u64>,
    spare_parts: Vec<Parts>,
    chains: [Option<Chain>; BOOKS],
    anchor: Option<(u64, f64)>, // an event that was reached, and when
    meter: Meter,
    life: u32, // contexts so far
}

/// How far a look at the marks has come.
pub(super) struct Look {
    quiet: Option<u64>, // of the neighbours, before the first mark is asked for
    at: usize,
    busy: u64, // bit per book: its oldest mark was not reached
}

impl Look {
    /// A look that begins now.
    pub fn begin(driver: &mut impl Driver) -> Self {
        Self { quiet: driver.neighbours(), at: 0, busy: 0 }
    }
}

/// What became of a mark.
pub(super) struct Reached {
    pub book: usize,
    pub value: u64,
    /// Launches of the process until it was put.
    pub launched: u64,
    /// For the stretch that it ends.
    pub bill: Option<Bill>,
}

/// What a stretch comes to, ns.
pub(super) struct Bill {
    /// What was charged for its launches.
    pub charged: f64,
    /// What it took.
    pub took: f64,
    /// Whether that was measured.
    pub measured: bool,
    /// Until the GPU had switched to it.
    pub switch: f64,
}

/// Who else was on the GPU during a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    /// Nobody.
    None,
    /// Nobody, but right before it somebody was.
    Before,
    /// Somebody may have been, in time slices.
    InTurns,
    /// Somebody may have been, at the same time.
    AtOnce,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            under_way: VecDeque::new(),
            spare: Vec::new(),
            spare_parts: Vec::new(),
            chains: [None; BOOKS],
            anchor: None,
            meter: Meter::default(),
            life: 0,
        }
    }
}

impl Marks {
    /// Adds events to the pool. Later on nothing here allocates.
    pub fn add_events(&mut self, events: impl IntoIterator<Item = u64>) {
        self.spare.extend(events);
        let count = self.spare.len();
        self.under_way.reserve(count);
        self.spare_parts.extend(std::iter::repeat_with(Parts::with_room).take(count));
    }

    /// Forgets everything: the context is gone.
    pub fn reset(&mut self) {
        *self = Self { life: self.life.wrapping_add(1), ..Self::default() };
    }

    /// Events at hand.
    pub fn spare(&self) -> usize {
        self.spare.len()
    }

    /// When the last mark of a book was put, on the processor's clock.
    pub fn recorded_at(&self, book: usize) -> Option<Nanos> {
        self.chains[book].map(|chain| chain.recorded_by)
    }

    /// An event for a mark, if one is at hand. What the driver does with it is done without the marks' lock: where a
    /// queue is full, a record waits.
    pub fn take(&mut self) -> Option<Blank> {
        let room = self.under_way.len() < MARKS;
        self.spare.pop_if(|_| room).map(|event| Blank { event, life: self.life })
    }

    /// Gives an event back that was not recorded.
    pub fn give_back(&mut self, blank: &Blank) {
        if blank.life == self.life {
            self.spare.push(blank.event);
        }
    }

    /// Takes in a mark that was recorded in the book's stream behind what that had been given, `value` in all.
    pub fn put(
        &mut self,
        (book, stream): (usize, u64),
        value: u64,
        record: &Record,
        driver: &mut impl Driver,
    ) {
        let Record { blank: Blank { event, life }, from: recorded_from, by: recorded_by, launched } = *record;
        if life != self.life {
            return; // its context is gone, and the event with it
        }
        let before = self.chains[book].filter(|chain| chain.stream == stream);
        let never_idle = self.under_way.iter().rfind(|mark| mark.book == book).map(|mark| mark.event);
        let never_idle = never_idle.is_some_and(|last| !driver.reached(last));
        let stretch = before.filter(|chain| value > chain.value).map(|chain| {
            let charged = value - chain.value;
            let mut parts = self.spare_parts.pop().unwrap_or_default();
            driver.launches(stream, charged, &mut parts);
            if chain.stood {
                parts.clear();
            }
            Stretch {
                charged: charged as f64,
                slack: if never_idle {
                    0.0
                } else {
                    recorded_by.since(chain.recorded_from.max(chain.launched_at)).0 as f64
                },
                late: (
                    chain.launched_at.since(chain.recorded_by).0 as f64,
                    chain.launched_at.since(chain.recorded_from).0 as f64,
                ),
                parts,
            }
        });
        self.chains[book] = Some(Chain {
            stream,
            value,
            recorded_from,
            recorded_by,
            launched_at: Nanos(0),
            stood: false,
            reached_at: before.and_then(|chain| chain.reached_at),
            quiet: before.and_then(|chain| chain.quiet),
            switched: before.is_some_and(|chain| chain.switched),
        });
        let quiet = driver.neighbours();
        self.under_way.push_back(Mark { event, book, value, launched, stretch, quiet });
    }

    /// Work stands still: nothing is learnt from what is under way now.
    pub fn stood_still(&mut self) {
        self.under_way.iter_mut().filter_map(|mark| mark.stretch.as_mut()).for_each(|s| s.parts.clear());
        self.chains.iter_mut().flatten().for_each(|chain| chain.stood = true);
    }

    /// The first launch behind a book's last mark goes out now, onto an idle stream.
    pub fn launches(&mut self, book: usize, now: Nanos) {
        if let Some(chain) = &mut self.chains[book] {
            chain.launched_at = now;
        }
    }

    /// Whether the launches behind a book's last mark began on an idle stream.
    pub fn began_idle(&self, book: usize) -> bool {
        self.chains[book].is_some_and(|chain| chain.launched_at != Nanos(0))
    }

    /// A book's stream is gone: what was put there may be reached still, but ends no stretch.
    pub fn forget(&mut self, book: usize) {
        self.chains[book] = None;
    }

    /// For how long the GPU was at the process's work since the last call, and the same with the work's weight, ns.
    pub fn take_occupied(&mut self) -> (f64, f64) {
        self.meter.take_occupied()
    }

    /// Takes the next mark that was reached, oldest first. One slow stream does not hide the others: each is asked until
    /// its first mark that was not reached.
    pub fn next_reached(&mut self, look: &mut Look, driver: &mut impl Driver) -> Option<Reached> {
        while let Some(mark) = self.under_way.get_mut(look.at) {
            if look.busy & (1 << mark.book) != 0 || !driver.reached(mark.event) {
                mark.quiet = look.quiet; // what comes behind it has not begun
                look.busy |= 1 << mark.book;
                look.at += 1;
                continue;
            }
            let mark = self.under_way.remove(look.at)?;
            return Some(self.reach(mark, driver));
        }
        None
    }

    fn reach(&mut self, mark: Mark, driver: &mut impl Driver) -> Reached {
        let Mark { event, book, value, launched, stretch, quiet } = mark;
        let time = self.time_of(event, driver);
        let mut bill = None;
        if let Some(chain) = &mut self.chains[book] {
            let (before, since, switched) = (chain.reached_at, chain.quiet, chain.switched);
            (chain.reached_at, chain.quiet, chain.switched) = (time, quiet, since != quiet);
            if let (Some(stretch), Some(from), Some(to)) = (&stretch, before, time) {
                let alone = since.is_some() && since == driver.neighbours();
                let company = match alone {
                    // The first launch after a neighbour's work waited until the GPU had switched.
                    true if switched && stretch.began_idle() => Company::Before,
                    true => Company::None,
                    false if driver.overlaps() => Company::AtOnce,
                    false => Company::InTurns,
                };
                bill = Some(stretch.settle((from, to), company, &mut self.meter, driver));
            }
        }
        if let Some(stretch) = stretch {
            self.spare_parts.push(stretch.parts);
        }
        Reached { book, value, launched, bill }
    }

    /// When an event was reached, on the GPU's clock; gives the event back to the pool, or keeps it as the anchor.
    fn time_of(&mut self, event: u64, driver: &mut impl Driver) -> Option<f64> {
        let Some((anchor, zero)) = self.anchor else {
            self.anchor = Some((event, 0.0));
            return Some(0.0);
        };
        let time = driver.elapsed(anchor, event).map(|ns| zero + ns);
        match time {
            Some(time) if time - zero > ANCHOR_NS => {
                self.spare.push(anchor);
                self.anchor = Some((event, time));
            }
            _ => self.spare.push(event),
        }
        time
    }
}

impl Stretch {
    fn began_idle(&self) -> bool {
        self.late.1 > 0.0
    }

    /// What the stretch took of the GPU; teaches the prices of its launches if it was measured.
    fn settle(
        &self,
        (from, to): (f64, f64),
        company: Company,
        meter: &mut Meter,
        driver: &mut impl Driver,
    ) -> Bill {
        let most = (to - from - self.late.0).max(0.0);
        let doubt = self.slack + self.late.1 - self.late.0;
        let busy = self.charged.clamp((most - doubt).max(0.0), most);
        let mut bill = Bill { charged: self.charged, took: self.charged, measured: false, switch: 0.0 };
        match company {
            Company::Before if self.parts.are_learnt() && !meter.is_guessed(to - most, to) => {
                bill.switch = meter.switched(most, self.charged);
                (bill.took, bill.measured) = (meter.cover(to - (most - bill.switch), to), true);
            }
            Company::InTurns | Company::Before => {
                self.parts.bound(most, self.slack > 0.0);
                self.parts.owe();
                bill.took = meter.estimate(to - most, to, self.charged, self.parts.are_learnt());
            }
            Company::AtOnce => {
                // Their kernels and ours ran at once: what was measured is in part the neighbours' time.
                let took = meter.cover(to - busy, to);
                let part = driver.part(meter.weigh(took, busy, self.parts.weight()));
                self.parts.bound(most * part, self.slack > 0.0);
                bill.took = took * part;
            }
            // Beside another stream's stretch of which only an estimate is known, nobody can tell what both took.
            Company::None if meter.is_guessed(to - busy, to) => {}
            Company::None => {
                let took = meter.cover(to - busy, to);
                meter.weigh(took, busy, self.parts.weight());
                (bill.took, bill.measured) = (took, true);
                // Nothing is learnt from a stretch in which the host may have paused.
                if doubt < most.max(PROMPT_NS) {
                    let least = (to - from - self.late.1).max(0.0);
                    bill.took += self.parts.learn((least - (busy - took)).max(0.0), doubt);
                }
            }
        }
        bill
    }
}
