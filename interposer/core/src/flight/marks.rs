//! Marks: timing events behind work, and the stretches between them.
//!
//! The marks of one stream form a chain. Two that follow each other bound a *stretch*: the launches between them. If the
//! first had not been reached when the second was put, the stream was never idle in between, and the time between the two
//! events is what the stretch took. Otherwise it took at least that, less the time in which the stream may have idled
//! (gpu-truths, rule 5). It is *measured* only if no neighbour was at work (rule 2) between two looks: the last one at which
//! the first mark had not been reached, and the first one at which the second had.
//!
//! Copies by an engine lie in the same streams. They take no SM time, so their own expected time is taken out of a stretch
//! before it is charged; and as their prices are learnt from the same stretches as those of launches are, together with
//! them, neither teaches the other wrong. A stretch of copies alone charges nothing.

use std::collections::VecDeque;

use weir_protocol::pages::Stall;
use weir_protocol::units::Nanos;

use super::book::Value;
use super::horizon::Told;
use super::{BOOKS, Driver, Place};
use crate::copy::{CopyPrices, ENGINES, Tally};
use crate::meter::Meter;
use crate::price::Parts;
use crate::stall::Span;

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
    value: Value,
    recorded_from: Nanos,
    stretch: Option<Stretch>,
    quiet: Option<u64>, // of the neighbours, when it was last seen not to be reached
}

/// The launches between a mark and the one before it, on one stream.
#[derive(Debug)]
struct Stretch {
    charged: f64,
    communicated: f64, // part of `charged`
    copies: Tally,
    stood: bool,      // work stood still in it
    slack: f64,       // at most so long the stream idled in between, ns
    late: (f64, f64), // so long after the first mark, least and most, the first launch came onto an idle stream, ns
    parts: Parts,
}

/// The last mark of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    stream: u64,
    value: Value,
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
    engines: [Meter; ENGINES],
    copies: &'static CopyPrices,
    offset: Option<f64>, // the processor's clock less the GPU's, ns
    told: [Told; BOOKS],
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
    pub value: Value,
    /// What was charged for the stretch that it ends, and what the stretch took.
    pub stretch: Option<(f64, f64)>,
    pub measured: bool,
    /// What copies took beyond what was predicted, by way.
    pub copies_ns: [f64; ENGINES],
}

