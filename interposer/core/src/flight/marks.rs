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

use weir_protocol::pages::Held;
use weir_protocol::units::Nanos;

use super::book::Value;
use super::burst::{Burst, Lane, Ran};
use super::clock::Clock;
use super::horizon::Told;
use super::pieces::LetGo;
use super::stretch::{Bill, Company, Meters, Stretch};
use super::{BOOKS, Driver, Neighbours};
use crate::copy::{CopyPrices, ENGINES};
use crate::meter::Meter;
use crate::price::Parts;

/// Marks outstanding at most: a stream that runs far ahead gets no more of them until some were reached.
const MARKS: usize = 256;

/// Of work that stood still so much is charged at most beyond its price, in nanoseconds: four standstills.
const SPUN_NS: f64 = 20e6;

/// A mark under way, with the stretch that it ends.
#[derive(Debug)]
struct Mark {
    event: u64,
    book: usize,
    value: Value,
    launched: u64,
    recorded_from: Nanos,
    behind: u64,  // the last piece for which its stream waits before it
    prompt: bool, // nothing held it up
    stretch: Option<Stretch>,
    beside: Neighbours, // when it was last seen not to be reached
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
    /// Launches and copies in its stream until then.
    pub launched: u64,
    /// What its other streams had been given, if all of that was done.
    pub elsewhere: Option<u64>,
    /// By when what lies before it was done, on the processor's clock, if the program has waited for all of that.
    pub ended: Option<Nanos>,
    /// All that the process had been given was done: a burst begins.
    pub begins: bool,
    /// The stream waits for a piece to be let go between the mark before it and this one.
    pub held: bool,
    /// The last piece for which the stream waits before it.
    pub behind: u64,
}

/// The last mark of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    stream: u64,
    value: Value,
    recorded_from: Nanos,    // the record began ...
    recorded_by: Nanos,      // ... and was over
    launched_at: Nanos,      // the first launch behind it, if the stream was idle, ...
    launched_by: Nanos,      // ... and when its call was over, if that is known
    stood: bool,             // work stood still since
    reached_at: Option<f64>, // the last one that was reached, on the GPU's clock ...
    beside: Neighbours,      // ... and the neighbours, not long before that
    switched: bool,          // a neighbour had the GPU since the one before
    elsewhere: Option<u64>,  // what other streams had been given, if it was done
    first: bool,             // it ends a stretch that may have begun with a neighbour's time slice
    ours_until: Option<f64>, // our time slice is not over by then, on the GPU's clock
    burst: u32,              // in which it was put, ...
    before_burst: u64,       // ... work up to the first mark of that ...
    reached: u64,            // ... and up to the last one that was reached
}

/// All marks of one context.
#[derive(Debug)]
pub(super) struct Marks {
    under_way: VecDeque<Mark>,
    spare: Vec<u64>,
    spare_parts: Vec<Parts>,
    chains: [Option<Chain>; BOOKS],
    clock: Clock,
    meter: Meter,
    engines: [Meter; ENGINES],
    copies: &'static CopyPrices,
    told: [Told; BOOKS],
    burst: Burst,
    beside: Neighbours, // not long before the last mark was reached, in whatever stream
    life: u32,          // contexts so far
}

/// How far a look at the marks has come.
pub(super) struct Look<'a> {
    let_go: &'a LetGo,
    beside: Neighbours, // before the first mark is asked for
    at: usize,
    busy: u64, // bit per book: its oldest mark was not reached
}

impl<'a> Look<'a> {
    /// A look that begins now.
    pub fn begin(let_go: &'a LetGo, driver: &mut impl Driver) -> Self {
        Self { let_go, beside: driver.neighbours(), at: 0, busy: 0 }
    }
}

/// What became of a mark.
pub(super) struct Reached {
    pub book: usize,
    pub value: Value,
    /// Launches and copies in its stream until it was put.
    pub launched: u64,
    /// When, on the processor's clock.
    pub at: Nanos,
    /// For the stretch that it ends.
    pub bill: Option<Bill>,
}

