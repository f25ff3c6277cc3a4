//! The meter of one process on one GPU: how long the GPU was at its work, by stretches on the GPU's clock.
//!
//! A launch is charged its estimate before it runs. Once a stretch of launches has been measured, what the stretch truly
//! took replaces what was charged for it. Where streams overlap, the GPU's time counts once: under time-slicing a tenant
//! uses the union of the times in which one of its kernels is resident (design 5).

use std::collections::VecDeque;

use weir_protocol::pages::Held;

use crate::overlap::{Load, Moments, Recent, Weight};
use crate::skyline::Skyline;

/// Intervals kept apart. Older ones than these are forgotten.
const INTERVALS: usize = 64;

/// Times on the GPU's clock: disjoint, ascending.
#[derive(Debug)]
struct Intervals(VecDeque<(f64, f64)>);

impl Default for Intervals {
    /// With room for all of them: a launch adds some.
    fn default() -> Self {
        Self(VecDeque::with_capacity(INTERVALS + 1))
    }
}

/// The times in which one of the process's streams was at work.
#[derive(Debug, Default)]
pub struct Meter {
    busy: Intervals,        // stretches that were measured
    guessed: Intervals,     // stretches that were not, while nothing is known of how streams share
    guessed_until: f64,     // stretches that could not be measured lie before this
    skyline: Skyline,       // what they weigh together
    held: [f64; 5],         // time covered, by weight, and by SMs, since they were last taken
    recent: Recent,         // the same, fading
    streams: Recent,        // each stream by itself
    in_step: bool,          // a thread hands launches out to several of them
    sms: Recent,            // what of their weight is SMs
    stretching: (f64, f64), // what launches took while others' ran at once, fading, and what was charged for them
    measured: bool,         // anything, for certain
    switch: (f64, f64),     // mean time of a switch, and of how many
    sharing: (f64, f64),    // what was measured, fading, and what was charged for it
}

/// What launches weigh, whether they run in step with those of other streams, and what part of the weight is SMs.
pub type Weighs = (Moments, bool, f64);

/// What the launches of a stretch should take, ns.
#[derive(Clone, Copy, Debug)]
pub enum Price {
    /// By prices that were learnt.
    Learnt(f64),
    /// The same, while no other stream of the process had work: they share nothing.
    Apart(f64),
    /// By what was charged.
    Guess(f64),
}

impl Price {
    fn part(self, part: f64) -> Self {
        match self {
            Self::Learnt(ns) => Self::Learnt(ns * part),
            Self::Apart(ns) => Self::Apart(ns * part),
            Self::Guess(ns) => Self::Guess(ns * part),
        }
    }
}

/// A switch takes what so many took on average.
const SWITCHES: f64 = 100.0;

/// Times are floats: two that are one may differ by so much, ns.
const ROUNDING: f64 = 100.0;

/// How streams share the GPU is seen from the last so many nanoseconds of their launches.
const SHARING: f64 = 500e6;

/// Launches whose time depends on their data range so far. What took longer waited: for the host, or for what the gate held back.
const RANGE: f64 = 10.0;

impl Intervals {
    /// Adds one. Returns how much of it is new.
    fn cover(&mut self, from: f64, to: f64) -> f64 {
        let (mut from, mut to) = (from, to.max(from));
        let new = self.uncovered(from, to);
        // Those that end before it stay; those that touch it become one with it.
        let first = self.0.partition_point(|(_, end)| *end < from);
        while let Some(&(start, end)) = self.0.get(first)
            && start <= to
        {
            (from, to) = (from.min(start), to.max(end));
            self.0.remove(first);
        }
        self.0.insert(first, (from, to));
        if self.0.len() > INTERVALS {
            self.0.pop_front();
        }
        new
    }

