//! One signature's price: the mean of what its launches take, and how far that is known.
//!
//! Mean and variance belong together as in a Kalman filter whose state is the list of all prices, with the
//! covariances left out (`learn`): a new signature takes the first measurement as it is, one that has been
//! measured often moves by a seventh of what a measurement says, and so follows a kernel that becomes dearer within
//! some twenty measurements while data-dependent kernels stay right on average.
//!
//! A tenant that was never alone on the GPU has no measurements, only [`Bounds`]; until the first measurement they make
//! the price.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::bounds::Bounds;
use super::kernels::Kernels;
use super::learn::RESOLUTION_NS;
use crate::lock::Lock;
use crate::overlap::Moments;

/// Measurements after which an estimate counts as learnt.
const LEARNT: u32 = 3;

/// So many launches of a signature have to go by without one that was measured by itself before its price is made from
/// mixed stretches.
const FRESH: u32 = 32;

/// So many launches of a signature may be under way before anything is known of it: a program that ran on would queue seconds
/// of what was guessed to be nothing.
const AHEAD: u32 = 8;

/// So many launches of a signature that was bounded, and less often than bounds are remembered, go the long way, where they are bounded
/// again. The launch path has seldom to ask for what is short: by chance it hardly ever would be.
const PATIENCE: u32 = 4_096;

/// Standard deviation of a guess, in nanoseconds: nothing is known.
const UNKNOWN_NS: f64 = 1e9;

/// Standard deviation of a price from the operator's table, as a part of it.
const TOLD: f64 = 0.05;

/// Standard deviation of a price that stands on bounds, as a part of it.
const BOUNDED: f64 = 0.5;

/// The same of a price that stands on so many launches that were timed beside others: as much of the part of the SMs that it holds, since
/// those slow it down by no more than it wants beyond what they leave, and no less than the bounds differ, ...
const TIMES: u32 = 8;

/// ... nor than this.
const TIMED: f64 = 0.05;

/// Standard deviation of a rough guess, as a part of it.
const ROUGH: f64 = 20.0;

/// By how much a price may drift from one measurement to the next, as a part of it.
const DRIFT: f64 = 0.005;

/// Launches are taken to vary by this part of what they take until it is seen how they do.
const SPREAD: f64 = 0.3;

/// What was bounded so often and never measured will not be.
const TRIES: u32 = 64;

/// Who varies more than this is charged what was measured, wherever that can be.
const VARIES: f64 = 0.1;

/// Errors count for so many measurements; and so much of what they have in common is taken for a change of the price.
const ERRORS: f64 = 16.0;
const CHANGE: f64 = 0.3;

/// What a price stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// A guess, or too little.
    Nothing,
    /// Bounds alone.
    Bounds,
    /// Measurements, or the operator's word.
    Mean,
}

/// What is known of the time that a launch beside a neighbour took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// It took no longer.
    Most,
    /// The same, and it may have waited for the neighbour's time slice to end: it counts only if it tells something new.
    Waited,
    /// It took so long, give or take, had the neighbour not been there at the same time.
    AtOnce,
    /// The same, and nearly all of that time it surely ran.
    Timed,
}

/// The price of one signature; lives as long as the process.
#[derive(Debug)]
pub struct Estimate {
    price_ns: AtomicI64, // negative: not learnt yet, hardly bounded, or one that always goes the long way: a collective's, a graph's that pauses
    mean_ns: AtomicU64,  // bits of an `f64`
    variance: AtomicU64, // bits of an `f64`, ns squared
    errors: [AtomicU64; 2], // bits of `f64`: mean and mean square of the last errors, relative
    launches: AtomicU32, // that asked to be measured; once it is bounded, that went the long way
    measured: AtomicU32,
    sms_ppm: AtomicU32,         // part of the SMs that it holds
    weight_ppm: [AtomicU32; 3], // part of the GPU that a launch holds; of a graph, if it is not known what it is made of
    guess_ns: AtomicU64,
    owed: AtomicU32,           // launches charged by guess that no stretch could measure
    owed_ns: AtomicU64,        // and what they were charged
    bound_at_ns: AtomicU64,    // when it may be bounded anew
    bounds: AtomicPtr<Bounds>, // most signatures never need them
    made_of: AtomicPtr<Lock<Kernels>>, // of a graph
    collective: AtomicBool,
    restarts: AtomicU32,
}

