//! What a measured stretch of work says about the prices of the launches in it.
//!
//! A stretch with the launches n1, n2, .. took so long: one linear equation for the prices. Many of them, with other
//! mixes, determine each price (gpu-truths, rule 5: non-negative least squares over segment counts). They are solved as
//! they come, by a Kalman filter without covariances: each price moves by its part of the error, in proportion to how
//! little is known of it and how often it occurs. Prices that always occur in the same mix are not told apart by this,
//! and need not be: their sum is right.

use super::kernels::Held;
use super::{Bound, Estimate, Known};
use crate::overlap::{Load, Moments};

/// Signatures told apart in one stretch. A stretch with more teaches nothing.
pub const PARTS: usize = 128;

/// Standard deviation of a measurement: resolution of event timing (about 0.5 us, `cuEventElapsedTime`) ...
pub(super) const RESOLUTION_NS: f64 = 300.0;

/// ... and the launches' own variation, as a part of the whole.
const VARIATION: f64 = 0.02;

/// An error counts as no more than so many standard deviations: a host that was held up once is no news of a kernel.
const FAR: f64 = 2.0;

/// A price that has no more than this part in what is unknown of a stretch stays as it is: without covariances what varies
/// in the others would move it to and fro. What was only ever timed beside others counts as measured with such a stretch all the same: it will
/// not be known better.
const KNOWN: f64 = 0.05;

/// What a stretch took beyond its price may be time in which its stream idled for want of launches: within that doubt it
/// counts for so little, and for nothing where the stream may have idled for longer than its launches take: a program that is held
/// back at the gate idles in each stretch. Nothing makes a stretch seem shorter than it was.
const IDLE: f64 = 1.0 / 8.0;

/// The launches of a stretch: each signature's estimate and how many launches it had.
#[derive(Debug, Default)]
pub struct Parts {
    launches: Vec<Part>,
    mixed: bool,
    in_turn: bool,
}

/// What a stretch took, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Took {
    /// If its stream never idled.
    pub ns: f64,
    /// At most so long it may have idled.
    pub idle: f64,
    /// However it was.
    pub most: f64,
}

impl Took {
    /// Exactly so long.
    pub fn exactly(ns: f64) -> Self {
        Self { ns, idle: 0.0, most: ns }
    }
}

#[derive(Clone, Copy, Debug)]
struct Part {
    estimate: &'static Estimate,
    count: u32,
    restarts: u32, // of the estimate, when the stretch ended
}

impl Parts {
    /// Empty, with room for [`PARTS`]: filling it never allocates.
    pub fn with_room() -> Self {
        Self { launches: Vec::with_capacity(PARTS), ..Self::default() }
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.launches.clear();
        (self.mixed, self.in_turn) = (false, false);
    }

    /// These are launches of the same time on several streams, by which those of the stretch weigh. Which of them they are
    /// nobody knows, so in all else it counts as empty.
    pub fn mix(&mut self) {
        self.mixed = true;
    }

    /// Whether they are launches of several streams.
    pub fn are_mixed(&self) -> bool {
        self.mixed
    }

    /// Whoever launched these hands launches out to several streams in turn.
    pub fn take_turns(&mut self) {
        self.in_turn = true;
    }

    /// Whether launches like these went to other streams in turn.
    pub fn are_in_turn(&self) -> bool {
        self.in_turn
    }

    fn known(&self) -> &[Part] {
        if self.mixed { &[] } else { &self.launches }
    }

    /// Adds `count` launches; says whether there was room.
    pub fn add(&mut self, estimate: &'static Estimate, count: u32) -> bool {
        let fits = self.launches.len() < PARTS;
        if fits {
            self.launches.push(Part { estimate, count, restarts: estimate.restarts() });
        }
        fits
    }

    /// Adds one launch, however many signatures there are.
    pub(super) fn add_one(&mut self, estimate: &'static Estimate) {
        match self.launches.iter_mut().find(|part| std::ptr::eq(part.estimate, estimate)) {
            Some(part) => part.count = part.count.saturating_add(1),
            None => self.launches.push(Part { estimate, count: 1, restarts: estimate.restarts() }),
        }
    }

    /// Takes one launch out.
    pub(super) fn remove_one(&mut self, estimate: &'static Estimate) {
        if let Some(at) = self.launches.iter().position(|part| std::ptr::eq(part.estimate, estimate)) {
            self.launches[at].count -= 1;
            if self.launches[at].count == 0 {
                self.launches.swap_remove(at);
            }
        }
    }

