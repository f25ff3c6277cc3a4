//! Which part of a nanosecond is whose when tenants overlap (MPS): it is divided among those who have kernels on the GPU,
//! by the kernels' weight (design 5, gpu-truths rule 12).
//!
//! Each process publishes for how long it had kernels there, and with what weight, as ever-growing sums. Whoever wants to
//! know what it shared its own time with looks at them now and then: what a sum has grown by since the last look is that
//! neighbour's part of the time in between. What a neighbour has not published yet is taken to be busy as long as its
//! word says so; what that was wrong by is made good at the next look.

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
    fn and(self, other: Self) -> Self {
        Self {
            mean: self.mean + other.mean,
            variance: self.variance + other.variance,
            skew: self.skew + other.skew,
        }
    }

    /// Two values, and how often each, that come to the same mean, variance and skew.
    fn two_values(self) -> [(f64, f64); 2] {
        if self.variance <= 1e-12 {
            return [(self.mean.max(LEAST), 0.5); 2];
        }
        let spread = self.variance.sqrt();
        let lean = self.skew / (2.0 * self.variance * spread);
        let far = (1.0 + lean * lean).sqrt();
        let often = (1.0 + lean / far) / 2.0; // the lower one
        let value = |by: f64| (self.mean + spread * by).max(LEAST);
        [(value(lean - far), often), (value(lean + far), 1.0 - often)]
    }
}

/// What somebody has held of the GPU lately: what is older fades.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recent {
    busy: f64,
    streams: f64,
    sums: Moments,
}

impl Recent {
    /// It has held it for `busy` ns more; its streams for `streams` in all, and these are the sums of that by weight.
    pub fn add(&mut self, busy: f64, streams: f64, sums: Moments) {
        let fade = RECENT / (RECENT + busy);
        self.busy = self.busy * fade + busy;
        self.streams = self.streams * fade + streams;
        self.sums.iter_mut().zip(sums).for_each(|(sum, more)| *sum = *sum * fade + more);
    }

    /// The weight of one stream's launches.
    pub fn of_one(&self) -> Moments {
        if self.streams > 0.0 { self.sums.map(|sum| sum / self.streams) } else { [1.0; 3] }
    }

    /// The weight of all streams together, which come and go as they like.
    pub fn of_all(&self) -> Weight {
        if self.busy <= 0.0 {
            return Weight::steady(1.0);
        }
        let streams = (self.streams / self.busy).clamp(1.0, MOST);
        let [mean, square, cube] = self.sums.map(|sum| (sum / self.busy / streams).min(1.0)); // of one stream, or nothing
        Weight {
            mean: streams * mean,
            variance: streams * (square - mean * mean).max(0.0),
            skew: streams * (cube - 3.0 * mean * square + 2.0 * mean * mean * mean),
        }
    }
}

/// Looks remembered of a neighbour, and how far they are apart at least: together longer than the longest stretch between
/// two marks that is not a single kernel.
const LOOKS: usize = 64;
const APART: Nanos = Nanos::from_millis(1);

/// What a process remembers of one neighbour.
#[derive(Clone, Debug)]
pub struct Presence {
    seen: Occupancy,
    since: Nanos, // what it has published is so old
    counted: f64, // of its time since then, ns
    there: f64,   // of its time in all, ns
    held: Recent,
    looked: Nanos,                // last
    looks: [(Nanos, f64); LOOKS], // when, and what `there` was; oldest at `next`
    next: usize,
}