// Relaxed everywhere below: an estimate publishes nothing but itself, and a lost update costs one measurement.
impl Estimate {
    /// A price from the operator's table, good enough to go by until it is measured.
    pub const fn told(price_ns: u64) -> Self {
        Self::new(price_ns, TOLD * price_ns as f64, LEARNT)
    }

    /// A guess that the first measurement replaces.
    pub const fn guess(price_ns: u64) -> Self {
        Self::new(price_ns, UNKNOWN_NS, 0)
    }

    /// A guess that cannot be far off: beside one that can, a measurement of both corrects that one.
    pub const fn rough(price_ns: u64) -> Self {
        Self::new(price_ns, ROUGH * price_ns as f64, 0)
    }

    const fn new(price_ns: u64, deviation_ns: f64, measured: u32) -> Self {
        Self {
            price_ns: AtomicI64::new(signed(price_ns, measured >= LEARNT)),
            mean_ns: AtomicU64::new((price_ns as f64).to_bits()),
            variance: AtomicU64::new((deviation_ns * deviation_ns).to_bits()),
            errors: [AtomicU64::new(0), AtomicU64::new((SPREAD * SPREAD).to_bits())],
            launches: AtomicU32::new(0),
            measured: AtomicU32::new(measured),
            sms_ppm: AtomicU32::new(1_000_000),
            weight_ppm: [const { AtomicU32::new(1_000_000) }; 3],
            guess_ns: AtomicU64::new(price_ns),
            owed: AtomicU32::new(0),
            owed_ns: AtomicU64::new(0),
            restarts: AtomicU32::new(0),
            bound_at_ns: AtomicU64::new(0),
            bounds: AtomicPtr::new(std::ptr::null_mut()),
            made_of: AtomicPtr::new(std::ptr::null_mut()),
            collective: AtomicBool::new(false),
        }
    }

    /// Says whether it is a collective's: such launches are counted.
    pub fn set_collective(&self, collective: bool) {
        self.collective.store(collective, Ordering::Relaxed);
        self.set(self.mean(), self.variance());
    }

    /// Whether its launches run until other ranks have launched theirs.
    pub fn is_collective(&self) -> bool {
        self.collective.load(Ordering::Relaxed)
    }

    /// Starts afresh with a new first price: the handle now stands for something else.
    pub fn restart(&self, price_ns: u64, told: bool) {
        let new = if told { Self::told(price_ns) } else { Self::guess(price_ns) };
        self.restarts.fetch_add(1, Ordering::Relaxed);
        self.measured.store(new.measured.into_inner(), Ordering::Relaxed);
        self.launches.store(0, Ordering::Relaxed);
        self.errors[0].store(0, Ordering::Relaxed);
        self.errors[1].store((SPREAD * SPREAD).to_bits(), Ordering::Relaxed);
        self.owed.store(0, Ordering::Relaxed);
        self.owed_ns.store(0, Ordering::Relaxed);
        self.guess_ns.store(price_ns, Ordering::Relaxed);
        self.bounds.store(std::ptr::null_mut(), Ordering::Relaxed); // leaked: another thread may be reading them
        self.set(price_ns as f64, f64::from_bits(new.variance.into_inner()));
    }

    /// Starts afresh with a new first price, for something that was changed and has been launched before: the next launch
    /// is worth measuring.
    pub fn change(&self, price_ns: u64) {
        self.restart(price_ns, false);
        self.launches.store(1, Ordering::Relaxed);
    }

    /// How often it has started afresh: a measurement that began before the last time tells of something else.
    pub fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// The price of one launch, in tokens; at least 1.
    pub fn price(&self) -> i64 {
        self.price_ns.load(Ordering::Relaxed).saturating_abs()
    }

    /// The price, if it can be relied upon: one load for the launch path. The others go the long way, where they are
    /// measured; collectives too.
    #[inline]
    pub fn learnt_price(&self) -> Option<i64> {
        let price = self.price_ns.load(Ordering::Relaxed);
        (price > 0).then_some(price)
    }