    /// Whether nothing is known of the launches.
    pub fn is_empty(&self) -> bool {
        self.known().is_empty()
    }

    /// What the launches cost by the present prices, in nanoseconds.
    pub fn sum(&self) -> f64 {
        self.known().iter().map(|part| f64::from(part.count) * part.estimate.mean()).sum()
    }

    /// The one launch that this is took about so long beside a neighbour. Returns what is to be charged for earlier launches
    /// that were charged by guess.
    pub fn bound(&self, ns: f64, how: Bound) -> f64 {
        match self.known() {
            [Part { estimate, count: 1, .. }] if !self.is_stale() => estimate.bound(ns, how),
            _ => 0.0,
        }
    }

    /// Whether one of several signatures would get all that is off, only because nothing is known of it yet.
    fn would_guess(&self) -> bool {
        self.known().len() > 1 && self.known().iter().any(|part| part.estimate.is_fresh())
    }

    /// Whether one of the estimates has started afresh since: what it stands for was changed.
    fn is_stale(&self) -> bool {
        self.known().iter().any(|part| part.restarts != part.estimate.restarts())
    }

    /// Part of the GPU that the launches hold, each for as long as it takes beside such a load; `None` if
    /// nothing is known of them.
    pub fn weight(&self, load: Load) -> Option<Moments> {
        let held = self.held(load);
        (held.beside > 0.0).then(|| held.sums.map(|sum| sum / held.beside))
    }

    /// Part of what the launches weigh that is SMs, and not bandwidth.
    pub fn on_sms(&self) -> f64 {
        let held = self.held(Load::default());
        if held.sums[0] > 0.0 { held.sms / held.sums[0] } else { 1.0 }
    }

    /// By how much the launches are slower beside such a load: 1 if nothing is known of them.
    pub fn slowed(&self, load: Load) -> f64 {
        let held = self.held(load);
        if held.alone > 0.0 { held.beside / held.alone } else { 1.0 }
    }

    pub(super) fn held(&self, load: Load) -> Held {
        let mut held = Held::default();
        for part in &self.launches {
            let takes = part.count() * part.estimate.mean();
            let graph = part.estimate.made_of().and_then(|kernels| kernels.lock().held(load));
            held.add(graph.map_or_else(|| part.held(load), |kernels| kernels.scaled(takes)));
        }
        held
    }

    /// The same, of kernels alone.
    pub(super) fn held_by_kernels(&self, load: Load) -> Held {
        self.launches.iter().fold(Held::default(), |mut held, part| {
            held.add(part.held(load));
            held
        })
    }

    /// Whether they are one launch of which nothing is known.
    pub fn is_one_unknown(&self) -> bool {
        matches!(self.known(), [Part { estimate, count: 1, .. }] if estimate.known() == Known::Nothing)
    }

    /// Whether something is known of every launch, and of any.
    pub fn are_learnt(&self) -> bool {
        !self.is_empty() && self.known().iter().all(|part| part.estimate.known() == Known::Mean)
    }

    /// Whether every launch was measured before, were it once.
    pub fn are_measured(&self) -> bool {
        self.known().iter().all(|part| part.estimate.is_measured())
    }

    /// Whether any of the launches varies by itself.
    pub fn vary(&self) -> bool {
        self.known().iter().any(|part| part.estimate.varies())
    }

    /// The longest of the launches, by its price, ns.
    pub fn longest(&self) -> f64 {
        self.known().iter().map(|part| part.estimate.mean()).fold(0.0, f64::max)
    }

    /// Whether every launch was measured, or bounded.
    pub fn are_known(&self) -> bool {
        self.known().iter().all(|part| part.estimate.is_learnt())
    }

    /// The launches, for which `charged` was charged, could not be measured: those of which nothing is known stay charged by
    /// guess until it is.
    pub fn owe(&self, charged: f64) {
        let apart = (self.known().len() == 1).then_some(charged);
        if !self.is_stale() {
            self.known().iter().for_each(|part| part.estimate.owe(part.count, apart));
        }
    }