impl Default for Presence {
    fn default() -> Self {
        Self {
            seen: Occupancy::default(),
            since: Nanos(0),
            counted: 0.0,
            there: 0.0,
            held: Recent::default(),
            looked: Nanos(0),
            looks: [(Nanos(0), 0.0); LOOKS],
            next: 0,
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
}

impl Presence {
    /// Looks at what the neighbour has published. The last look was `before`.
    pub fn look(&mut self, now: Occupancy, before: Nanos, at: Nanos) {
        let published = now.held.busy_ns.wrapping_sub(self.seen.held.busy_ns);
        if before == Nanos(0) || published > at.since(before).0.saturating_mul(1_000) {
            *self = Self { seen: now, since: at, looked: at, ..Self::default() }; // the first look, or nonsense
            return;
        }
        self.remember(&now.held);
        if published > 0 {
            self.counted -= published as f64;
        }
        if published > 0 || !self.seen.is_busy {
            self.since = at;
        }
        self.seen = now;
        let open = if now.is_busy { at.since(self.since).0 as f64 } else { 0.0 };
        let more = (open - self.counted).clamp(0.0, at.since(before).0 as f64);
        self.counted += more;
        self.note(before);
        self.there += more;
        self.looked = at;
    }

    /// Notes how much of the neighbour there had been until the last look, which was `at`.
    fn note(&mut self, at: Nanos) {
        let last = self.looks[(self.next + LOOKS - 1) % LOOKS].0;
        if at.since(last) >= APART {
            self.looks[self.next] = (at, self.there);
            self.next = (self.next + 1) % LOOKS;
        }
    }

    /// The neighbour from one moment to another, as far as it was looked at.
    pub fn over(&self, (from, to): (Nanos, Nanos)) -> Beside {
        let to = to.min(self.looked);
        let passed = to.since(from).0 as f64;
        let there = self.there_until(to) - self.there_until(from);
        let part = if passed > 0.0 { (there / passed).clamp(0.0, 1.0) } else { 0.0 };
        Beside { part, weight: self.held.of_all() }
    }

    /// Its time in all until a moment; between two looks it came evenly.
    fn there_until(&self, moment: Nanos) -> f64 {
        let mut after = (self.looked, self.there);
        for back in 1..=LOOKS {
            let look = self.looks[(self.next + LOOKS - back) % LOOKS];
            if look.0 <= moment || look.0 == Nanos(0) {
                let between = after.0.since(look.0).0 as f64;
                let part = if between > 0.0 { moment.since(look.0).0 as f64 / between } else { 0.0 };
                return look.1 + (after.1 - look.1) * part.min(1.0);
            }
            after = look;
        }
        after.1
    }

    /// Streams that are harvested one after the other publish what each of them adds: only sums say anything.
    fn remember(&mut self, now: &Held) {
        let (seen, published) = (self.seen.held, |now: u64, seen: u64| now.wrapping_sub(seen) as f64);
        let streams = published(now.streams_ns, seen.streams_ns);
        let weighted = published(now.weighted_ns, seen.weighted_ns).min(streams);
        let squared = published(now.squared_ns, seen.squared_ns).min(weighted);
        let cubed = published(now.cubed_ns, seen.cubed_ns).min(squared);
        self.held.add(published(now.busy_ns, seen.busy_ns), streams, [weighted, squared, cubed]);
    }
}

/// What weighs on the GPU beside a tenant, on average.
pub fn beside(neighbours: &[Beside]) -> f64 {
    neighbours.iter().map(|neighbour| neighbour.part * neighbour.weight.mean).sum()
}

/// The part of its own time that belongs to a tenant of weight `own`, on average, beside these neighbours.
pub fn part(own: Weight, neighbours: &[Beside]) -> f64 {
    let (first, rest) = neighbours.split_at(neighbours.len().min(EXACT));
    let weight = |Beside { part, weight }: &Beside| Weight { mean: part * weight.mean, ..*weight };
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
        let beside = others.two_values().map(|(others, often)| often * own / (own + others));
        often * (beside[0] + beside[1])
    });
    each[0] + each[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(part: f64, weight: f64) -> Beside {
        Beside { part, weight: Weight::steady(weight) }
    }

    #[test]
    fn a_nanosecond_is_divided_by_weight() {
        assert_eq!(part(Weight::steady(1.0), &[]), 1.0);
        assert_eq!(part(Weight::steady(1.0), &[neighbour(1.0, 1.0)]), 0.5);
        assert_eq!(part(Weight::steady(0.1), &[neighbour(1.0, 0.3)]), 0.25);
        assert_eq!(part(Weight::steady(1.0), &[neighbour(0.5, 1.0)]), 0.75);
        assert_eq!(part(Weight::steady(1.0), &[neighbour(1.0, 1.0); 9]), 0.1);
    }

    /// A neighbour that is busy for `busy_us` of each millisecond and publishes every `every_ms`, looked at each
    /// 700 us.
    fn mean_part(busy_us: u64, every_ms: u64, weight_permille: u64) -> (f64, f64) {
        let (mut presence, mut before, mut sum, mut looks) = (Presence::default(), Nanos(0), 0.0, 0.0);
        for at_us in (700..2_000_000u64).step_by(700) {
            let published_ms = at_us / 1_000 / every_ms * every_ms;
            let busy_ns = published_ms * busy_us * 1_000;
            let is_busy = at_us % 1_000 < busy_us;
            let weighted_ns = busy_ns / 1_000 * weight_permille;
            let at = Nanos(at_us * 1_000);
            let held = Held { busy_ns, streams_ns: busy_ns, weighted_ns, ..Held::default() };
            presence.look(Occupancy { held, is_busy }, before, at);
            let lately = presence.over((before, at));
            if at_us > 100_000 {
                (sum, looks) = (sum + lately.part, looks + 1.0);
            }
            before = at;
        }
        (sum / looks, presence.held.of_all().mean)
    }

    #[test]
    fn a_neighbours_part_of_the_time_is_what_it_publishes_however_seldom() {
        for (busy_us, every_ms) in [(1_000, 1), (1_000, 5), (1_000, 50), (400, 1), (250, 3)] {
            let (part, weight) = mean_part(busy_us, every_ms, 300);
            let off = part - busy_us as f64 / 1_000.0;
            assert!(off.abs() < 0.03, "{busy_us} us of each ms, published every {every_ms} ms: {part}");
            assert!((weight - 0.3).abs() < 0.001, "{weight}");
        }
    }

    #[test]
    fn a_neighbour_counts_for_the_time_in_question() {
        let mut presence = Presence::default();
        let ms = Nanos::from_millis;
        for at in 1..=50 {
            let held = Held { busy_ns: ms(20.min(at)).0, ..Held::default() };
            presence.look(Occupancy { held, is_busy: at < 20 }, ms(at - 1), ms(at));
        }
        for (from, to, part) in [(40, 50, 0.0), (25, 48, 0.0), (10, 50, 0.25), (2, 18, 1.0), (15, 25, 0.5)] {
            let off = presence.over((ms(from), ms(to))).part - part;
            assert!(off.abs() < 0.03, "from {from} to {to} ms: {off}");
        }
    }

    #[test]
    fn weights_that_vary_are_divided_moment_by_moment() {
        let mut held = Recent::default();
        held.add(8.0, 8.0, [7.0 + 0.1, 7.0 + 0.01, 7.0 + 0.001]); // seven eighths of the time 1, else 0.1
        let exact = 7.0 / 8.0 * 0.01 / 1.01 + 1.0 / 8.0 * 0.01 / 0.11;
        let got = part(Weight::steady(0.01), &[Beside { part: 1.0, weight: held.of_all() }]);
        assert!((got - exact).abs() < 1e-9, "{got}, {exact}");
    }

    #[test]
    fn nonsense_on_a_neighbours_page_is_not_believed() {
        let mut presence = Presence::default();
        presence.look(Occupancy::default(), Nanos(0), Nanos(1));
        let held = Held { busy_ns: u64::MAX / 2, weighted_ns: u64::MAX, ..Held::default() };
        let wild = Occupancy { held, is_busy: false };
        presence.look(wild, Nanos(1), Nanos(1_000_000));
        assert_eq!(part(Weight::steady(1.0), &[presence.over((Nanos(500_000), Nanos(1_000_000)))]), 1.0);
    }
}