impl Marks {
    /// None, with these prices of copies.
    pub fn new(copies: &'static CopyPrices) -> Self {
        Self {
            under_way: VecDeque::new(),
            spare: Vec::new(),
            spare_parts: Vec::new(),
            chains: [None; BOOKS],
            clock: Clock::default(),
            meter: Meter::default(),
            engines: Default::default(),
            copies,
            told: [Told::default(); BOOKS],
            burst: Burst::default(),
            beside: Neighbours { quiet: Some(0), ..Neighbours::default() }, // none of them has ever had work
            life: 0,
        }
    }

    /// Forgets everything: the context is gone.
    pub fn reset(&mut self) {
        *self = Self { life: self.life.wrapping_add(1), ..Self::new(self.copies) };
    }

    /// Adds events to the pool. Later on nothing here allocates.
    pub fn add_events(&mut self, events: impl IntoIterator<Item = u64>) {
        self.spare.extend(events);
        let count = self.spare.len();
        self.under_way.reserve(count);
        self.spare_parts.extend(std::iter::repeat_with(Parts::with_room).take(count));
    }

    /// One event, at hand or under way.
    pub fn any_event(&self) -> Option<u64> {
        self.spare.last().copied().or_else(|| self.under_way.front().map(|mark| mark.event))
    }

    /// Events at hand.
    pub fn spare(&self) -> usize {
        self.spare.len()
    }

    /// Whether the last mark of a book ended a stretch that may have begun with a neighbour's time slice: the next one may not.
    pub fn is_first(&self, book: usize) -> bool {
        self.chains[book].is_some_and(|chain| chain.first)
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
        value: Value,
        record: &Record,
        driver: &mut impl Driver,
    ) {
        let Record {
            blank: Blank { event, life },
            from: recorded_from,
            by: recorded_by,
            launched,
            elsewhere,
            ended,
            begins,
            held,
            behind,
        } = *record;
        if life != self.life {
            return; // its context is gone, and the event with it
        }
        let before = self.chains[book].filter(|chain| chain.stream == stream);
        let never_idle = self.is_at_work(book, driver);
        let stretch = before.filter(|chain| value.total() > chain.value.total()).map(|chain| {
            let chain = Chain { stood: chain.stood || held, ..chain };
            let stretch = self.stretch_since(&chain, &value, (never_idle, recorded_by, ended), driver);
            Stretch { held, ..stretch }
        });
        if begins {
            self.burst.begin();
        }
        let same_burst = before.filter(|chain| chain.burst == self.burst.number());
        let beside = driver.neighbours();
        self.chains[book] = Some(Chain {
            stream,
            value,
            recorded_from,
            recorded_by,
            launched_at: Nanos(0),
            launched_by: Nanos(0),
            stood: false,
            reached_at: before.and_then(|chain| chain.reached_at),
            beside: before.map_or(self.beside, |chain| chain.beside),
            switched: before.is_some_and(|chain| chain.switched),
            elsewhere,
            first: before.is_some_and(|chain| {
                let by_itself = chain.elsewhere.is_some(); // else what follows teaches nothing
                chain.launched_at != Nanos(0) && by_itself && !beside.were_quiet_since(&chain.beside)
            }),
            ours_until: before.and_then(|chain| chain.ours_until),
            burst: self.burst.number(),
            before_burst: same_burst.map_or(value.work, |chain| chain.before_burst),
            reached: before.map_or(value.work, |chain| chain.reached),
        });
        let prompt = begins && !held && beside.quiet.is_some();
        let mark = Mark { event, book, value, launched, recorded_from, behind, prompt, stretch, beside };
        self.under_way.push_back(mark);
    }

    /// Whether a book's last mark has not been reached, by the driver's word.
    fn is_at_work(&self, book: usize, driver: &mut impl Driver) -> bool {
        let last = self.under_way.iter().rfind(|mark| mark.book == book);
        last.is_some_and(|mark| !driver.reached(mark.event))
    }

