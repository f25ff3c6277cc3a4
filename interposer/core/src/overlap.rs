//! Which part of a nanosecond is whose when tenants overlap (MPS): it is divided among those who have kernels on the GPU,
//! by the kernels' weight (design 5, gpu-truths rule 12).
//!
//! Each process publishes for how long it had kernels there, and with what weight, as ever-growing sums. Whoever wants to
//! know what it shared its own time with looks at them now and then: what a sum has grown by is that neighbour's time right
//! before the moment up to which it says so. What a neighbour has not published yet is taken to be busy as long as its
//! word says so.

use std::ops::Range;

use weir_protocol::pages::{Held, Occupancy};
use weir_protocol::units::Nanos;

/// Neighbours whose presence is combined exactly. More of them count as one.
const EXACT: usize = 5;

/// What was held counts for so long, in nanoseconds of it.
const RECENT: f64 = 50e6;

/// Nobody on the GPU weighs less, or more: so many kernels run at once at most (compute capability 8.0 and later).
const LEAST: f64 = 0.001;
const MOST: f64 = 128.0;

/// The weight of launches on average, of its square and of its cube.
pub type Moments = [f64; 3];

/// What weighs on the SMs beside a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Whatever the launch is: others who have nothing to do with it.
    pub always: Weight,
    /// So many times its own weight: others who run in step with it.
    pub times: f64,
    /// What the launches of its stream weigh; if that is not known, as much as it does.
    pub stream: Option<Weight>,
}

impl Load {
    /// By how much a launch of this weight is slower on average: kernels that want more SMs than there are all run slower.
    ///
    /// What the others weigh is known by the time for which they do. That is longer while they are slowed down by what weighs much of
    /// the launch's own stream. If neither had to do with the other they would meet as often as without that, and for so much longer.
    pub fn slowed(self, weight: f64) -> f64 {
        let slow = |own: f64, others: f64| (own + self.times * own + others).max(1.0);
        if !self.always.varies() {
            return slow(weight, self.always.mean);
        }
        let others = self.always.two_values();
        let ours = self.stream.map_or([(weight, 0.5); 2], Weight::two_values);
        let pace = |own: f64| others.map(|(others, often)| often / slow(own, others)).iter().sum::<f64>();
        let done = ours.map(|(own, often)| (own, often * pace(own)));
        let all_done: f64 = done.iter().map(|(_, done)| done).sum();
        let by_us =
            |others: f64| done.map(|(own, done)| done * slow(own, others)).iter().sum::<f64>() / all_done;
        let alone = others.map(|(others, often)| (others, often / by_us(others)));
        let beside: f64 = alone.iter().map(|(others, often)| often * slow(weight, *others)).sum();
        beside / alone.iter().map(|(_, often)| often).sum::<f64>()
    }
}

/// A weight that changes from moment to moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weight {
    /// On average.
    pub mean: f64,
    /// How much it varies, ...
    pub variance: f64,
    /// ... and by how much more upwards: the third central moment.
    pub skew: f64,
}

impl Weight {
    /// Always the same.
    pub fn steady(mean: f64) -> Self {
        Self { mean, ..Self::default() }
    }

    /// Together with another that has nothing to do with it: cumulants add up.
    pub fn and(self, other: Self) -> Self {
        Self {
            mean: self.mean + other.mean,
            variance: self.variance + other.variance,
            skew: self.skew + other.skew,
        }
    }

    /// By these moments.
    fn of([mean, square, cube]: Moments) -> Self {
        let variance = (square - mean * mean).clamp(0.0, MOST * MOST);
        Self { mean, variance, skew: cube - 3.0 * mean * square + 2.0 * mean * mean * mean }
    }

    /// So many times as much.
    pub fn times(self, by: f64) -> Self {
        Self { mean: self.mean * by, variance: self.variance * by * by, skew: self.skew * by * by * by }
    }

    /// Where it is there for only a part of the time.
    fn at_times(self, part: f64) -> Self {
        let Self { mean, variance, skew } = self;
        let square = variance + mean * mean;
        Self::of(
            [mean, square, skew + 3.0 * mean * variance + mean * mean * mean].map(|moment| part * moment),
        )
    }

