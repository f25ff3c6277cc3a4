//! Stretches: what the launches between two marks of one stream took of the GPU.
//!
//! What is known of that depends on who else was on the GPU ([`Company`]). Where nobody was, and the host did not pause,
//! the time between the two events is what the launches took, and teaches their prices.

use weir_protocol::pages::Stall;
use weir_protocol::units::Nanos;

use super::Driver;
use super::burst::{First, Ran};
use super::clock::moment;
use crate::copy::{CopyPrices, ENGINES, Tally};
use crate::meter::{Meter, Price, Weighs};
use crate::overlap::Load;
use crate::price::{Bound, Parts, Took};
use crate::solo::Missing;
use crate::stall::Span;

/// So soon after a launch onto an idle stream the mark behind it says when it ended, however short it was, in
/// nanoseconds.
const PROMPT_NS: f64 = 20_000.0;

/// Half of a neighbour's time slice (2 ms, the driver's default), ns.
const HALF_SLICE_NS: f64 = 1e6;

/// No switch of the GPU from one context to another takes less: 64 MB are saved and restored (gpu-truths 3), ns.
const SWITCH_NS: f64 = 40_000.0;

/// A launch onto an idle stream that nothing holds up runs so soon (3 to 6 us, gpu-truths 3), ns.
const LATENCY_NS: f64 = 10_000.0;

/// Of work longer than a few slices, even part of one counts for less than what its price may be off by, ns.
const SHORT_NS: f64 = 10e6;

/// The launches between a mark and the one before it, on one stream.
#[derive(Debug)]
pub(super) struct Stretch {
    pub charged: f64,
    pub communicated: f64, // part of `charged`
    pub copies: Tally,
    pub stood: bool,          // work stood still in it
    pub held: bool,           // it waited for a piece to be let go
    pub never_idle: bool,     // its first mark had not been reached when its second was put
    pub open: f64,            // so long it took to put all that, ns
    pub put_by: Nanos,        // its second mark was put, on the processor's clock
    pub ended: Option<Nanos>, // the program has waited for all of it until then, on the processor's clock
    pub late: (f64, f64), // so long after the first mark, least and most, the first launch came onto an idle stream, ns
    pub parts: Parts,
    pub elsewhere: Option<u64>, // what other streams had been given when it began, if it was done
    pub by_itself: bool,        // no other stream of the process has had work since
    pub burst: u32,             // in which its first mark was put
    pub ran: Option<(f64, f64)>, // since that began to run, ns, and what was charged for all streams' work until then
    pub clipped: bool,           // it waited until then
}

/// What a stretch comes to, ns.
pub(super) struct Bill {
    /// What was charged for its launches.
    pub charged: f64,
    /// What it took of the SMs; what other streams share counts once.
    pub took: f64,
    /// Whether that was measured.
    pub measured: bool,
    /// What copies took beyond what was predicted, by way.
    pub copies: [f64; ENGINES],
    /// What siblings that were there kept from being measured.
    pub missing: Option<Missing>,
    /// Whether prices were learnt from it, which ran alone.
    pub taught: bool,
}

/// Who else was on the GPU during a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Company {
    /// Nobody.
    None,
    /// Nobody, but right before it somebody was.
    Before,
    /// Somebody may have been, in time slices, and is still at work: whole slices, if any.
    Comes,
    /// Somebody may have been, in time slices.
    InTurns,
    /// A sibling may have been, in time slices: no turns keep it whole or away, so there may be parts of slices.
    Siblings,
    /// The same of a neighbour: it passes without turns, or this process does.
    Passing,
    /// Somebody may have been, at the same time; and a sibling may have been among them.
    AtOnce { siblings: bool },
}

/// What a context's stretches are measured with.
pub(super) struct Meters<'a> {
    pub sms: &'a mut Meter,
    pub engines: &'a mut [Meter; ENGINES],
    pub copies: &'static CopyPrices,
    /// The processor's clock less the GPU's, ns.
    pub clock: f64,
}

/// What the time of a stretch went to, up to its end, ns.
#[derive(Clone, Copy, Default)]
pub(super) struct Spent {
    busy: f64,   // its stream was at work
    on_sms: f64, // part of that: launches
    waited: f64, // its stream was at work, or waited for a neighbour
}