    /// How much of this time none of them covers.
    fn uncovered(&self, from: f64, to: f64) -> f64 {
        let first = self.0.partition_point(|(_, end)| *end < from);
        let met = self.0.iter().skip(first).take_while(|(start, _)| *start <= to);
        let shared: f64 = met.map(|(start, end)| end.min(to) - start.max(from)).sum();
        (to - from - shared).max(0.0)
    }
}

impl Meter {
    /// A stretch kept its stream busy from `from` to `to`. Returns how much of that no other stretch has covered.
    pub fn cover(&mut self, from: f64, to: f64) -> f64 {
        self.busy.cover(from, to)
    }

    /// A stretch of the only stream began with a switch of the GPU: it took `most` in all, `expected` by its launches'
    /// prices. Returns what the switch took: on average as much as the last ones, so that what varies is the launches.
    pub fn switched(&mut self, most: f64, expected: f64) -> f64 {
        let (mean, of) = self.switch;
        let of = (of + 1.0).min(SWITCHES);
        let took = most - expected;
        self.switch = ((mean + (took - mean) / of).max(0.0), of);
        self.switch.0.min(most)
    }

    /// Whether part of this time was another stretch's that could not be measured.
    fn is_guessed(&self, from: f64, to: f64) -> bool {
        from + ROUNDING < self.guessed_until && to > from
    }

    /// What a stretch took that was measured, and whether all of it was. Where another one lies in it that could not be
    /// measured, nobody can tell what both took: that part goes by the price.
    pub fn measure(&mut self, from: f64, to: f64, price: Price) -> (f64, bool) {
        let (mut known, mut guess, mut part) = (from, 0.0, 0.0);
        if self.is_guessed(from, to) {
            known = self.guessed_until.min(to);
            part = (known - from) / (to - from);
            guess = self.guess(from, known, price.part(part));
        }
        let new = self.cover(known, to);
        self.learn_sharing(new, price.part(1.0 - part));
        (guess + new, part == 0.0)
    }

    /// A stretch of launches of this weight kept its stream busy for some time, of which no other stretch had covered
    /// `covered` ns; launches of which nothing is known weigh as the others, and run in step if those did. Returns the
    /// weight of all streams together.
    pub fn weigh(&mut self, time: (f64, f64), covered: f64, weight: Option<Weighs>) -> Weight {
        let (weight, in_step, on_sms) =
            weight.unwrap_or_else(|| (self.streams.moments(), self.in_step, self.on_sms()));
        self.in_step = in_step;
        let sums @ [weighted, squared, cubed] = self.skyline.add(time, weight, in_step);
        self.recent.add(covered, sums);
        self.sms.add(weighted, [weighted * on_sms, 0.0, 0.0]);
        self.streams.add(time.1 - time.0, weight.map(|weight| weight * (time.1 - time.0)));
        for (sum, more) in self.held.iter_mut().zip([covered, weighted, squared, cubed, weighted * on_sms]) {
            *sum += more;
        }
        self.recent.weight()
    }

    /// Part of what its launches weigh that is SMs, and not bandwidth.
    fn on_sms(&self) -> f64 {
        self.sms.moments()[0].clamp(0.0, 1.0)
    }

    /// What weighs on the SMs beside one of the process's streams: its other streams.
    pub fn beside_one(&self) -> Load {
        if self.in_step {
            return self.beside_one_in_step();
        }
        let Load { times, stream, .. } = self.beside_one_in_step();
        Load { always: Weight::steady(times * self.one()), stream, ..Load::default() }
    }

    /// The same, if they run in step with it.
    pub fn beside_one_in_step(&self) -> Load {
        let on_sms = self.on_sms();
        let others = (self.recent.weight().mean - self.streams.moments()[0]).max(0.0) * on_sms;
        let stream = self.streams.is_known().then(|| self.streams.weight().times(on_sms));
        Load { times: others / self.one(), stream, ..Load::default() }
    }

    /// What one stream's launches want of the SMs.
    fn one(&self) -> f64 {
        (self.streams.moments()[0] * self.on_sms()).max(f64::MIN_POSITIVE)
    }