    /// The launches since the last mark of a stream, which was `never_idle` until the next one, and that one was put.
    fn stretch_since(
        &mut self,
        chain: &Chain,
        value: &Value,
        (never_idle, recorded_by, ended): (bool, Nanos, Option<Nanos>),
        driver: &mut impl Driver,
    ) -> Stretch {
        let charged = value.work.saturating_sub(chain.value.work);
        let launched_by = chain.launched_at.max(chain.launched_by);
        let mut parts = self.spare_parts.pop().unwrap_or_default();
        if charged > 0 {
            driver.launches(chain.stream, charged, &mut parts);
        }
        if chain.stood || charged == 0 {
            parts.clear();
        }
        Stretch {
            charged: charged as f64,
            communicated: value.communicated.saturating_sub(chain.value.communicated) as f64,
            copies: value.copies.since(&chain.value.copies),
            stood: chain.stood,
            held: false,
            elsewhere: chain.elsewhere,
            by_itself: false,
            burst: chain.burst,
            ran: None,
            clipped: false,
            never_idle,
            ended,
            open: ended.unwrap_or(recorded_by).since(chain.recorded_from.max(launched_by)).0 as f64,
            put_by: recorded_by,
            late: (
                chain.launched_at.since(chain.recorded_by).0 as f64,
                launched_by.since(chain.recorded_from).0 as f64,
            ),
            parts,
        }
    }

    /// Work stands still: nothing is learnt from what is under way now, but how long a launch took at most of which nothing is
    /// known.
    pub fn stood_still(&mut self) {
        for stretch in self.under_way.iter_mut().filter_map(|mark| mark.stretch.as_mut()) {
            stretch.stands();
        }
        self.chains.iter_mut().flatten().for_each(|chain| chain.stood = true);
    }

    /// The first launch behind a book's last mark goes out now, onto an idle stream.
    pub fn launches(&mut self, book: usize, now: Nanos) {
        if let Some(chain) = &mut self.chains[book] {
            chain.launched_at = now;
        }
    }