impl Stretch {
    /// Its first mark was reached between two moments of the processor's clock. If the second was put after the later one, the stream
    /// may have idled, whatever the driver said when it was put: it was late to see the first one reached. But not before the earlier one.
    pub fn began(&mut self, (earliest, latest): (Nanos, Nanos)) {
        self.never_idle &= latest >= self.put_by;
        if !self.began_idle() {
            self.open = self.open.min(self.put_by.since(earliest).0 as f64);
        }
    }

    /// When it had ended, on the GPU's clock, which the processor's is `ahead` of: its second mark may have been put long after, and in
    /// what lies between, other streams had the GPU.
    pub fn ended_by(&self, (from, to): (f64, f64), ahead: f64) -> f64 {
        let least = (from + self.late.1 + self.charged).min(to);
        self.ended.map_or(to, |ended| (ended.0 as f64 - ahead).clamp(least, to))
    }

    /// Work stands still in it, perhaps for a launch that the gate holds back: how long it takes says what the gate did. So it bounds a
    /// launch of which nothing is known, and teaches nothing else. Without that bound a kernel that takes longer than a standstill is
    /// waited for would stay a guess, and be charged as one, for ever.
    pub fn stands(&mut self) {
        self.stood = true;
        if !self.parts.is_one_unknown() {
            self.parts.clear();
        }
    }

    /// At most so long the stream idled in between, ns.
    fn slack(&self) -> f64 {
        if self.never_idle { 0.0 } else { self.open }
    }

    /// Whether its first launch came onto an idle stream.
    pub fn began_idle(&self) -> bool {
        self.late.1 > 0.0
    }

    /// Whether it came behind the one before it without a pause, and no other stream of the process had work.
    pub fn follows(&self) -> bool {
        self.never_idle && !self.began_idle() && self.by_itself
    }

    /// What a burst's first launch in this stream, with a mark right behind it, says of when the burst began. It waited for that if
    /// it had not begun when the mark was put.
    pub fn first(&self, (from, to): (f64, f64), streams: usize, sms: &Meter) -> Option<First> {
        if streams < 2 || !self.began_idle() {
            return None; // most marks: their launches' prices and weights, up to 128 of them, need no adding up
        }
        let (Price::Learnt(takes) | Price::Apart(takes)) = self.price(sms) else { return None };
        let waited = to - takes - (from + self.late.1 + self.open) >= LATENCY_NS;
        waited.then(|| {
            let weight = self.parts.weight(Load::default()).map_or(1.0, |weight| weight[0]);
            First { to, takes, weight, streams }
        })
    }

    /// It is part of a burst that ran from some moment on: it did not begin before that, and what was put before then left no pause.
    pub fn lies_in(&mut self, ran: Ran, (from, to): (f64, f64)) {
        if self.by_itself || to <= ran.began {
            return;
        }
        self.ran = Some((to - ran.began, ran.done));
        self.clipped = self.began_idle() && from + self.late.1 < ran.began;
        if self.clipped {
            let put = from + self.late.1 + self.open;
            self.late = (ran.began - from, ran.began - from);
            self.open = (put - ran.began).max(0.0);
        }
    }

    /// Bounds the price of the one launch that it is. If that says when the burst began, it says nothing more.
    fn bound(&self, ns: f64, how: Bound) -> f64 {
        if self.clipped { 0.0 } else { self.parts.bound(ns, how) }
    }

    /// Until when the process's time slice is not over that began within this stretch, from one moment to another on the GPU's
    /// clock: its first launch came onto an idle stream and waited for the end of a neighbour's. A launch that waited for
    /// nobody may have found the end of a slice that the process had before.
    pub fn ours_until(&self, (from, to): (f64, f64)) -> Option<f64> {
        let known = self.by_itself && !self.stood && !self.parts.is_empty() && self.parts.are_known();
        let began = to - self.parts.sum();
        (known && began - (from + self.late.1) >= SWITCH_NS).then_some(began + HALF_SLICE_NS)
    }