    /// Launches for which `charged` was charged took `most`, give or take `doubt`, while others ran at once: of other streams,
    /// or of other tenants (MPS).
    pub fn note_stretched(&mut self, charged: f64, most: f64, doubt: f64) {
        let (took, of) = &mut self.stretching;
        if charged > 0.0 && doubt < 0.01 * most {
            let fade = SHARING / (SHARING + charged);
            (*took, *of) = (*took * fade + most, *of * fade + charged);
        }
    }

    /// What launches take beside others for which so much is charged, as far as that is known from those that left no doubt. That is
    /// no less than alone: where it was, they were charged by prices that were too high, and those are learnt anew.
    pub fn stretched(&self, charged: f64) -> Option<f64> {
        let (took, of) = self.stretching;
        (of > 0.0).then(|| charged * (took / of).max(1.0))
    }

    /// What streams take together for which so much is charged, as far as that is known.
    pub fn shared(&self, charged: f64) -> f64 {
        let (took, of) = self.sharing;
        if of > 0.0 { charged * took / of } else { charged }
    }

    /// Something was measured for certain.
    pub fn has_certainty(&mut self) {
        self.measured = true;
    }

    /// What was covered and weighed since the last call.
    pub fn take_held(&mut self) -> Held {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "times; a float beyond the range saturates"
        )]
        let [busy_ns, weighted_ns, squared_ns, cubed_ns, sms_ns] =
            std::mem::take(&mut self.held).map(|sum| sum as u64);
        Held { busy_ns, weighted_ns, squared_ns, cubed_ns, sms_ns }
    }

    /// What a stretch took that could not be measured, since a neighbour's time slices may lie in it: its price, less what
    /// its streams share. Of launches that were learnt also where less went by: where more did, it may have been the
    /// neighbour's. How they share adds nothing beyond what went by.
    pub fn estimate(&mut self, from: f64, to: f64, price: Price) -> f64 {
        self.guessed_until = self.guessed_until.max(to);
        self.guess(from, to, price)
    }

    /// What launches of this price took, in a time that was in part covered by stretches that were measured: those have
    /// the streams' common time.
    fn guess(&mut self, from: f64, to: f64, price: Price) -> f64 {
        let share = |uncovered: f64| if to > from { uncovered / (to - from) } else { 1.0 };
        let part = share(self.busy.uncovered(from, to));
        self.learn_sharing(0.0, price.part(1.0 - part));
        match price {
            Price::Apart(ns) => ns * part,
            Price::Learnt(ns) if self.sharing.1 > 0.0 => self.shared(ns).min(ns.max(to - from)) * part,
            Price::Learnt(ns) => ns * part.min(share(self.guessed.cover(from, to))),
            Price::Guess(ns) => {
                let new = self.guessed.cover(from, to);
                (ns * part.min(share(new))).min(new)
            }
        }
    }

    /// Launches of this price took `new` of the GPU's time, as far as no other stream's had it. Those of the only stream
    /// at work would only tell what prices were off by while they were learnt.
    fn learn_sharing(&mut self, new: f64, price: Price) {
        let Price::Learnt(ns) = price else { return };
        let fade = SHARING / (SHARING + ns);
        self.sharing = (self.sharing.0 * fade + new.min(RANGE * ns), self.sharing.1 * fade + ns);
    }

    /// Whether anything was measured yet: until then prices are guesses.
    pub fn has_measured(&self) -> bool {
        self.measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_streams_share_counts_once() {
        let mut meter = Meter::default();
        assert_eq!(meter.cover(0.0, 100.0), 100.0);
        assert_eq!(meter.cover(50.0, 150.0), 50.0);
        assert_eq!(meter.cover(300.0, 400.0), 100.0);
        assert_eq!(meter.cover(0.0, 400.0), 150.0, "what lay between");
        assert_eq!(meter.cover(10.0, 20.0), 0.0);
        assert_eq!(meter.busy.0.len(), 1);
    }

    #[test]
    fn another_stream_slows_wide_launches_more_if_it_runs_in_step_and_narrow_ones_less() {
        let mut meter = Meter::default();
        // Two streams, whose launches weigh all of the GPU for half of the time and a tenth for the rest.
        let weighs: Weighs = ([0.55, 0.505, 0.5005], false, 1.0);
        for at in [0.0, 0.0, 1e6, 1e6] {
            let covered = meter.cover(at, at + 1e6);
            meter.weigh((at, at + 1e6), covered, Some(weighs));
        }
        let (apart, in_step) = (meter.beside_one(), meter.beside_one_in_step());
        let slowed = [1.0, 0.1].map(|weight| (apart.slowed(weight), in_step.slowed(weight)));
        let [(wide, wide_in_step), (narrow, narrow_in_step)] = slowed;
        assert!((wide - 1.55).abs() < 0.01 && (wide_in_step - 2.0).abs() < 0.01, "{slowed:?}");
        assert!((narrow, narrow_in_step) == (1.0, 1.0), "{slowed:?}");
    }

    #[test]
    fn intervals_that_are_kept_apart_never_want_more_room() {
        let mut meter = Meter::default();
        let room = meter.busy.0.capacity();
        let new: f64 = (0..1_000).map(|n| f64::from(n) * 10.0).map(|at| meter.cover(at, at + 5.0)).sum();
        assert_eq!(new, 5_000.0);
        assert_eq!((meter.busy.0.len(), meter.busy.0.capacity()), (INTERVALS, room));
    }

    #[test]
    fn any_order_of_intervals_comes_to_the_same_union() {
        let intervals = [(5.0, 9.0), (0.0, 2.0), (8.0, 12.0), (1.0, 6.0), (20.0, 21.0), (12.0, 13.0)];
        for turn in 0..intervals.len() {
            let mut meter = Meter::default();
            let turned = intervals.iter().cycle().skip(turn).take(intervals.len());
            let sum: f64 = turned.map(|(from, to)| meter.cover(*from, *to)).sum();
            assert_eq!(sum, 14.0, "turned by {turn}");
        }
    }

    #[test]
    fn streams_that_overlap_weigh_together() {
        let mut meter = Meter::default();
        for n in 0..1_000u32 {
            let from = f64::from(n) * 1e5;
            for stream in 0..2 {
                let covered = meter.cover(from, from + 1e5);
                meter.weigh(
                    (from, from + 1e5),
                    covered,
                    (stream == 0).then_some(([0.2, 0.04, 0.008], false, 1.0)),
                );
            }
        }
        let together = meter.recent.weight();
        assert!((together.mean - 0.4).abs() < 1e-6 && together.variance < 1e-6, "{together:?}");
        assert!((meter.beside_one().always.mean - 0.2).abs() < 1e-6);
        let held = meter.take_held();
        assert!(held.busy_ns.abs_diff(100_000_000) < 100 && held.weighted_ns.abs_diff(40_000_000) < 100);
        assert_eq!(meter.take_held(), Held::default());
    }

    #[test]
    fn launches_beside_others_are_as_much_longer_as_those_that_were_seen() {
        let mut meter = Meter::default();
        meter.note_stretched(100.0, 900.0, 800.0);
        assert_eq!(meter.stretched(100.0), None, "nothing is known yet");
        meter.note_stretched(1e6, 1.5e6, 0.0);
        assert_eq!(meter.stretched(100.0), Some(150.0));
        let mut dear = Meter::default();
        dear.note_stretched(1.5e6, 1e6, 0.0);
        assert_eq!(dear.stretched(100.0), Some(100.0), "nothing is faster beside others");
    }

    #[test]
    fn switches_take_the_same_on_average_and_what_varies_is_the_work() {
        let mut meter = Meter::default();
        let took = |n: u32| 1e6 + 5e5 * f64::from(n % 5) - 1e6; // expected: 1 ms
        let sum: f64 = (0..500).map(|n| took(n) + 1e5 - meter.switched(took(n) + 1e5, 1e6)).sum();
        assert!((sum / 5e8 - 1.0).abs() < 0.02, "{sum}");
    }

    #[test]
    fn a_stream_that_waited_does_not_make_the_others_dear() {
        let mut meter = Meter::default();
        assert_eq!(meter.measure(0.0, 270e6, Price::Learnt(667e3)), (270e6, true), "the host held it up");
        assert_eq!(meter.estimate(300e6, 304e6, Price::Learnt(667e3)), 4e6, "no more than went by");
        (0..2_000).map(f64::from).for_each(|n| {
            meter.measure(1e9 + n * 2e6, 1e9 + n * 2e6 + 1e6, Price::Learnt(1e6));
        });
        let after = meter.estimate(6e9, 6e9 + 10e6, Price::Learnt(1e6));
        assert!((after / 1e6 - 1.0).abs() < 0.01, "{after}");
    }

    #[test]
    fn what_overlaps_a_guess_is_measured_only_beyond_it() {
        let mut meter = Meter::default();
        meter.estimate(0.0, 1_000.0, Price::Guess(500.0));
        assert!(meter.is_guessed(500.0, 2_000.0) && !meter.is_guessed(1_000.0, 2_000.0));
        meter.estimate(2_000.0, 3_000.0, Price::Learnt(500.0));
        assert_eq!(meter.measure(2_500.0, 4_500.0, Price::Learnt(400.0)), (1_500.0, false));
        assert_eq!(meter.measure(3_000.0, 5_000.0, Price::Learnt(2_000.0)), (500.0, true));
    }

    #[test]
    fn a_learnt_stretch_is_charged_its_price_also_where_less_went_by() {
        let mut meter = Meter::default();
        let took = meter.estimate(0.0, 30.0, Price::Learnt(90.0));
        assert_eq!(took, 90.0, "a launch like this takes so much on average");
    }

    /// Four streams, each with stretches of 1 ms, of which the GPU runs `at_once`: together they take no longer than that
    /// many less. Every other 20 ms nothing can be measured. Returns charged by true.
    fn shared(at_once: f64, turn_ms: u32) -> f64 {
        let mut meter = Meter::default();
        let (mut charged, mut truth) = (0.0, 0.0);
        for ms in 0..4_000u32 {
            let from = f64::from(ms) * 1e6;
            for stream in 0..4 {
                let (from, to) = (from + f64::from(stream) * 2e5, from + 1e6 + f64::from(stream) * 2e5);
                let price = Price::Learnt(1e6 * at_once / 4.0);
                let counts = if ms < 400 { 0.0 } else { 1.0 };
                charged += counts
                    * if (ms / turn_ms).is_multiple_of(2) {
                        meter.measure(from, to, price).0
                    } else {
                        meter.estimate(from, to, price)
                    };
            }
            truth += if ms < 400 { 0.0 } else { 1e6 };
        }
        charged / truth
    }

    #[test]
    fn streams_that_overlap_are_charged_alike_whether_measured_or_not() {
        for (at_once, turn_ms) in [(4.0, 20), (1.0, 20), (2.0, 5), (3.0, 2)] {
            let off = shared(at_once, turn_ms) - 1.0;
            assert!(off.abs() < 0.01, "{at_once} of 4 streams at once, turns of {turn_ms} ms: {off}");
        }
    }

    #[test]
    fn launches_of_which_nothing_is_known_are_charged_no_more_than_went_by() {
        let mut meter = Meter::default();
        assert_eq!(meter.estimate(0.0, 200.0, Price::Guess(90.0)), 90.0);
        assert_eq!(meter.estimate(100.0, 300.0, Price::Guess(90.0)), 45.0, "less what other streams cover");
        assert_eq!(meter.estimate(1_000.0, 1_030.0, Price::Guess(90.0)), 30.0);
    }
}