    /// Whether nothing is known of it, and none was ever launched.
    pub fn is_new(&self) -> bool {
        self.known() == Known::Nothing && self.launches.load(Ordering::Relaxed) == 0
    }

    /// Whether this launch should be measured by itself: the first few of a signature of which nothing is known, but not the very
    /// first behind other work: it may load code lazily, and nobody would know how much of the time that was. Where it is `alone` that
    /// is known by the call ([`Flight::launched`](crate::flight::Flight::launched)), and there may never be a second.
    pub fn wants_bracket(&self, alone: bool) -> bool {
        self.known() == Known::Nothing && (self.launches.fetch_add(1, Ordering::Relaxed) > 0 || alone)
    }

    /// Whether this launch shall not be measured by itself, where that undoes an overlap: three in so many are while nothing is
    /// known, however long it takes until they tell. Where it says no, [`Self::wants_bracket`] is asked next.
    pub fn spares(&self) -> bool {
        const ROUND: u32 = 64;
        if self.known() != Known::Nothing {
            return true;
        }
        let measured = (1..=LEARNT).contains(&(self.launches.load(Ordering::Relaxed) % ROUND));
        if !measured {
            self.launches.fetch_add(1, Ordering::Relaxed);
        }
        !measured
    }

    /// A launch goes the long way that is known by bounds alone. Many of them do in vain: launches that overlap are never bounded.
    pub fn waits_for_bounds(&self) {
        if self.known() == Known::Bounds
            && self.launches.fetch_add(1, Ordering::Relaxed) >= PATIENCE
            && self.learnt_price().is_none()
        {
            self.set(self.mean(), self.variance());
        }
    }

    /// When it may be bounded anew, on the processor's clock: for whoever measures.
    pub fn bound_at_ns(&self) -> &AtomicU64 {
        &self.bound_at_ns
    }

    /// What the price stands on.
    pub fn known(&self) -> Known {
        let (measured, bounds) =
            (self.measured.load(Ordering::Relaxed), self.bounds().map_or(0, Bounds::count));
        match measured.saturating_add(bounds) {
            _ if measured >= LEARNT => Known::Mean,
            LEARNT.. => Known::Bounds,
            _ => Known::Nothing,
        }
    }

    /// Whether the next launch shall wait until one of the earlier ones is known; no other one has to.
    pub fn runs_ahead(&self) -> bool {
        self.launches.load(Ordering::Relaxed) == AHEAD && !self.is_seen()
    }

    /// Nothing is known of it but that one of its launches has not been done for so long: the next ones are guessed to take no less.
    pub fn takes_at_least(&self, ns: u64) {
        if !self.is_seen() && ns as f64 > self.mean() {
            self.set(ns as f64, self.variance());
        }
    }

    /// Whether anything is known of it.
    pub fn is_seen(&self) -> bool {
        self.is_measured() || self.bounds().is_some()
    }

    /// Whether nothing is known of it so far, but launches of it are being measured by themselves.
    pub(super) fn is_fresh(&self) -> bool {
        !self.is_seen() && (1..FRESH).contains(&self.launches.load(Ordering::Relaxed))
    }

    /// Whether anything was ever measured.
    pub fn is_measured(&self) -> bool {
        self.measured.load(Ordering::Relaxed) > 0
    }

    /// Whether nothing was measured yet, but may be if it has room: launches of a stream among others never are, and a collective runs
    /// for as long as the others let it.
    pub fn wants_room(&self) -> bool {
        !self.is_measured() && !self.is_collective() && self.bounds().map_or(0, Bounds::count) < TRIES
    }

    /// Whether the launch path may go by its price. Where neighbours come in slices, a further bound says what the last one did.
    fn is_settled(&self) -> bool {
        match self.known() {
            Known::Nothing => false,
            Known::Bounds => {
                self.launches.load(Ordering::Relaxed) > PATIENCE
                    || !self.bounds().is_some_and(Bounds::are_few)
            }
            Known::Mean => true,
        }
    }