impl Marks {
    /// None, with these prices of copies.
    pub fn new(copies: &'static CopyPrices) -> Self {
        Self {
            under_way: VecDeque::new(),
            spare: Vec::new(),
            spare_parts: Vec::new(),
            chains: [None; BOOKS],
            anchor: None,
            meter: Meter::default(),
            engines: Default::default(),
            copies,
            offset: None,
            told: [Told::default(); BOOKS],
        }
    }

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
        value: Value,
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
        let stretch = before.filter(|chain| value.total() > chain.value.total()).map(|chain| {
            let charged = value.work.saturating_sub(chain.value.work);
            let mut parts = self.spare_parts.pop().unwrap_or_default();
            if charged > 0 {
                driver.launches(stream, charged, &mut parts);
            }
            if chain.stood || charged == 0 {
                parts.clear();
            }
            Stretch {
                charged: charged as f64,
                communicated: value.communicated.saturating_sub(chain.value.communicated) as f64,
                copies: value.copies.since(&chain.value.copies),
                stood: chain.stood,
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
        self.under_way.push_back(Mark { event, book, value, recorded_from, stretch, quiet });
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
        let Mark { event, book, value, recorded_from, mut stretch, quiet } = mark;
        let time = self.time_of(event, driver);
        self.set_clock(time, recorded_from, driver.now());
        let (mut took, mut measured, mut copies_ns) = (None, false, [0.0; ENGINES]);
        if let Some(chain) = &mut self.chains[book] {
            let (before, since) = (chain.reached_at, chain.quiet);
            (chain.reached_at, chain.quiet) = (time, quiet);
            if let (Some(stretch), Some(from), Some(to)) = (&mut stretch, before, time) {
                measured = since.is_some() && since == driver.neighbours();
                let meters = Meters { sms: &mut self.meter, engines: &mut self.engines, copies: self.copies };
                let settled = stretch.settle(from, to, measured, meters);
                if self.told[book].total() < value.total() {
                    stretch.tell(&settled, to + self.offset.unwrap_or(0.0), driver);
                }
                copies_ns = settled.copies_ns;
                took = Some((stretch.charged, settled.took));
            }
        }
        self.tell(book, &value);
        if let Some(stretch) = stretch {
            self.spare_parts.push(stretch.parts);
        }
        Reached { book, value, stretch: took, measured, copies_ns }
    }

    /// The processor's clock against the GPU's: an event is reached after its record began, and before that is seen.
    fn set_clock(&mut self, time: Option<f64>, recorded_from: Nanos, now: Nanos) {
        let Some(time) = time else { return };
        let (least, most) = (recorded_from.0 as f64 - time, now.0 as f64 - time);
        self.offset = Some(self.offset.unwrap_or(least).min(most).max(least));
    }

    /// What has been said of a book's time.
    pub fn told(&self, book: usize) -> Told {
        self.told[book]
    }

    /// More has been said of a book's time.
    pub fn set_told(&mut self, book: usize, told: Told) {
        self.told[book] = told;
    }

    fn tell(&mut self, book: usize, value: &Value) {
        let told = &mut self.told[book];
        told.work = told.work.max(value.work);
        told.copied = told.copied.max(value.copies.total_ns());
    }

    /// When the last mark of a book was reached, on the processor's clock.
    pub fn measured_up_to(&self, book: usize) -> Option<Nanos> {
        let reached = self.chains[book].and_then(|chain| chain.reached_at);
        reached.map(|time| moment(time + self.offset.unwrap_or(0.0)))
    }

    /// Whether a mark of a book has not been reached.
    pub fn is_under_way(&self, book: usize) -> bool {
        self.under_way.iter().any(|mark| mark.book == book)
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

/// What a context's stretches are measured with.
struct Meters<'a> {
    sms: &'a mut Meter,
    engines: &'a mut [Meter; ENGINES],
    copies: &'static CopyPrices,
}

/// What became of a stretch, in nanoseconds.
struct Outcome {
    took: f64,                 // of the SMs; what other streams share counted once
    busy: f64,                 // its stream was at work, before its end
    on_sms: f64,               // part of that: launches
    waited: f64,               // its stream was at work, or waited for a neighbour
    copies_ns: [f64; ENGINES], // on top of what was predicted
}

impl Stretch {
    /// What the stretch took of the GPU; teaches the prices of its launches and copies if it was measured.
    fn settle(&mut self, from: f64, to: f64, measured: bool, meters: Meters<'_>) -> Outcome {
        let most = (to - from - self.late.0).max(0.0);
        let doubt = self.slack + self.late.1 - self.late.0;
        let surely = (most - doubt).max(0.0);
        let prices = meters.copies;
        // Nothing is learnt from a stretch in which the host may have paused ...
        let tight = doubt < most.max(PROMPT_NS);
        let measure = ((to - from - self.late.1).max(0.0), doubt);
        if self.charged == 0.0 {
            // Time slices are of the SMs: a neighbour's do not stretch a copy.
            self.learn_copies(to, (surely, most), tight.then_some(measure), meters.engines, prices);
            let busy = self.copied(prices).clamp(surely, most);
            return self.outcome((0.0, busy, 0.0, busy), prices);
        }
        if !measured {
            let copied = self.copied(prices).min(most);
            if copied == 0.0 {
                self.parts.bound(most, self.slack > 0.0);
            }
            let took = meters.sms.estimate(to - (most - copied), to, self.charged);
            let on_sms = self.charged.min(most - copied);
            let busy = on_sms + copied;
            return self.outcome((took, busy, on_sms, busy.max(surely)), prices);
        }
        let copied = self.copied(prices);
        let busy = (self.charged + copied).clamp(surely, most);
        let on_sms = (busy - copied).max(0.0);
        let took = meters.sms.cover(to - on_sms, to);
        // ... or another stream's overlapped.
        if took >= 0.99 * on_sms
            && tight
            && !self.parts.is_empty()
            && prices.add_to(&self.copies, &mut self.parts)
        {
            self.parts.learn(measure.0, measure.1);
        }
        self.outcome((took, busy, on_sms, busy), prices)
    }

    /// A stretch of copies alone says what they take, unless an engine had others of this process to serve.
    fn learn_copies(
        &mut self,
        to: f64,
        (surely, most): (f64, f64),
        measure: Option<(f64, f64)>,
        engines: &mut [Meter; ENGINES],
        prices: &'static CopyPrices,
    ) {
        let Some(way) = self.copies.only_way() else { return };
        let busy = self.copied(prices).clamp(surely, most);
        let alone = engines[way].cover(to - busy, to) >= 0.99 * busy;
        if let Some((took, doubt)) = measure.filter(|_| alone && !self.stood)
            && prices.add_to(&self.copies, &mut self.parts)
        {
            self.parts.learn(took, doubt);
        }
    }

    /// What its copies are expected to take.
    fn copied(&self, prices: &CopyPrices) -> f64 {
        prices.times(&self.copies).iter().sum()
    }

    fn outcome(&self, (took, busy, on_sms, waited): (f64, f64, f64, f64), prices: &CopyPrices) -> Outcome {
        let mut copies_ns = prices.times(&self.copies);
        copies_ns
            .iter_mut()
            .zip(self.copies.predicted_ns)
            .for_each(|(ns, predicted)| *ns -= predicted as f64);
        Outcome { took, busy, on_sms, waited, copies_ns }
    }

    /// Says what the time went to, up to `end` on the processor's clock: copies, then what communicates, then the rest.
    /// Where in the stretch each of them lay is not known, only how long it was.
    fn tell(&self, settled: &Outcome, end: f64, driver: &mut impl Driver) {
        let part = if self.charged > 0.0 { (self.communicated / self.charged).min(1.0) } else { 0.0 };
        let on_sms = end - settled.on_sms;
        let computes = on_sms + settled.on_sms * part;
        let spans = [
            (Stall::Neighbour, end - settled.waited, end),
            (Stall::Copies, end - settled.busy, on_sms),
            (Stall::Communication, on_sms, computes),
            (Stall::Compute, computes, end),
        ];
        for (stall, from, to) in spans.into_iter().filter(|(_, from, to)| to > from) {
            driver.spent(Span { stall, from, to });
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a moment is never negative; beyond the range of u64 it saturates"
)]
fn moment(ns: f64) -> Nanos {
    Nanos(ns as u64)
}