    /// Corrects the prices by what the stretch took. Returns what is to be charged for earlier launches that were charged by
    /// guess.
    pub fn learn(&self, took: Took) -> f64 {
        if self.is_stale() || self.would_guess() {
            return 0.0;
        }
        let (error, doubt) = self.error(took);
        // By what was expected, not by what was measured: else short measurements would count for more than long ones.
        let (noise, blurred) = (self.noise(doubt), self.noise(took.idle));
        let squares: f64 = self.known().iter().map(Part::square).sum();
        let spread: f64 = self.known().iter().map(|part| part.square() * part.estimate.spread()).sum();
        let unknown: f64 = self.known().iter().map(Part::unknown).sum();
        let [all, left_of] = [noise, blurred].map(|noise| unknown + spread + noise * noise);
        let far = FAR * all.sqrt();
        let error = error.clamp(-far, far);
        let correct = |part: &Part| {
            let (estimate, variance) = (part.estimate, part.estimate.variance());
            if part.unknown() < KNOWN * unknown && !estimate.is_timed() {
                return 0.0;
            }
            let gain = part.count() * variance / all;
            // What is shorter than its price at its longest may be much shorter.
            let left = variance * (1.0 - part.unknown() / left_of);
            let share = if squares > 0.0 { part.square() / squares } else { 0.0 };
            if share > 0.0 && estimate.is_measured() {
                estimate.err(error / squares.sqrt(), share);
            }
            estimate.correct(estimate.mean() + gain * error, left, share)
        };
        let owed = self.known().iter().map(correct).sum();
        let alone = self.known().len() == 1;
        let known = |graph: &&Part| alone || graph.estimate.known() == Known::Mean;
        for graph in self.known().iter().filter(known) {
            let took = (graph.estimate.mean(), (blurred / graph.count()).powi(2));
            graph.estimate.made_of().into_iter().for_each(|kernels| kernels.lock().come_to(took));
        }
        owed
    }

    /// Together the launches take so long, with this variance: shares out what their prices are off by, to half of each or twice as
    /// much at most. How far each is known stays as it was: the next one is shared out alike.
    pub(super) fn come_to(&self, (ns, variance): (f64, f64)) {
        let unknown: f64 = self.known().iter().map(Part::unknown).sum();
        let error = (ns - self.sum()) * unknown / (unknown + variance);
        for part in self.known().iter().filter(|_| unknown > 0.0) {
            let by = error * part.unknown() / unknown / part.count();
            part.estimate.move_by(by.clamp(-part.estimate.mean() / 2.0, part.estimate.mean()));
        }
    }

    /// Standard deviation of what it took, were its launches' prices known, ns.
    fn noise(&self, doubt: f64) -> f64 {
        RESOLUTION_NS + VARIATION * self.sum() + doubt
    }

    /// By how much the stretch took more than its price, and how far that is in doubt. Of prices that are known, or better
    /// than by that doubt, the time in which the stream may have idled says little: whoever pays more waits for longer at the gate,
    /// and would seem to take longer again. What was shorter than its price at its longest leaves no doubt.
    fn error(&self, Took { ns, idle, most }: Took) -> (f64, f64) {
        let sum = self.sum();
        if sum > most {
            return (most - sum, 0.0);
        }
        let idled = (ns - sum - RESOLUTION_NS).clamp(0.0, idle);
        let counts = if idle > sum { 0.0 } else { IDLE };
        let known = self.unlearnt() <= idle * idle;
        (if known { ns - sum - idled * (1.0 - counts) } else { ns - sum }, idle)
    }

    /// What is not known of those launches of which too little was measured.
    fn unlearnt(&self) -> f64 {
        let few = self.known().iter().filter(|part| part.estimate.known() != Known::Mean);
        few.map(Part::unknown).sum()
    }
}

impl Part {
    fn count(&self) -> f64 {
        f64::from(self.count)
    }

    fn held(&self, load: Load) -> Held {
        Held::of(self.count() * self.estimate.mean(), self.estimate.weight(), self.estimate.sms(), load)
    }

    /// What is not known of its launches' prices adds so much to the variance of the stretch.
    fn unknown(&self) -> f64 {
        self.count().powi(2) * self.estimate.variance()
    }