    /// Whether it is not always the same.
    fn varies(self) -> bool {
        self.variance > 1e-12
    }

    /// Two values, and how often each, that come to the same mean, variance and skew.
    fn two_values(self) -> [(f64, f64); 2] {
        if !self.varies() {
            return [(self.mean, 0.5); 2];
        }
        let spread = self.variance.sqrt();
        let lean = self.skew / (2.0 * self.variance * spread);
        let far = (1.0 + lean * lean).sqrt();
        let often = (1.0 + lean / far) / 2.0; // the lower one
        let value = |by: f64| (self.mean + spread * by).max(0.0);
        [(value(lean - far), often), (value(lean + far), 1.0 - often)]
    }
}

/// What somebody has held of the GPU lately: what is older fades.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recent {
    busy: f64,
    sums: Moments,
}

impl Recent {
    /// It has held it for `busy` ns more, and these are the integrals of its weight over that time.
    pub fn add(&mut self, busy: f64, sums: Moments) {
        let fade = RECENT / (RECENT + busy);
        self.busy = self.busy * fade + busy;
        self.sums.iter_mut().zip(sums).for_each(|(sum, more)| *sum = *sum * fade + more);
    }

    /// Whether it has held anything.
    pub fn is_known(&self) -> bool {
        self.busy > 0.0
    }

    /// Its weight on average, of its square and of its cube.
    pub fn moments(&self) -> Moments {
        if self.is_known() { self.sums.map(|sum| sum / self.busy) } else { [1.0; 3] }
    }

    /// Its weight.
    pub fn weight(&self) -> Weight {
        let [mean, square, cube] = self.moments();
        Weight::of([mean.clamp(LEAST, MOST), square, cube])
    }
}

/// Points remembered of a neighbour's past, and how far they are apart at least: together longer than the longest stretch
/// between two marks.
const POINTS: usize = 128;
const APART: Nanos = Nanos::from_millis(1);

/// So late one may hear of what a neighbour has done, ns: its longest stretch, and then some. It may tell of a moment that is
/// a little ahead, as it knows the GPU's clock about so well.
const LATE: Range<i64> = -10_000_000..1_000_000_000;

/// What a process remembers of one neighbour.
///
/// What the neighbour says it held lay right before the moment until which it held it. Since then it has held the GPU for as
/// long as it has had work.
#[derive(Clone, Debug)]
pub struct Presence {
    seen: Occupancy,
    held: Recent,
    sms: Recent,         // what of its weight is SMs
    offset: Option<i64>, // our clock less the neighbour's, at most
    looked: Nanos,
    busy_since: Option<Nanos>,
    points: [(Nanos, f64); POINTS], // until when it was there for how long in all, ns; the last one is at `last`
    last: usize,
}

impl Default for Presence {
    fn default() -> Self {
        Self {
            seen: Occupancy::default(),
            held: Recent::default(),
            sms: Recent::default(),
            offset: None,
            looked: Nanos(0),
            busy_since: None,
            points: [(Nanos(0), 0.0); POINTS],
            last: 0,
        }
    }
}

/// A neighbour over some time.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    /// Part of the time in which it was there.
    pub part: f64,
    /// What it weighed then.
    pub weight: Weight,
    /// Part of that which is SMs; the rest is bandwidth.
    pub on_sms: f64,
}

impl Presence {
    /// Looks at what the neighbour has published. The clock is read behind that: of a moment that lay ahead of the look the
    /// clocks would seem to differ, for ever.
    pub fn look(&mut self, now: Occupancy, clock: impl FnOnce() -> Nanos) {
        let at = clock();
        let before = std::mem::replace(&mut self.looked, at);
        let published = now.held.busy_ns.wrapping_sub(self.seen.held.busy_ns);
        // Two looks may be some microseconds apart, and what comes between them tells of a long stretch.
        let possible = at.since(before).0.saturating_add(LATE.end.unsigned_abs()).saturating_mul(1_000);
        if before == Nanos(0) || published > possible {
            *self = Self { seen: now, looked: at, ..Self::default() }; // the first look, or nonsense
            self.points[0].0 = at;
        }
        let offset = self.learn_offset(&now, at);
        let here = |theirs: Nanos| Nanos(theirs.0.wrapping_add_signed(offset)).min(at);
        self.busy_since = now.busy_since.map(here);
        if now.until != self.seen.until {
            let more = now.held.busy_ns.wrapping_sub(self.seen.held.busy_ns);
            self.remember(&now.held);
            self.seen = now;
            self.note(here(now.until), more);
        }
    }

