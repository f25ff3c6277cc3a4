//! Marks: timing events behind work, and the stretches between them.
//!
//! The marks of one stream form a chain. Two that follow each other bound a *stretch*: the launches between them. If the
//! first had not been reached when the second was put, the stream was never idle in between, and the time between the two
//! events is what the stretch took. Otherwise it took at least that, less the time in which the stream may have idled
//! (gpu-truths, rule 5). It is *measured* only if no neighbour was at work (rule 2) between two looks: the last one at which
//! the first mark had not been reached, and the first one at which the second had.

use std::collections::VecDeque;

use weir_protocol::units::Nanos;

use super::{BOOKS, Driver, Place};
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
    stretch: Option<Stretch>,
    quiet: Option<u64>, // of the neighbours, when it was last seen not to be reached
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
    /// What was charged for the stretch that it ends, and what the stretch took.
    pub stretch: Option<(f64, f64)>,
    pub measured: bool,
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

    /// Events at hand.
    pub fn spare(&self) -> usize {
        self.spare.len()
    }

    /// When the last mark of a book was put, on the processor's clock.
    pub fn recorded_at(&self, book: usize) -> Option<Nanos> {
        self.chains[book].map(|chain| chain.recorded_by)
    }

    /// Puts a mark at `place`, behind what `stream` has been given, `value` in all; says whether it did. A mark that
    /// could not be put leaves everything as it was.
    pub fn put(
        &mut self,
        (book, stream, place): (usize, u64, Place),
        value: u64,
        driver: &mut impl Driver,
    ) -> bool {
        if self.under_way.len() >= MARKS {
            return false;
        }
        let Some(event) = self.spare.pop() else { return false };
        let recorded_from = driver.now();
        if !driver.record(event, place) {
            self.spare.push(event);
            return false;
        }
        let recorded_by = driver.now();
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
        });
        let quiet = driver.neighbours();
        self.under_way.push_back(Mark { event, book, value, stretch, quiet });
        true
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
        let Mark { event, book, value, stretch, quiet } = mark;
        let time = self.time_of(event, driver);
        let (mut took, mut measured) = (None, false);
        if let Some(chain) = &mut self.chains[book] {
            let (before, since) = (chain.reached_at, chain.quiet);
            (chain.reached_at, chain.quiet) = (time, quiet);
            if let (Some(stretch), Some(from), Some(to)) = (&stretch, before, time) {
                measured = since.is_some() && since == driver.neighbours();
                took = Some((stretch.charged, stretch.settle(from, to, measured, &mut self.meter)));
            }
        }
        if let Some(stretch) = stretch {
            self.spare_parts.push(stretch.parts);
        }
        Reached { book, value, stretch: took, measured }
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
    /// What the stretch took of the GPU; teaches the prices of its launches if it was measured.
    fn settle(&self, from: f64, to: f64, measured: bool, meter: &mut Meter) -> f64 {
        let most = (to - from - self.late.0).max(0.0);
        if !measured {
            self.parts.bound(most, self.slack > 0.0);
            return meter.estimate(to - most, to, self.charged);
        }
        let doubt = self.slack + self.late.1 - self.late.0;
        let busy = self.charged.clamp((most - doubt).max(0.0), most);
        let took = meter.cover(to - busy, to);
        // Nothing is learnt from a stretch that another stream's overlapped, or in which the host may have paused.
        let tight = doubt < most.max(PROMPT_NS);
        if took >= 0.99 * busy && tight && !self.parts.is_empty() {
            self.parts.learn((to - from - self.late.1).max(0.0), doubt);
        }
        took
    }
}
