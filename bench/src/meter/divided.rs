//! What programs that run at the same time (MPS) may be off by, although each of their kernels is known as well as it has to be.
//!
//! There the charge divides each moment by the weights of who is on the GPU then. No event tells of a moment, only of stretches of
//! many launches: how long a stretch held how much of the GPU follows from its launches' prices. Where nobody ever ran alone these
//! were never measured by themselves. So the part that is charged lies between those that come of prices which are off by as much as
//! they may be ([`super::limits::signature_bar`]), and of the program's streams in step, apart, or having nothing to do with each other.

use super::cases::Case;
use super::limits;

/// What is held of the GPU, and for how much of the time by itself.
#[derive(Clone, Copy)]
struct Held {
    weight: f64,
    /// Part of the SMs, by which others become slower.
    sms: f64,
    often: f64,
}

impl Held {
    /// Both at once, which have nothing to do with each other.
    fn and(self, other: Self) -> Self {
        let often = self.often * other.often;
        Self { weight: self.weight + other.weight, sms: self.sms + other.sms, often }
    }

    fn times(self, by: f64) -> Self {
        Self { weight: self.weight * by, sms: self.sms * by, ..self }
    }
}

/// How the streams of a program run beside each other.
#[derive(Clone, Copy)]
enum Streams {
    InStep,
    AsTheyCome,
    Apart,
}

/// Moments in which streams that run apart are looked at.
const MOMENTS: u32 = 64;

/// What the charge of `case` beside `other` may be off by, in percent.
pub fn of(case: &Case, other: &Case) -> f64 {
    let (ours, theirs) = (ways(case), ways(other));
    let parts = ours.iter().flat_map(|ours| theirs.iter().map(|theirs| part(ours, theirs)));
    let (least, most) =
        parts.fold((1.0_f64, 0.0_f64), |(least, most), part| (least.min(part), most.max(part)));
    limits::between(least, most)
}

/// The program with each of its prices too low or too high by as much as it may be, and with the streams of all its processes in each
/// order.
fn ways(case: &Case) -> Vec<Vec<Held>> {
    let streams = case.streams * case.processes;
    let orders: &[Streams] = match streams {
        1 => &[Streams::InStep],
        _ => &[Streams::InStep, Streams::AsTheyCome, Streams::Apart],
    };
    let corners = 0..1_u32 << case.mix.len();
    let ways = corners.flat_map(|corner| orders.iter().map(move |order| (corner, order)));
    ways.map(|(corner, order)| together(&one_stream(case, corner), streams, *order)).collect()
}

/// What one stream holds; a bit of `corner` says of each kernel whether its price is too high.
fn one_stream(case: &Case, corner: u32) -> Vec<Held> {
    let held = limits::kernels(case).enumerate().map(|(n, (kernel, count))| {
        let off = limits::signature_bar(kernel.mean_us()) / 100.0;
        let off = if corner & (1 << n) == 0 { -off } else { off };
        let sms = limits::part_of_sms(case, kernel);
        let weight = sms.max(f64::from(kernel.bandwidth) / 100.0);
        Held { weight, sms, often: kernel.mean_us() * count * (1.0 + off) }
    });
    let held: Vec<Held> = held.collect();
    let all: f64 = held.iter().map(|held| held.often).sum();
    held.into_iter().map(|held| Held { often: held.often / all, ..held }).collect()
}

/// What so many streams hold together.
fn together(one: &[Held], streams: usize, order: Streams) -> Vec<Held> {
    let count = streams as f64;
    match order {
        Streams::InStep => one.iter().map(|held| held.times(count)).collect(),
        Streams::AsTheyCome => (1..streams).fold(one.to_vec(), |all, _| {
            all.iter().flat_map(|all| one.iter().map(move |one| all.and(*one))).collect()
        }),
        Streams::Apart => {
            let nothing = Held { weight: 0.0, sms: 0.0, often: 1.0 };
            let at = |moment: f64| {
                let held = (0..streams).map(|n| held_at(one, moment + n as f64 / count));
                let all = held.fold(nothing, |all, held| all.and(Held { often: 1.0, ..held }));
                Held { often: 1.0 / f64::from(MOMENTS), ..all }
            };
            (0..MOMENTS).map(|n| at((f64::from(n) + 0.5) / f64::from(MOMENTS))).collect()
        }
    }
}

/// What a stream holds in so much of its round.
fn held_at(one: &[Held], moment: f64) -> Held {
    let mut left = moment.fract();
    let at = one.iter().find(|held| {
        left -= held.often;
        left < 0.0
    });
    at.or(one.last()).copied().unwrap_or(Held { weight: 0.0, sms: 0.0, often: 1.0 })
}

/// The part of the time that is one program's, by weight. Kernels that want more SMs than there are all run slower, by the same factor:
/// so two programs that have nothing to do with each other meet as often as they would without that, and for so much longer.
fn part(ours: &[Held], theirs: &[Held]) -> f64 {
    let met = ours.iter().flat_map(|ours| {
        theirs.iter().map(|theirs| {
            let both = ours.and(*theirs);
            (ours.weight / both.weight, both.often * both.sms.max(1.0))
        })
    });
    let (own, all) = met.fold((0.0, 0.0), |(own, all), (part, time)| (own + time * part, all + time));
    own / all
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::*;

    fn case(name: &str) -> &'static Case {
        CASES.iter().find(|case| case.name == name).unwrap()
    }

    #[test]
    fn time_is_divided_by_weight_and_wide_kernels_meet_for_longer() {
        let held = |weight: f64, often: f64| Held { weight, sms: weight, often };
        let half = |weight: f64| vec![held(weight, 1.0)];
        assert!((part(&half(0.1), &half(0.3)) - 0.25).abs() < 1e-12);
        // Half of its work wants all of the GPU, beside a neighbour that wants all of it, too: it takes twice as long.
        let mixed = vec![held(1.0, 0.5), held(0.0, 0.5)];
        assert!((part(&mixed, &half(1.0)) - 0.5 * 2.0 / 3.0).abs() < 1e-12);
        // One that takes bandwidth from few SMs has its part and makes nobody slower.
        let bound = vec![Held { sms: 0.0, ..held(1.0, 1.0) }];
        assert!((part(&mixed, &bound) - 0.5 * 0.5).abs() < 1e-12);
    }

    #[test]
    fn streams_hold_the_same_on_average_in_whatever_order_they_run() {
        let one = one_stream(case("two streams"), 0);
        for order in [Streams::InStep, Streams::AsTheyCome, Streams::Apart] {
            let held = together(&one, 2, order);
            let mean_of = |held: &[Held]| held.iter().map(|held| held.weight * held.often).sum::<f64>();
            let (mean, alone) = (mean_of(&held), mean_of(&one));
            assert!((held.iter().map(|held| held.often).sum::<f64>() - 1.0).abs() < 1e-9);
            assert!((mean - 2.0 * alone).abs() < 0.02, "{mean}");
        }
    }

    #[test]
    fn of_kernels_that_weigh_the_same_it_does_not_matter_what_they_take() {
        let off = of(case("tiny"), case("huge"));
        assert!(off < 1e-9, "{off}");
        let off = of(case("mixed"), case("graph"));
        assert!((3.0..4.0).contains(&off), "{off}");
    }
}
