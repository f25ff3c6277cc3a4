//! How near a meter can come that knows events and clocks and nothing else. Where that is further off than the bar, it is
//! the limit that a case is held to (design 10).

use super::cases::{Case, KERNELS, Rhythm};
use crate::rig::Kernel;

/// The bar, in percent (design 10).
pub const BAR: f64 = 1.0;

/// `cuEventElapsedTime` resolves about so much.
const EVENT_US: f64 = 0.5;

/// SMs of the simulated GPU.
const SMS: f64 = 108.0;

/// A unit as long as this is waited for by nobody: the driver slices it (docs/time.md).
const SLICED_US: f64 = 20_000.0;

/// What cannot be told of a case's true use, in percent of it, if that is more than the bar.
pub fn of(case: &Case, beside: Option<&Case>, mode: &str) -> f64 {
    let worst = events(case).max(beside.map_or(0.0, |other| overlap(case, other, mode)));
    worst.max(BAR)
}

/// A program that waits for its work is measured from an idle stream to an idle stream, each time by two events.
fn events(case: &Case) -> f64 {
    match case.rhythm {
        Rhythm::Steps | Rhythm::Sparse => 100.0 * EVENT_US / time_us(case),
        _ => 0.0,
    }
}

/// An event says how far a stream has come, not which streams ran meanwhile. So beside others that are on the GPU at any time,
/// several streams took anything between what they take one after the other and what they take all at once, and
/// whoever is beside them the rest.
fn overlap(case: &Case, other: &Case, mode: &str) -> f64 {
    let (many, one) = if case.streams > 1 { (case, other) } else { (other, case) };
    if many.streams == 1 || longest_us(one) < SLICED_US {
        return 0.0;
    }
    let streams = many.streams as f64;
    if mode == "time-slice" {
        return between(1.0 / streams, 1.0);
    }
    let part = |ours: f64| ours / (ours + weight(one));
    let (least, most) = (part(weight(many)), part(streams * weight(many)));
    if case.streams > 1 { between(least, most) } else { between(1.0 - most, 1.0 - least) }
}

/// How far off the best guess may be of something that lies anywhere between these, in percent of what it is.
fn between(least: f64, most: f64) -> f64 {
    100.0 * (most - least) / (most + least)
}

fn kernels(case: &Case) -> impl Iterator<Item = (&'static Kernel, f64)> {
    let row = |(name, count): &(&str, usize)| {
        KERNELS.iter().find(|kernel| kernel.name == *name).map(|kernel| (kernel, *count as f64))
    };
    case.mix.iter().filter_map(row)
}

fn time_us(case: &Case) -> f64 {
    kernels(case).map(|(kernel, count)| kernel.mean_us() * count).sum()
}

fn longest_us(case: &Case) -> f64 {
    kernels(case).map(|(kernel, _)| kernel.time_us).fold(0.0, f64::max)
}

/// Part of the SMs that it holds while it runs.
fn weight(case: &Case) -> f64 {
    let held = |(kernel, count): (&Kernel, f64)| {
        kernel.mean_us() * count * (f64::from(kernel.blocks) / SMS).min(1.0)
    };
    kernels(case).map(held).sum::<f64>() / time_us(case)
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::*;

    fn case(name: &str) -> &'static Case {
        CASES.iter().find(|case| case.name == name).unwrap()
    }

    fn limit(name: &str, beside: Option<&str>, mode: &str) -> f64 {
        of(case(name), beside.map(case), mode)
    }

    #[test]
    fn what_a_program_waits_for_is_told_apart_to_half_a_microsecond() {
        assert!((limit("sparse tiny", None, "mps") - 25.0).abs() < 1e-9);
        assert_eq!(limit("sparse", None, "time-slice"), BAR, "half a percent of 100 us");
        assert_eq!(limit("tiny", None, "time-slice"), BAR, "it is backlogged");
    }

    #[test]
    fn several_streams_beside_work_that_the_driver_slices_lie_between_their_longest_and_their_sum() {
        assert!((limit("four streams", Some("huge"), "time-slice") - 60.0).abs() < 1e-9);
        assert!((limit("huge", Some("four streams"), "time-slice") - 60.0).abs() < 1e-9);
        let mps = limit("four streams", Some("huge"), "mps");
        assert!((30.0..35.0).contains(&mps), "{mps}: 0.55 of the SMs at once, or four times as much");
        assert_eq!(limit("four streams", Some("mixed"), "time-slice"), BAR, "they take turns");
        assert_eq!(limit("varied", Some("steps"), "mps"), BAR);
    }
}