    /// Whether the price can be relied upon for more than one launch at a time.
    pub fn is_learnt(&self) -> bool {
        self.known() != Known::Nothing
    }

    /// A launch holds this part of the GPU, 1 being all of it, and this part of its SMs.
    pub fn weigh(&self, weight: Moments, sms: f64) {
        for (word, weight) in self.weight_ppm.iter().zip(weight) {
            word.store(ppm(weight), Ordering::Relaxed);
        }
        self.sms_ppm.store(ppm(sms), Ordering::Relaxed);
    }

    /// Part of the GPU that a launch holds, 1 being all of it.
    pub fn weight(&self) -> Moments {
        std::array::from_fn(|n| f64::from(self.weight_ppm[n].load(Ordering::Relaxed)) / 1e6)
    }

    /// Part of the SMs that a launch holds.
    pub fn sms(&self) -> f64 {
        f64::from(self.sms_ppm.load(Ordering::Relaxed)) / 1e6
    }

    /// Mean, in nanoseconds.
    pub fn mean(&self) -> f64 {
        f64::from_bits(self.mean_ns.load(Ordering::Relaxed))
    }

    /// Variance of the mean, in nanoseconds squared.
    pub fn variance(&self) -> f64 {
        f64::from_bits(self.variance.load(Ordering::Relaxed))
    }

    /// One launch took about so long; returns what is to be charged for launches that were charged by guess, once enough is
    /// known.
    pub(super) fn bound(&self, ns: f64, how: Bound) -> f64 {
        let news = how != Bound::Waited || self.bounds().is_none() || ns < self.mean();
        if self.measured.load(Ordering::Relaxed) >= LEARNT || !ns.is_finite() || !news {
            return 0.0;
        }
        if self.bounds().is_none() {
            let new = Box::into_raw(Box::default());
            let none = std::ptr::null_mut();
            // Release: whoever finds them finds them empty, not unwritten. A lost race leaks a few words, once.
            let _ = self.bounds.compare_exchange(none, new, Ordering::Release, Ordering::Relaxed);
        }
        let Some(bounds) = self.bounds() else { return 0.0 };
        let (price, differ) = bounds.add(whole(ns), how);
        if bounds.count() == LEARNT {
            self.launches.store(0, Ordering::Relaxed); // from here on those count that wait for more of them
        }
        let price = price.max(1) as f64;
        // What was measured, if only once, counts for more. A first measurement of several signatures is shared out by
        // what is known of each.
        let (price, variance) = match self.is_measured() {
            true => (self.mean(), self.variance()),
            false if bounds.timed() >= TIMES => {
                let part = differ.max(BOUNDED * self.sms()).clamp(TIMED, BOUNDED);
                (price, (price * part).max(RESOLUTION_NS).powi(2))
            }
            false => (price, (price * BOUNDED).powi(2)),
        };
        self.set(price, variance);
        if self.known() == Known::Nothing { 0.0 } else { self.make_good(price) }
    }

    /// Whether it was timed beside others so often, and never alone, that mixed stretches tell little more of it.
    pub(super) fn is_timed(&self) -> bool {
        self.known() == Known::Bounds && self.bounds().is_some_and(|bounds| bounds.timed() >= TIMES)
    }

    /// The kernels of the graph that this is.
    pub fn kernels(&self) -> &Lock<Kernels> {
        if let Some(known) = self.made_of() {
            return known;
        }
        let (none, new) = (std::ptr::null_mut(), Box::into_raw(Box::default()));
        // Release: as in `bound`.
        match self.made_of.compare_exchange(none, new, Ordering::Release, Ordering::Acquire) {
            // SAFETY: leaked, as is whatever stands there.
            Ok(_) => unsafe { &*new },
            // SAFETY: as above.
            Err(known) => unsafe { &*known },
        }
    }

    /// The kernels of the graph that this is, if it is one.
    pub fn made_of(&self) -> Option<&Lock<Kernels>> {
        // SAFETY: null, or leaked by `kernels`.
        unsafe { self.made_of.load(Ordering::Acquire).as_ref() }
    }