    /// What the stretch took of the GPU; teaches the prices of its launches and copies if it was measured.
    pub fn settle(
        &mut self,
        (from, to): (f64, f64),
        company: Company,
        meters: Meters<'_>,
        driver: &mut impl Driver,
    ) -> (Bill, Spent) {
        let Meters { sms, engines, copies: prices, clock } = meters;
        let most = (to - from - self.late.0).max(0.0);
        let doubt = self.slack() + self.late.1 - self.late.0;
        let surely = (most - doubt).max(0.0);
        // Nothing is learnt from a stretch in which the host may have paused.
        let ns = (to - from - self.late.1).max(0.0);
        let measure = (doubt < most.max(PROMPT_NS)).then_some(Took { ns, idle: doubt, most });
        let (copied, learnt) = (self.copied(prices), !self.stood && self.parts.are_learnt());
        let busy = (self.charged + copied).clamp(surely, most);
        let on_sms = (busy - copied).max(0.0);
        let mut bill = self.bill(prices);
        let spent = Spent { busy, on_sms, waited: busy };
        match company {
            _ if self.held => {
                if !self.by_itself && copied == 0.0 {
                    bill.took = sms.shared(self.charged).min(self.charged);
                }
                return (bill, self.by_charge(most, copied));
            }
            _ if self.charged == 0.0 => {
                // Time slices are of the SMs: a neighbour's do not stretch a copy.
                self.learn_copies(to, (surely, most), measure, engines, prices);
                let busy = self.copied(prices).clamp(surely, most);
                return (self.bill(prices), Spent { busy, on_sms: 0.0, waited: busy });
            }
            Company::Before if learnt && self.by_itself && doubt < PROMPT_NS && copied == 0.0 => {
                let on_sms = most - sms.switched(most, self.parts.sum());
                // Not `measure`: what streams share, by which the switch is told, shall not be learnt from what is left.
                (bill.took, bill.measured) = (sms.cover(to - on_sms, to), true);
                return (bill, Spent { busy: on_sms, on_sms, waited: most });
            }
            Company::Comes | Company::InTurns | Company::Before if self.is_whole(most, doubt, sms) => {
                let (took, whole) = self.measured((to - on_sms, to), (most, doubt), sms);
                bill.took = took + self.teach_in_turn(most, whole && company == Company::Comes, sms);
                bill.measured = whole;
            }
            Company::Comes | Company::InTurns | Company::Siblings | Company::Passing | Company::Before => {
                let missing = self.missing(company);
                let (bill, spent) = self.by_price(to, (surely, most), copied, (sms, prices));
                return (Bill { missing, ..bill }, spent);
            }
            Company::AtOnce { .. } => {
                let missing = self.missing(company);
                let (bill, spent) = self.at_once(to, (surely, most), copied, (sms, prices, clock), driver);
                return (Bill { missing, ..bill }, spent);
            }
            Company::None => bill = self.alone((to - on_sms, to), (most, doubt), measure, (sms, prices)),
        }
        (bill, spent)
    }

    /// The same where it waited to be let go: so long its work was predicted to take.
    fn by_charge(&self, most: f64, copied: f64) -> Spent {
        let busy = (self.charged + copied).min(most);
        Spent { busy, on_sms: (busy - copied).max(0.0), waited: busy }
    }