    /// It has gone: what it has not said it held it held until the last look.
    pub fn leave(&mut self) {
        if let Some(since) = self.busy_since.take() {
            let from = since.max(self.points[self.last].0);
            self.note(self.looked, self.looked.since(from).0);
        }
    }

    /// Time passes for one that has gone. Says whether anybody may still ask for when it was there.
    pub fn fade(&mut self, now: Nanos) -> bool {
        self.looked = now;
        now.since(self.points[self.last].0).0 < LATE.end.unsigned_abs()
    }

    /// By how much our clock is ahead of the neighbour's. They may differ by as much as they like (time namespaces), but
    /// always by the same: the least time from a moment of which it tells to our look. One that is no more than late is our
    /// own.
    fn learn_offset(&mut self, now: &Occupancy, at: Nanos) -> i64 {
        let latest = now.until.max(now.busy_since.unwrap_or_default());
        let late = at.0.wrapping_sub(latest.0).cast_signed();
        let offset = *self.offset.insert(self.offset.map_or(late, |offset| offset.min(late)));
        if LATE.contains(&offset) { 0 } else { offset }
    }

    /// Notes that it was there for `more` up to `until`.
    fn note(&mut self, until: Nanos, more: u64) {
        let (before, there) = self.points[self.last];
        let (until, total) = (until.max(before), there + more as f64);
        let from = Nanos(until.0.saturating_sub(more)).max(before);
        if until.since(self.points[(self.last + POINTS - 1) % POINTS].0) < APART {
            self.points[self.last] = (until, total);
            return;
        }
        if from > before {
            self.push((from, there));
        }
        self.push((until, total));
    }

    fn push(&mut self, point: (Nanos, f64)) {
        self.last = (self.last + 1) % POINTS;
        self.points[self.last] = point;
    }

    /// The neighbour from one moment to another, as far as it was looked at.
    pub fn over(&self, (from, to): (Nanos, Nanos)) -> Beside {
        let to = to.min(self.looked);
        let passed = to.since(from).0 as f64;
        let there = self.there_until(to) - self.there_until(from);
        let part = if passed > 0.0 { (there / passed).clamp(0.0, 1.0) } else { 0.0 };
        Beside { part, weight: self.held.weight(), on_sms: self.sms.moments()[0].clamp(0.0, 1.0) }
    }

    /// Its time in all until a moment.
    fn there_until(&self, moment: Nanos) -> f64 {
        let mut after = self.points[self.last];
        if moment >= after.0 {
            let since = self.busy_since.map_or(moment, |since| since.max(after.0));
            return after.1 + moment.since(since).0 as f64;
        }
        for back in 1..POINTS {
            let point = self.points[(self.last + POINTS - back) % POINTS];
            if point.0 <= moment {
                let between = after.0.since(point.0).0 as f64;
                let part = if between > 0.0 { moment.since(point.0).0 as f64 / between } else { 0.0 };
                return point.1 + (after.1 - point.1) * part;
            }
            after = point;
        }
        after.1
    }

    fn remember(&mut self, now: &Held) {
        let (seen, published) = (self.seen.held, |now: u64, seen: u64| now.wrapping_sub(seen) as f64);
        let weighted = published(now.weighted_ns, seen.weighted_ns);
        let squared = published(now.squared_ns, seen.squared_ns).min(MOST * weighted);
        let cubed = published(now.cubed_ns, seen.cubed_ns).min(MOST * squared);
        self.sms.add(weighted, [published(now.sms_ns, seen.sms_ns).min(weighted), 0.0, 0.0]);
        self.held.add(published(now.busy_ns, seen.busy_ns), [weighted, squared, cubed]);
    }
}

/// What weighs on the SMs beside a tenant: that makes its launches slower.
pub fn beside(neighbours: &[Beside]) -> Weight {
    let on_sms = |neighbour: &Beside| neighbour.weight.times(neighbour.on_sms).at_times(neighbour.part);
    let weights = neighbours.iter().map(on_sms);
    weights.fold(Weight::default(), Weight::and)
}