    fn bounds(&self) -> Option<&Bounds> {
        // SAFETY: null, or leaked by `bound`.
        unsafe { self.bounds.load(Ordering::Acquire).as_ref() }
    }

    /// So many launches were charged by guess and not measured: `charged` for all of them, if that is known apart.
    pub(super) fn owe(&self, count: u32, charged: Option<f64>) {
        if self.known() == Known::Nothing && !self.is_measured() {
            let guess = || f64::from(count) * self.guess_ns.load(Ordering::Relaxed) as f64;
            self.owed.fetch_add(count, Ordering::Relaxed);
            self.owed_ns.fetch_add(whole(charged.unwrap_or_else(guess)), Ordering::Relaxed);
        }
    }

    /// Whether its launches vary so much by themselves, as far as was measured, that many together take something else than their price.
    pub(super) fn varies(&self) -> bool {
        self.measured.load(Ordering::Relaxed) > LEARNT && self.spread() > VARIES * VARIES
    }

    /// How much its launches vary by themselves: relative variance.
    pub(super) fn spread(&self) -> f64 {
        let [common, square] = self.errors();
        (square - common * common).max(0.0)
    }

    /// A measurement was off by so much, relative to what its launches take, with this `part` in it.
    pub(super) fn err(&self, error: f64, part: f64) {
        let (by, before) = (part / ERRORS, self.errors());
        for (word, (before, now)) in self.errors.iter().zip(before.into_iter().zip([error, error * error])) {
            word.store((before + by * (now - before)).to_bits(), Ordering::Relaxed);
        }
    }

    fn errors(&self) -> [f64; 2] {
        std::array::from_fn(|n| f64::from_bits(self.errors[n].load(Ordering::Relaxed)))
    }

    /// What is to be charged for launches that were charged by guess, now that one is known to take `ns`.
    fn make_good(&self, ns: f64) -> f64 {
        let (owed, charged) = (self.owed.swap(0, Ordering::Relaxed), self.owed_ns.swap(0, Ordering::Relaxed));
        f64::from(owed) * ns - charged as f64
    }

    /// Takes in what a measurement, of which this was a `share`, said about it. The first one also says what is to be charged for the launches that
    /// were charged by guess.
    pub(super) fn correct(&self, mean: f64, variance: f64, share: f64) -> f64 {
        let mean = if mean.is_finite() { mean.max(1.0) } else { return 0.0 };
        let [common, _] = self.errors();
        let drift = (DRIFT + CHANGE * common.abs()) * mean;
        // Saturating in effect: after 2^32 measurements it is measured anew for three launches.
        self.measured.fetch_add(1, Ordering::Relaxed);
        self.set(mean, variance.max(0.0) + share * drift * drift);
        self.make_good(mean)
    }

    /// The price is off by so much, as is known from elsewhere.
    pub(super) fn move_by(&self, ns: f64) {
        self.set((self.mean() + ns).max(1.0), self.variance());
    }

    fn set(&self, mean: f64, variance: f64) {
        self.mean_ns.store(mean.to_bits(), Ordering::Relaxed);
        self.variance.store(variance.to_bits(), Ordering::Relaxed);
        let by_itself = self.is_settled() && !self.is_collective();
        self.price_ns.store(signed(whole(mean), by_itself), Ordering::Relaxed);
    }
}

/// A price as it is kept: from 1 to 2^63 - 1, negative if the launch path shall not go by it.
const fn signed(price_ns: u64, by_itself: bool) -> i64 {
    let price = match price_ns {
        0 => 1,
        1..=0x7fff_ffff_ffff_ffff => price_ns.cast_signed(),
        _ => i64::MAX,
    };
    if by_itself { price } else { -price }
}

/// Rounded; without `f64::round`, which on plain x86-64 is libm's.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time is never negative; beyond the range of u64 it saturates"
)]
pub(crate) fn whole(ns: f64) -> u64 {
    (ns + 0.5) as u64
}

/// Millionths; at least one.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of one")]
fn ppm(part: f64) -> u32 {
    (part.clamp(1e-6, 1.0) * 1e6 + 0.5) as u32
}

#[cfg(test)]
mod tests;