    /// What it took where nobody else was. That teaches prices.
    fn alone(
        &mut self,
        time: (f64, f64),
        bounds: (f64, f64),
        measure: Option<Took>,
        (sms, prices): (&mut Meter, &'static CopyPrices),
    ) -> Bill {
        let (took, measured) = self.measured(time, bounds, sms);
        let mut bill = Bill { took, measured, ..self.bill(prices) };
        if measured {
            sms.weigh(time, took, self.weight(sms.beside_one()));
            if measure.is_some() {
                sms.has_certainty();
            }
            bill.taught = measure.is_some() && self.by_itself && !self.stood && !self.parts.is_empty();
            bill.took += self.teach(measure, self.slowed_by_siblings(sms), prices);
        }
        bill
    }

    /// What it took where no other tenant's time lies in it, and whether all of that was measured.
    fn measured(&self, (from, to): (f64, f64), (most, doubt): (f64, f64), sms: &mut Meter) -> (f64, bool) {
        let price = self.price(sms);
        if let Price::Learnt(ns) = price {
            sms.note_stretched(ns, most, doubt);
        }
        sms.measure(from, to, price)
    }

    /// Teaches prices what the stretch took in a turn of its own. If it was the only stream's: of launches that were measured before,
    /// where it is `clean` for sure; else it bounds them. Returns what is to be charged for earlier launches.
    fn teach_in_turn(&self, most: f64, clean: bool, sms: &Meter) -> f64 {
        match self.by_itself {
            true if clean && self.parts.are_measured() => self.parts.learn(Took::exactly(most)),
            true => 0.0,
            false => self.bound(most / self.parts.slowed(sms.beside_one()), Bound::Most),
        }
    }

    /// Teaches prices what the stretch took, alone on the GPU. One that another stream's may have overlapped says of a
    /// launch how long it took beside that. Returns what is to be charged for earlier launches.
    fn teach(&mut self, measure: Option<Took>, slowed: f64, prices: &'static CopyPrices) -> f64 {
        match measure.filter(|_| !self.parts.is_empty()) {
            Some(took) if self.stood => self.bound(took.most, Bound::Most),
            Some(took) if self.by_itself && prices.add_to(&self.copies, &mut self.parts) => {
                self.parts.learn(took)
            }
            Some(took) if !self.by_itself && self.copies.total_ns() == 0 => {
                self.bound(took.ns / slowed, Bound::AtOnce)
            }
            _ => 0.0,
        }
    }

    /// By how much other streams of the process slow its launches down. If one thread feeds all of them in turn they may run in step or
    /// have nothing to do with each other: no event says which, and the price that follows from the mean is as far from either.
    fn slowed_by_siblings(&self, sms: &Meter) -> f64 {
        let apart = self.parts.slowed(sms.beside_one());
        match self.parts.are_in_turn() {
            true => (apart + self.parts.slowed(sms.beside_one_in_step())) / 2.0,
            false => apart,
        }
    }

    /// What its launches weigh beside such a load, whether they run in step with those of other streams, and what of it is SMs.
    fn weight(&self, beside: Load) -> Option<Weighs> {
        self.parts.weight(beside).map(|weight| (weight, self.parts.are_mixed(), self.parts.on_sms()))
    }

    /// What the stretch took where their kernels and ours ran at once: what was measured is in part the neighbours' time.
    fn at_once(
        &self,
        to: f64,
        (surely, most): (f64, f64),
        copied: f64,
        (sms, prices, clock): (&mut Meter, &CopyPrices, f64),
        driver: &mut impl Driver,
    ) -> (Bill, Spent) {
        let mut bill = self.bill(prices);
        let stretched = match self.price(sms) {
            Price::Learnt(ns) | Price::Apart(ns) if copied == 0.0 => {
                sms.note_stretched(ns, most, most - surely);
                sms.stretched(ns).unwrap_or(ns)
            }
            _ => self.charged,
        };
        let busy = (stretched + copied).clamp(surely, most);
        let on_sms = (busy - copied).max(0.0);
        let took = sms.cover(to - on_sms, to);
        let time = (moment(to - busy + clock), moment(to + clock));
        let mut beside = sms.beside_one();
        beside.always = beside.always.and(driver.beside(time));
        let weight = sms.weigh((to - on_sms, to), took, self.weight(beside));
        let part = driver.part(weight, time);
        let how = if most - surely < 0.05 * most { Bound::Timed } else { Bound::Waited };
        bill.took = took * part + self.parts.bound(most / self.parts.slowed(beside), how);
        // By what others slow its launches down, they wait for them.
        let alone = on_sms * (self.parts.slowed(sms.beside_one()) / self.parts.slowed(beside)).min(1.0);
        (bill, Spent { busy: alone + busy - on_sms, on_sms: alone, waited: busy })
    }

    /// What siblings kept from being measured. A collective waits for others by itself. While they run at once each learns the part that
    /// is its own: only what was never measured is worth a turn apart.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time; it saturates")]
    fn missing(&self, company: Company) -> Option<Missing> {
        let matters = match company {
            Company::Siblings => true,
            Company::AtOnce { siblings } => siblings && !self.parts.are_measured(),
            _ => false,
        };
        let measurable = !self.stood && !self.parts.is_empty() && self.communicated == 0.0;
        (matters && measurable).then(|| Missing {
            at_once: !self.parts.are_measured() || self.parts.vary(),
            longest: Nanos(self.parts.longest() as u64),
        })
    }

    /// Whether no neighbour's time slice can lie in it, although somebody was there: the stream was at work throughout, and it
    /// took not much longer than it should have, beside the others of its process.
    fn is_whole(&self, most: f64, doubt: f64, sms: &Meter) -> bool {
        let fits = |took: f64, should: f64| should < SHORT_NS && took < should + should.min(HALF_SLICE_NS);
        let tight = match self.by_itself {
            true => !self.began_idle() && doubt == 0.0,
            false => doubt < 0.05 * most,
        } && self.copies.total_ns() == 0;
        let should = match self.price(sms) {
            Price::Apart(ns) => ns,
            Price::Learnt(_) if tight && let Some((took, done)) = self.ran => {
                // What one stream takes beside the others varies more than what all of them take together.
                return fits(took, sms.shared(done));
            }
            Price::Learnt(ns) => {
                sms.stretched(ns).unwrap_or_else(|| ns * self.parts.slowed(sms.beside_one()))
            }
            Price::Guess(_) => return false,
        };
        tight && fits(most, should)
    }

    /// What its launches should take. Those of several streams that one thread launches are not told apart; once
    /// something was measured, what they were charged is as good.
    fn price(&self, sms: &Meter) -> Price {
        let learnt = match self.parts.is_empty() {
            _ if self.stood => return Price::Guess(self.charged),
            false if self.parts.are_learnt() || (sms.has_measured() && self.parts.are_known()) => {
                self.parts.sum()
            }
            true if sms.has_measured() => self.charged,
            _ => return Price::Guess(self.charged),
        };
        if self.by_itself { Price::Apart(learnt) } else { Price::Learnt(learnt) }
    }

    /// What the stretch took by its launches' prices: a neighbour's time slices may lie in it.
    fn by_price(
        &self,
        to: f64,
        (surely, most): (f64, f64),
        copied: f64,
        (sms, prices): (&mut Meter, &CopyPrices),
    ) -> (Bill, Spent) {
        let (mut bill, copied) = (self.bill(prices), copied.min(most));
        self.parts.owe(self.charged);
        let how = if self.slack() > 0.0 { Bound::Waited } else { Bound::Most };
        let slowed = if self.by_itself { 1.0 } else { self.parts.slowed(sms.beside_one()) };
        let owed = if copied == 0.0 { self.bound(most / slowed, how) } else { 0.0 };
        bill.took = sms.estimate(to - (most - copied), to, self.price(sms));
        if self.parts.is_empty() && !self.stood && !sms.has_measured() {
            bill.took = bill.took.max((surely - copied) / 2.0); // the driver's slices beside one neighbour
        }
        bill.took += owed;
        let on_sms = self.charged.min(most - copied);
        let busy = on_sms + copied;
        (bill, Spent { busy, on_sms, waited: busy.max(surely) })
    }

    /// A stretch of copies alone says what they take, unless an engine had others of this process to serve.
    fn learn_copies(
        &mut self,
        to: f64,
        (surely, most): (f64, f64),
        measure: Option<Took>,
        engines: &mut [Meter; ENGINES],
        prices: &'static CopyPrices,
    ) {
        let Some(way) = self.copies.only_way() else { return };
        let busy = self.copied(prices).clamp(surely, most);
        let alone = engines[way].cover(to - busy, to) >= 0.99 * busy;
        if let Some(took) = measure.filter(|_| alone && !self.stood)
            && prices.add_to(&self.copies, &mut self.parts)
        {
            self.parts.learn(took);
        }
    }

    /// What its copies are expected to take.
    fn copied(&self, prices: &CopyPrices) -> f64 {
        prices.times(&self.copies).iter().sum()
    }

    /// What the stretch comes to if nothing else is known of it.
    fn bill(&self, prices: &CopyPrices) -> Bill {
        let mut copies = prices.times(&self.copies);
        copies.iter_mut().zip(self.copies.predicted_ns).for_each(|(ns, predicted)| *ns -= predicted as f64);
        Bill {
            charged: self.charged,
            took: self.charged,
            measured: false,
            copies,
            missing: None,
            taught: false,
        }
    }

    /// Says what the time went to, up to `end` on the processor's clock: copies, then what communicates, then the rest.
    /// Where in the stretch each of them lay is not known, only how long it was.
    pub fn tell(&self, spent: &Spent, end: f64, driver: &mut impl Driver) {
        let part = if self.charged > 0.0 { (self.communicated / self.charged).min(1.0) } else { 0.0 };
        let on_sms = end - spent.on_sms;
        let computes = on_sms + spent.on_sms * part;
        let spans = [
            (Stall::Neighbour, end - spent.waited, end),
            (Stall::Copies, end - spent.busy, on_sms),
            (Stall::Communication, on_sms, computes),
            (Stall::Compute, computes, end),
        ];
        for (stall, from, to) in spans.into_iter().filter(|(_, from, to)| to > from) {
            driver.spent(Span { stall, from, to });
        }
    }
}