/// The part of its own time that belongs to a tenant of weight `own`, on average, beside these neighbours.
pub fn part(own: Weight, neighbours: &[Beside]) -> f64 {
    let (first, rest) = neighbours.split_at(neighbours.len().min(EXACT));
    let weight = |Beside { part, weight, .. }: &Beside| Weight { mean: part * weight.mean, ..*weight };
    expected(own, rest.iter().map(weight).fold(Weight::default(), Weight::and), first)
}

/// Each neighbour is there for its part of the time, whoever else is.
fn expected(own: Weight, others: Weight, neighbours: &[Beside]) -> f64 {
    let Some((one, rest)) = neighbours.split_first() else { return divided(own, others) };
    let away = if one.part < 1.0 { (1.0 - one.part) * expected(own, others, rest) } else { 0.0 };
    let there = if one.part > 0.0 { one.part * expected(own, others.and(one.weight), rest) } else { 0.0 };
    away + there
}

fn divided(own: Weight, others: Weight) -> f64 {
    if others.mean <= 0.0 {
        return 1.0;
    }
    let each = own.two_values().map(|(own, often)| {
        let own = own.max(LEAST);
        let beside = others.two_values().map(|(others, often)| often * own / (own + others.max(LEAST)));
        often * (beside[0] + beside[1])
    });
    each[0] + each[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(part: f64, weight: f64) -> Beside {
        Beside { part, weight: Weight::steady(weight), on_sms: 1.0 }
    }

    #[test]
    fn a_nanosecond_is_divided_by_weight() {
        assert_eq!(part(Weight::steady(1.0), &[]), 1.0);
        assert_eq!(part(Weight::steady(1.0), &[neighbour(1.0, 1.0)]), 0.5);
        assert_eq!(part(Weight::steady(0.1), &[neighbour(1.0, 0.3)]), 0.25);
        assert_eq!(part(Weight::steady(1.0), &[neighbour(0.5, 1.0)]), 0.75);
        assert_eq!(part(Weight::steady(1.0), &[neighbour(1.0, 1.0); 9]), 0.1);
    }

    /// A neighbour that is busy for the first `busy_us` of each millisecond on a clock of its own, and says so every so
    /// often, looked at each 700 us: what is made of that, by milliseconds, and of its weight.
    fn seen(busy_us: u64, every_ms: u64, weight_permille: u64) -> (Presence, f64) {
        let (mut presence, ms) = (Presence::default(), 1_000_000);
        for at in (0..200 * ms).step_by(700_000) {
            let published_ms = at / ms / every_ms * every_ms;
            let busy_ns = published_ms * busy_us * 1_000;
            let weighted_ns = busy_ns / 1_000 * weight_permille;
            let theirs = |ns: u64| Nanos(ns + 5_000 * ms);
            let last = (published_ms * ms).saturating_sub(ms - busy_us * 1_000);
            let held = Held { busy_ns, weighted_ns, ..Held::default() };
            let began = if busy_us == 1_000 { 0 } else { at / ms * ms };
            let busy_since = (at % ms < busy_us * 1_000).then(|| theirs(began));
            presence.look(Occupancy { held, until: theirs(last), busy_since }, || Nanos(at + 1));
        }
        let weight = presence.held.weight().mean;
        (presence, weight)
    }

    #[test]
    fn a_neighbour_that_takes_bandwidth_has_its_part_of_the_time_and_leaves_the_sms_that_it_does_not_hold() {
        let (mut presence, ms) = (Presence::default(), Nanos::from_millis);
        for at in 1..=4 {
            let busy_ns = ms(at).0;
            let (weighted_ns, sms_ns) = (busy_ns / 10 * 8, busy_ns / 10); // 80 % of the bandwidth from 10 % of the SMs
            let held = Held { busy_ns, weighted_ns, sms_ns, ..Held::default() };
            presence.look(Occupancy { held, until: ms(at), busy_since: Some(ms(0)) }, || ms(at));
        }
        let there = [presence.over((ms(3), ms(4)))];
        assert!((part(Weight::steady(1.0), &there) - 1.0 / 1.8).abs() < 0.01);
        assert!((beside(&there).mean - 0.1).abs() < 0.01, "{:?}", beside(&there));
    }

    #[test]
    fn a_neighbours_part_of_the_time_is_what_it_publishes_however_seldom() {
        for (busy_us, every_ms) in [(1_000, 1), (1_000, 5), (1_000, 50), (400, 1), (250, 3)] {
            let (presence, weight) = seen(busy_us, every_ms, 300);
            let off = presence.over((Nanos(145_000_000), Nanos(195_000_000))).part - busy_us as f64 / 1_000.0;
            assert!(off.abs() < 0.02, "{busy_us} us of each ms, published every {every_ms} ms: off by {off}");
            assert!((weight - 0.3).abs() < 0.001, "{weight}");
        }
    }

    #[test]
    fn a_neighbour_counts_for_the_time_in_question() {
        let mut presence = Presence::default();
        let ms = Nanos::from_millis;
        for at in 1..=50 {
            let until = ms(20.min(at - 1));
            let held = Held { busy_ns: until.0, ..Held::default() };
            presence.look(Occupancy { held, until, busy_since: (at < 20).then_some(Nanos(0)) }, || ms(at));
        }
        for (from, to, part) in [(40, 50, 0.0), (25, 48, 0.0), (10, 50, 0.25), (2, 18, 1.0), (15, 25, 0.5)] {
            let off = presence.over((ms(from), ms(to))).part - part;
            assert!(off.abs() < 0.03, "from {from} to {to} ms: {off}");
        }
    }

    #[test]
    fn what_a_neighbour_says_late_counts_for_when_it_was() {
        let mut presence = Presence::default();
        let ms = Nanos::from_millis;
        // It was there from 10 to 20 ms, and says so at 30; from 32 ms on it is there again, and was seen to at 39.
        for at in (1..=31).chain([39]) {
            let held = Held { busy_ns: if at < 30 { 0 } else { ms(10).0 }, ..Held::default() };
            let until = if at < 30 { Nanos(0) } else { ms(20) };
            presence.look(Occupancy { held, until, busy_since: (at > 31).then_some(ms(32)) }, || ms(at));
        }
        for (from, to, part) in [(10, 20, 1.0), (21, 31, 0.0), (1, 9, 0.0), (5, 15, 0.5), (25, 39, 0.5)] {
            let off = presence.over((ms(from), ms(to))).part - part;
            assert!(off.abs() < 0.01, "from {from} to {to} ms: {off}");
        }
    }

    #[test]
    fn a_neighbour_that_told_of_a_moment_ahead_once_is_believed_as_before() {
        let (mut presence, ms) = (Presence::default(), Nanos::from_millis);
        // It is there for the last 4 of each 10 ms, and says so as they end; once of a moment that is ahead of the look.
        for at in 1..=60 {
            let ended = at / 10 * 10;
            let until = if at == 3 { ms(6) } else { ms(ended) };
            let held = Held { busy_ns: ms(ended / 10 * 4).0, ..Held::default() };
            let busy_since = (at % 10 >= 6).then(|| ms(ended + 6));
            presence.look(Occupancy { held, until, busy_since }, || ms(at));
        }
        for (from, to, part) in [(20, 26, 0.0), (26, 30, 1.0), (50, 56, 0.0)] {
            let off = presence.over((ms(from), ms(to))).part - part;
            assert!(off.abs() < 0.03, "from {from} to {to} ms: {off}");
        }
    }

    #[test]
    fn weights_that_vary_are_divided_moment_by_moment() {
        let mut held = Recent::default();
        held.add(8.0, [7.0 + 0.1, 7.0 + 0.01, 7.0 + 0.001]); // seven eighths of the time 1, else 0.1
        let exact = 7.0 / 8.0 * 0.01 / 1.01 + 1.0 / 8.0 * 0.01 / 0.11;
        let got = part(Weight::steady(0.01), &[Beside { part: 1.0, weight: held.weight(), on_sms: 1.0 }]);
        assert!((got - exact).abs() < 1e-9, "{got}, {exact}");
    }

    #[test]
    fn a_small_kernel_is_slowed_down_by_what_fills_the_gpu_and_not_by_what_that_is_on_average() {
        let mut held = Recent::default();
        held.add(12.0, [10.0 + 2.0 * 0.2, 10.0 + 2.0 * 0.04, 10.0 + 2.0 * 0.008]); // 10 of 12 us it weighs 1, else 0.2
        let load = |part| Load {
            always: beside(&[Beside { part, weight: held.weight(), on_sms: 1.0 }]),
            ..Load::default()
        };
        let exact = |slow: f64, slower: f64| 12.0 / (2.0 / slow + 10.0 / slower);
        assert!((load(1.0).slowed(0.2) - exact(1.0, 1.2)).abs() < 1e-9, "{}", load(1.0).slowed(0.2));
        assert!(
            (load(1.0).slowed(1.0) - exact(1.2, 2.0)).abs() < 1e-9,
            "one that fills it has no room to spare"
        );
        assert_eq!(load(0.0).slowed(0.2), 1.0);
        assert_eq!(load(0.0).slowed(1.0), 1.0);
        let half = Load { always: beside(&[neighbour(0.5, 1.0)]), ..Load::default() };
        assert!((half.slowed(0.4) - 2.0 / (1.0 + 1.0 / 1.4)).abs() < 1e-9, "half of the time by 1.4");
    }

    #[test]
    fn a_small_kernel_among_wide_ones_is_slowed_down_less_than_the_neighbours_time_seems_to_say() {
        // By itself the neighbour fills the GPU for two fifths of its time, and ours for four fifths of ours: of each pair of kernels so
        // much meets as of both, and takes as much longer as they want too much.
        let (theirs, ours) = ([(0.2, 0.6), (2.0, 0.4)], [(0.1, 0.2), (1.0, 0.8)]);
        let slow = |own: f64, others: f64| (own + others).max(1.0);
        let time = |(own, ours): (f64, f64), (others, theirs): (f64, f64)| ours * theirs * slow(own, others);
        let seen = |of: &dyn Fn(usize) -> (f64, f64)| {
            let mut seen = Recent::default();
            (0..2).map(of).for_each(|(weight, time)| {
                seen.add(time, [1, 2, 3].map(|power| time * weight.powi(power)));
            });
            seen.weight()
        };
        let always = seen(&|n| (theirs[n].0, ours.iter().map(|ours| time(*ours, theirs[n])).sum()));
        let stream = seen(&|n| (ours[n].0, theirs.iter().map(|theirs| time(ours[n], *theirs)).sum()));
        let load = Load { always, stream: Some(stream), ..Load::default() };
        for (own, _) in ours {
            let exact: f64 = theirs.iter().map(|(others, often)| often * slow(own, *others)).sum();
            assert!((load.slowed(own) / exact - 1.0).abs() < 0.02, "{own}: {} of {exact}", load.slowed(own));
        }
        let blind = Load { always, ..Load::default() };
        assert!(blind.slowed(0.1) > load.slowed(0.1) && blind.slowed(1.0) < load.slowed(1.0));
    }

    #[test]
    fn what_a_neighbour_says_between_two_looks_right_after_each_other_is_believed() {
        let (mut presence, ms) = (Presence::default(), Nanos::from_millis);
        let says = |busy_ms| Occupancy {
            held: Held { busy_ns: ms(busy_ms).0, ..Held::default() },
            until: ms(busy_ms),
            busy_since: Some(Nanos(0)),
        };
        presence.look(says(0), || ms(1));
        presence.look(says(0), || ms(21));
        presence.look(says(20), || Nanos(ms(21).0 + 5_000));
        assert_eq!(presence.over((ms(2), ms(21))).part, 1.0);
    }

    #[test]
    fn nonsense_on_a_neighbours_page_is_not_believed() {
        let mut presence = Presence::default();
        presence.look(Occupancy::default(), || Nanos(1));
        let held = Held { busy_ns: u64::MAX / 2, weighted_ns: u64::MAX, ..Held::default() };
        let wild = Occupancy { held, until: Nanos(u64::MAX), busy_since: None };
        presence.look(wild, || Nanos(1_000_000));
        assert_eq!(part(Weight::steady(1.0), &[presence.over((Nanos(500_000), Nanos(1_000_000)))]), 1.0);
    }
}