    /// What its launches would add to the variance of the stretch if each varied by as much as it takes.
    fn square(&self) -> f64 {
        self.count() * self.estimate.mean().powi(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlap::Weight;

    fn guess() -> &'static Estimate {
        Box::leak(Box::new(Estimate::guess(5_000)))
    }

    fn stretch(parts: &[(&'static Estimate, u32)]) -> Parts {
        let mut stretch = Parts::with_room();
        assert!(parts.iter().all(|(estimate, count)| stretch.add(estimate, *count)));
        stretch
    }

    /// Numbers that look random.
    fn random(seed: &mut u64) -> u32 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 32) as u32
    }

    /// The same, between 0 and 1.
    fn noise(seed: &mut u64) -> f64 {
        f64::from(random(seed)) / f64::from(u32::MAX)
    }

    #[test]
    fn the_first_measurement_replaces_a_guess_however_wrong() {
        for truth in [1_500.0, 100_000.0, 50e6] {
            let estimate = guess();
            stretch(&[(estimate, 1)]).learn(Took::exactly(truth));
            assert!((estimate.mean() / truth - 1.0).abs() < 0.01, "{truth}: {}", estimate.mean());
        }
    }

    #[test]
    fn prices_are_told_apart_by_stretches_of_different_mixes() {
        let truth = [2_000.0, 5_000.0, 120_000.0];
        let estimates = [guess(), guess(), guess()];
        let mut seed = 1;
        for _ in 0..200 {
            let counts = [(); 3].map(|()| random(&mut seed) % 40 + 1);
            let took: f64 = counts.iter().zip(truth).map(|(n, t)| f64::from(*n) * t).sum();
            let parts: Vec<_> = estimates.iter().copied().zip(counts).collect();
            stretch(&parts).learn(Took::exactly(took * (0.99 + 0.02 * noise(&mut seed))));
        }
        for (estimate, truth) in estimates.iter().zip(truth) {
            let off = (estimate.mean() - truth).abs();
            assert!(off <= (0.1 * truth).max(1_000.0), "{} for {truth}", estimate.mean());
        }
    }

    #[test]
    fn a_kernel_that_takes_as_long_as_its_data_want_is_right_on_average() {
        let estimate = guess();
        let (mut seed, mut charged, mut took) = (7, 0.0, 0.0);
        for round in 0..3_000 {
            let truth = 20_000.0 * 10f64.powf(noise(&mut seed));
            if round > 100 {
                charged += estimate.mean();
                took += truth;
            }
            stretch(&[(estimate, 1)]).learn(Took::exactly(truth));
        }
        assert!((charged / took - 1.0).abs() < 0.02, "charged {charged}, took {took}");
    }

    #[test]
    fn a_kernel_that_varies_does_not_drag_along_a_steady_one_that_always_comes_with_it() {
        let (varied, steady) = (guess(), guess());
        let mut seed = 5;
        let mut random = || 20_000.0 * 10f64.powf(noise(&mut seed));
        (0..3).for_each(|_| {
            stretch(&[(varied, 1)]).learn(Took::exactly(random()));
            stretch(&[(steady, 1)]).learn(Took::exactly(5_000.0));
        });
        for _ in 0..3_000 {
            let took: f64 = (0..10).map(|_| random() + 5_000.0).sum();
            stretch(&[(varied, 10), (steady, 10)]).learn(Took::exactly(took));
            assert!((steady.mean() - 5_000.0).abs() < 1_000.0, "{}", steady.mean());
        }
        let off = varied.mean() / (180_000.0 / 10f64.ln()) - 1.0;
        assert!(off.abs() < 0.1, "{off}");
    }

    #[test]
    fn a_kernel_that_becomes_dearer_is_followed_however_long_it_was_steady() {
        let estimate = guess();
        let teach = |ns: f64, times: usize| {
            (0..times).map(|_| stretch(&[(estimate, 1)]).learn(Took::exactly(ns))).sum::<f64>()
        };
        teach(100_000.0, 10_000);
        teach(300_000.0, 60);
        assert!((estimate.mean() / 300_000.0 - 1.0).abs() < 0.05, "{}", estimate.mean());
    }

    #[test]
    fn a_host_that_is_held_up_between_launches_makes_no_kernel_dearer() {
        let (estimate, mut seed) = (guess(), 3);
        for round in 0..2_000 {
            let held_up = if random(&mut seed).is_multiple_of(4) { 60_000.0 * noise(&mut seed) } else { 0.0 };
            let took = 30.0 * 5_000.0 + 500.0 * (noise(&mut seed) - 0.5) + held_up;
            stretch(&[(estimate, 30)]).learn(Took { ns: took, idle: 60_000.0, most: took });
            let off = 100.0 * (estimate.mean() / 5_000.0 - 1.0);
            assert!(
                round < 1_000 || off.abs() < 1.5,
                "{off} % in round {round}, of 5 % that the stretches idled"
            );
        }
    }

    #[test]
    fn a_program_that_is_held_back_within_each_stretch_does_not_become_dearer() {
        let estimate = guess();
        stretch(&[(estimate, 1)]).learn(Took::exactly(400_000.0));
        for _ in 0..10_000 {
            stretch(&[(estimate, 6)]).learn(Took { ns: 14e6, idle: 13.9e6, most: 14e6 });
        }
        assert!((estimate.mean() / 400_000.0 - 1.0).abs() < 0.02, "{}", estimate.mean());
        for _ in 0..50 {
            stretch(&[(estimate, 6)]).learn(Took { ns: 20e6, idle: 14e6, most: 20e6 });
        }
        assert!(estimate.mean() > 900_000.0, "beyond that doubt it did: {}", estimate.mean());
    }

    #[test]
    fn one_that_waits_for_tokens_does_not_become_dearer_for_a_kernel_beside_it_that_was_hardly_measured() {
        let (long, short) = (guess(), guess());
        let teach = |estimate, ns, times| {
            (0..times).map(|_| stretch(&[(estimate, 1)]).learn(Took::exactly(ns))).sum::<f64>()
        };
        teach(long, 5e6, 3);
        teach(short, 5_000.0, 2);
        for _ in 0..1_000 {
            let mix = stretch(&[(long, 1), (short, 1)]);
            let ns = 2.0 * mix.sum(); // half of the GPU's time is its own
            mix.learn(Took { ns, idle: ns, most: ns });
        }
        assert!((long.mean() / 5e6 - 1.0).abs() < 0.01, "{}", long.mean());
    }

    #[test]
    fn what_took_less_than_its_price_is_believed_however_long_the_host_may_have_been_held_up() {
        let estimate = guess();
        for _ in 0..3 {
            stretch(&[(estimate, 1)]).learn(Took { ns: 8_000.0, idle: 5_000.0, most: 8_000.0 });
        }
        for _ in 0..3 {
            stretch(&[(estimate, 40)]).learn(Took { ns: 200_000.0, idle: 100_000.0, most: 200_000.0 });
        }
        assert!((estimate.mean() / 5_000.0 - 1.0).abs() < 0.05, "{}", estimate.mean());
    }

    #[test]
    fn what_took_less_than_its_price_at_its_longest_may_have_taken_much_less() {
        let (short, medium) = (guess(), guess());
        for _ in 0..7 {
            stretch(&[(medium, 1)]).learn(Took::exactly(100_000.0));
        }
        for _ in 0..3 {
            stretch(&[(short, 1)]).bound(30_000.0, Bound::AtOnce);
        }
        for (count, ns, idle) in [(1, 9_000.0, 4_500.0), (1, 12_000.0, 7_400.0), (8, 87_000.0, 58_000.0)] {
            stretch(&[(short, count)]).learn(Took { ns, idle, most: ns });
        }
        stretch(&[(short, 1)]).learn(Took::exactly(5_000.0));
        stretch(&[(short, 40), (medium, 10)]).learn(Took { ns: 1.2e6, idle: 16_000.0, most: 1.2e6 });
        assert!((short.mean() / 5_000.0 - 1.0).abs() < 0.2, "{}", short.mean());
        assert!((medium.mean() / 1e5 - 1.0).abs() < 0.02, "{}", medium.mean());
    }

    #[test]
    fn what_was_timed_beside_others_is_known_as_far_as_they_may_have_slowed_it_down() {
        let after = |how: Bound, times: [f64; 2]| {
            let (narrow, varied) = (guess(), guess());
            narrow.weigh([0.2, 0.04, 0.008], 0.2);
            for n in 0..8 {
                stretch(&[(narrow, 1)]).bound(times[n % 2], how);
            }
            for _ in 0..3 {
                stretch(&[(varied, 1)]).learn(Took::exactly(90_000.0));
            }
            stretch(&[(varied, 28), (narrow, 30)]).learn(Took::exactly(3e6));
            narrow.mean()
        };
        let known = after(Bound::Timed, [4_900.0, 5_100.0]);
        assert!((known / 5_000.0 - 1.0).abs() < 0.02, "{known}");
        let others = [after(Bound::Timed, [2_500.0, 7_500.0]), after(Bound::AtOnce, [5_000.0; 2])];
        assert!(others.iter().all(|other| other / 5_000.0 > 1.04), "{others:?}");
    }

    #[test]
    fn a_kernel_that_becomes_dearer_is_followed_where_the_host_may_have_been_held_up() {
        let estimate = guess();
        let teach = |ns: f64| {
            stretch(&[(estimate, 30)]).learn(Took { ns: 30.0 * ns, idle: 60_000.0, most: 30.0 * ns })
        };
        for _ in 0..1_000 {
            teach(5_000.0);
        }
        for _ in 0..500 {
            teach(6_000.0);
        }
        assert!((estimate.mean() / 6_000.0 - 1.0).abs() < 0.05, "{}", estimate.mean());
    }

    #[test]
    fn launches_weigh_by_the_time_that_they_take() {
        let (narrow, wide) = (guess(), guess());
        narrow.weigh([0.1, 0.01, 0.001], 0.1);
        let [mean, square, _] = stretch(&[(narrow, 3), (wide, 1)]).weight(Load::default()).unwrap();
        assert!((mean - 0.325).abs() < 1e-9 && (square - 0.2575).abs() < 1e-9, "{mean}, {square}");
        let [mean, ..] = stretch(&[(narrow, 3), (wide, 1)])
            .weight(Load { always: Weight::steady(1.0), ..Load::default() })
            .unwrap();
        assert!((mean - (3.3 * 0.1 + 2.0) / 5.3).abs() < 1e-9, "beside one that fills the GPU: {mean}");
        let [mean, ..] =
            stretch(&[(narrow, 3), (wide, 1)]).weight(Load { times: 1.0, ..Load::default() }).unwrap();
        assert!((mean - (0.3 + 2.0) / 5.0).abs() < 1e-9, "in step with one like it: {mean}");
        assert_eq!(stretch(&[]).weight(Load::default()), None);
    }

    #[test]
    fn launches_that_were_charged_by_guess_are_made_good_once_the_price_is_known() {
        let estimate = guess();
        stretch(&[(estimate, 30)]).owe(30.0 * 5_000.0);
        let owed: f64 = (0..5).map(|_| stretch(&[(estimate, 1)]).learn(Took::exactly(100_000.0))).sum();
        assert!((owed / (30.0 * 95_000.0) - 1.0).abs() < 0.01, "{owed}");
        stretch(&[(estimate, 30)]).owe(30.0 * 5_000.0);
        assert_eq!(stretch(&[(estimate, 1)]).learn(Took::exactly(100_000.0)), 0.0, "these were not");
    }

    #[test]
    fn launches_that_were_charged_by_guess_are_made_good_by_bounds_too() {
        let estimate = guess();
        let bound = |ns: f64| {
            let stretch = stretch(&[(estimate, 1)]);
            stretch.owe(5_000.0);
            stretch.bound(ns, Bound::Most)
        };
        assert_eq!((bound(50_000.0), bound(40_000.0)), (0.0, 0.0), "not enough of them");
        assert_eq!(bound(45_000.0), 3.0 * 45_000.0 - 15_000.0);
        assert_eq!(bound(45_000.0), 0.0, "it was charged what it is known to take");
    }

    #[test]
    fn a_stretch_from_before_a_change_teaches_nothing() {
        let estimate = guess();
        let before = stretch(&[(estimate, 1)]);
        estimate.change(7_000);
        before.learn(Took::exactly(100_000.0));
        before.bound(100.0, Bound::Most);
        assert_eq!(estimate.price(), 7_000);
        stretch(&[(estimate, 1)]).learn(Took::exactly(8_000.0));
        assert!((estimate.mean() / 8_000.0 - 1.0).abs() < 0.01, "{}", estimate.mean());
    }

    #[test]
    fn launches_of_several_streams_say_what_they_weigh_and_nothing_else() {
        let narrow = guess();
        narrow.weigh([0.1, 0.01, 0.001], 0.1);
        let mut parts = stretch(&[(narrow, 1)]);
        parts.mix();
        assert!(
            parts.is_empty()
                && parts.weight(Load::default()).is_some_and(|[mean, ..]| (mean - 0.1).abs() < 1e-6)
        );
        parts.learn(Took::exactly(100.0));
        parts.bound(100.0, Bound::Most);
        parts.owe(5_000.0);
        assert_eq!(narrow.price(), 5_000);
        parts.clear();
        assert!(parts.weight(Load::default()).is_none());
    }

    #[test]
    fn a_stretch_of_too_many_signatures_says_so() {
        let mut stretch = Parts::with_room();
        assert!((0..PARTS).all(|_| stretch.add(guess(), 1)));
        assert!(!stretch.add(guess(), 1));
    }
}