    /// That launch's call is over.
    pub fn launched(&mut self, book: usize, now: Nanos) {
        if let Some(chain) = self.chains[book].as_mut().filter(|chain| chain.launched_at != Nanos(0)) {
            chain.launched_by = now;
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
    pub fn take_held(&mut self) -> Held {
        self.meter.take_held()
    }

    /// Takes the next mark that was reached, oldest first. One slow stream does not hide the others: each is asked until
    /// its first mark that was not reached.
    /// `elsewhere` says what all streams but one have been given.
    pub fn next_reached(
        &mut self,
        look: &mut Look<'_>,
        elsewhere: &impl Fn(usize) -> u64,
        driver: &mut impl Driver,
    ) -> Option<Reached> {
        while let Some(mark) = self.under_way.get_mut(look.at) {
            if look.busy & (1 << mark.book) != 0 || !driver.reached(mark.event) {
                mark.beside = look.beside; // what comes behind it has not begun
                look.busy |= 1 << mark.book;
                look.at += 1;
                continue;
            }
            let mut mark = self.under_way.remove(look.at)?;
            let elsewhere = elsewhere(mark.book);
            if let Some(stretch) = &mut mark.stretch {
                stretch.by_itself = stretch.elsewhere.is_some_and(|before| before == elsewhere);
            }
            mark.recorded_from = mark.recorded_from.max(look.let_go.at(mark.behind));
            return Some(self.reach(mark, driver));
        }
        None
    }

    /// A mark was reached.
    fn reach(&mut self, mark: Mark, driver: &mut impl Driver) -> Reached {
        let Mark { event, book, value, launched, recorded_from, prompt, mut stretch, beside, .. } = mark;
        let time = self.clock.time_of(event, &mut self.spare, driver);
        self.clock.compare(time, (recorded_from, prompt), driver.now());
        self.beside = beside;
        let mut bill = None;
        let span = self.chains[book].and_then(|chain| chain.reached_at).zip(time);
        if let (Some(stretch), Some(span)) = (&mut stretch, span) {
            self.place_in_burst(stretch, (book, value.work), span, driver);
        }
        if let Some(chain) = &mut self.chains[book] {
            let (before, since, switched) = (chain.reached_at, chain.beside, chain.switched);
            (chain.reached_at, chain.beside, chain.switched) = (time, beside, since.quiet != beside.quiet);
            chain.reached = value.work;
            if let (Some(stretch), Some(from), Some(to)) = (&mut stretch, before, time) {
                let to = stretch.ended_by((from, to), self.clock.ahead());
                let now = driver.neighbours();
                stretch.began((self.clock.reached_from(from), self.clock.reached_by(from)));
                let company = match now.were_quiet_since(&since) {
                    // The first launch after a neighbour's work waited until the GPU had switched.
                    true if switched && stretch.began_idle() => Company::Before,
                    true => Company::None,
                    false if driver.overlaps() => {
                        Company::AtOnce { siblings: !now.siblings_were_quiet_since(&since) }
                    }
                    false if chain.ours_until.is_some_and(|until| to <= until) && stretch.follows() => {
                        Company::None
                    }
                    false if !now.siblings_were_quiet_since(&since) => Company::Siblings,
                    false if now.pass || since.pass => Company::Passing,
                    false if now.have_stayed_since(&since) => Company::Comes,
                    false => Company::InTurns,
                };
                let clock = self.clock.ahead();
                let (sms, engines) = (&mut self.meter, &mut self.engines);
                let meters = Meters { sms, engines, copies: self.copies, clock };
                if stretch.began_idle() {
                    chain.ours_until = stretch.ours_until((from, to));
                }
                let (mut settled, spent) = stretch.settle((from, to), company, meters, driver);
                if self.told[book].total() < value.total() {
                    stretch.tell(&spent, to + clock, driver);
                }
                if stretch.stood {
                    // Spun away for launches that the gate held back: no debt of seconds for that.
                    settled.took = settled.took.min(settled.charged + SPUN_NS);
                }
                bill = Some(settled);
            }
        }
        self.tell(book, &value);
        if let Some(stretch) = stretch {
            self.spare_parts.push(stretch.parts);
        }
        let at = time.map_or(Nanos(0), |time| self.clock.here(time));
        Reached { book, value, launched, at, bill }
    }

    /// A book's stretch, up to so much work, says when its burst began to run, or lies in what ran since then.
    fn place_in_burst(
        &mut self,
        stretch: &mut Stretch,
        (book, work): (usize, u64),
        (from, to): (f64, f64),
        driver: &mut impl Driver,
    ) {
        let first = stretch.first((from, to), self.streams(), &self.meter);
        if let Some(first) = first.filter(|_| !driver.overlaps()) {
            self.burst.note(stretch.burst, &first);
        }
        if let Some(began) = self.burst.began(stretch.burst) {
            let pace = stretch.charged / (to - from.max(began)).max(1.0);
            let done = self.done_in_burst((book, work), (began, to), pace);
            stretch.lies_in(Ran { began, done }, (from, to));
        }
    }

    /// Work of the burst that was done in all streams when a book's had done so much of its own, at a moment. The others went on
    /// at that one's pace since their last mark that was reached: in a neighbour's slice none of them does.
    fn done_in_burst(&self, (book, work): (usize, u64), (began, to): (f64, f64), pace: f64) -> f64 {
        let in_burst = |chain: &&Chain| chain.burst == self.burst.number();
        let chains = self.chains.iter().enumerate().filter_map(|(n, chain)| Some((n, chain.as_ref()?)));
        let done = chains.filter(|(_, chain)| in_burst(chain)).map(|(n, chain)| {
            let since = |work: u64| work.saturating_sub(chain.before_burst) as f64;
            let (marked, reached) = (since(chain.value.work), since(chain.reached));
            let lane = Lane { marked, reached, reached_at: chain.reached_at };
            if n == book { since(work) } else { lane.done_by(to, began, pace) }
        });
        done.sum()
    }

    /// Streams that have marks.
    fn streams(&self) -> usize {
        self.chains.iter().flatten().count()
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
        reached.map(|time| self.clock.here(time))
    }

    /// Whether a mark of a book has not been reached.
    pub fn is_under_way(&self, book: usize) -> bool {
        self.under_way.iter().any(|mark| mark.book == book)
    }
}
