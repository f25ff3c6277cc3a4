//! How near a meter can come that knows events and clocks and nothing else. Where that is further off than the bar, it is
//! the limit that a case is held to (design 10).

use weir_simgpu_link::config;

use super::cases::{Case, HALF, KERNELS, Rhythm};
use super::divided;
use crate::rig::Kernel;

/// The bar, in percent (design 10).
pub const BAR: f64 = 1.0;

/// The same of a signature's price: so many percent, or microseconds.
const OF_SIGNATURE: f64 = 10.0;
const SIGNATURE_US: f64 = 1.0;

/// `cuEventElapsedTime` resolves about so much.
const EVENT_US: f64 = 0.5;

/// What a switch from one context to another takes on the simulated GPU.
const SWITCH_US: f64 = config::SWITCH_US as f64;

/// When a burst began is known if no more doubt is left than the shortest switch takes (docs/time.md).
const CLEAR_US: f64 = 40.0;

/// A turn of each of two programs that request a half each (docs/time.md).
const TURN_US: f64 = 5_000.0;

/// A unit as long as this is waited for by nobody: the driver slices it (docs/time.md).
const SLICED_US: f64 = 20_000.0;

/// What cannot be told of a case's true use, in percent of it, if that is more than the bar.
pub fn of(case: &Case, beside: Option<&Case>, mode: &str) -> f64 {
    let beside = beside.map_or(0.0, |other| match mode {
        "time-slice" => in_turns(case, other),
        _ => divided::of(case, other),
    });
    events(case).max(beside).max(BAR)
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
/// whoever is beside them the rest. Where they take turns, it is when a turn of theirs began that may not be known.
fn in_turns(case: &Case, other: &Case) -> f64 {
    let (many, one) = if case.streams > 1 { (case, other) } else { (other, case) };
    if many.streams == 1 {
        0.0
    } else if longest_us(one) >= SLICED_US {
        between(1.0 / many.streams as f64, 1.0)
    } else if case.streams > 1 && kernels(case).any(|(kernel, _)| doubt_us(case, kernel) > CLEAR_US) {
        100.0 * SWITCH_US / TURN_US
    } else {
        0.0
    }
}

/// A turn begins with one launch of each stream, all of which wait for the switch; how much longer than by itself one of them took
/// beside the others nobody knows, if these may want all of the GPU each.
fn doubt_us(case: &Case, kernel: &Kernel) -> f64 {
    kernel.mean_us() * (part_of_sms(case, kernel) + case.streams as f64 - 2.0).max(0.0)
}

/// The bar of a signature that takes so long, in percent.
pub fn signature_bar(us: f64) -> f64 {
    OF_SIGNATURE.max(100.0 * SIGNATURE_US / us)
}

/// How far off a kernel's price may be, in percent: the bar, or what cannot be told if that is more. A launch that never ran
/// without other streams of its program was never seen by itself: beside the widest kernels of the others it takes longer by as
/// much as they want more SMs than there are, and beside some that want little no longer at all. Which of both it was, events
/// do not say; nor how long the program was on the GPU at all, beside work that the driver slices.
pub fn of_signature(case: &Case, beside: Option<&Case>, mode: &str, kernel: &Kernel) -> f64 {
    let bar = signature_bar(kernel.mean_us());
    if case.streams == 1 {
        return bar;
    }
    let widest = |case: &Case| kernels(case).map(|(kernel, _)| part_of_sms(case, kernel)).fold(0.0, f64::max);
    let mut weight = part_of_sms(case, kernel) + (case.streams - 1) as f64 * widest(case);
    weight += beside.filter(|_| mode != "time-slice").map_or(0.0, widest);
    let turns = beside.filter(|other| mode == "time-slice" && longest_us(other) >= SLICED_US);
    let most = weight.max(1.0) * turns.map_or(1.0, |_| case.streams as f64);
    bar.max(between(1.0, most))
}

/// How far off the best guess may be of something that lies anywhere between these, in percent of what it is.
pub fn between(least: f64, most: f64) -> f64 {
    100.0 * (most - least) / (most + least)
}

/// The kernels of a program, and how many of each.
pub fn kernels(case: &Case) -> impl Iterator<Item = (&'static Kernel, f64)> {
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

/// Part of the SMs that it wants.
pub fn part_of_sms(case: &Case, kernel: &Kernel) -> f64 {
    (f64::from(kernel.blocks) / f64::from(case.sms)).min(1.0)
}

/// What a kernel of this case takes by itself: in a green context it has no more SMs than that.
pub fn alone_us(case: &Case, kernel: &Kernel) -> f64 {
    let all = f64::from(case.sms);
    let sms = if case.rhythm == Rhythm::Green { f64::from(HALF) } else { all };
    kernel.mean_us() * (part_of_sms(case, kernel) * all / sms).max(1.0)
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
    fn a_kernel_is_told_apart_to_a_tenth_or_a_microsecond_unless_other_streams_are_always_beside_it() {
        let limit = |name: &str, beside: Option<&str>, mode, kernel: usize| {
            of_signature(case(name), beside.map(case), mode, &KERNELS[kernel])
        };
        assert_eq!(limit("mixed", Some("graph"), "mps", 2), 10.0);
        assert_eq!(limit("mixed", None, "time-slice", 1), 20.0, "a microsecond of 5");
        assert!(
            (limit("two streams", None, "mps", 2) - 100.0 / 3.0).abs() < 1e-9,
            "twice as long, or as long"
        );
        assert!(limit("four streams", Some("huge"), "time-slice", 2) > 80.0);
    }

    #[test]
    fn half_the_sms_take_twice_as_long_for_a_kernel_that_wants_them_all() {
        let green = |kernel: usize| alone_us(case("green context"), &KERNELS[kernel]);
        assert_eq!((green(2), green(3)), (200.0, 300.0));
        assert_eq!(alone_us(case("mixed"), &KERNELS[4]), 5_000.0);
    }

    #[test]
    fn several_streams_beside_work_that_the_driver_slices_lie_between_their_longest_and_their_sum() {
        assert!((limit("four streams", Some("huge"), "time-slice") - 60.0).abs() < 1e-9);
        assert!((limit("huge", Some("four streams"), "time-slice") - 60.0).abs() < 1e-9);
        assert_eq!(limit("mixed", Some("tiny"), "time-slice"), BAR);
        assert_eq!(
            limit("mixed", Some("four streams"), "time-slice"),
            BAR,
            "its turns begin with one launch"
        );
    }

    #[test]
    fn nothing_is_hidden_of_processes_of_one_tenant_which_can_be_measured_in_turns() {
        assert_eq!(limit("two processes of long", None, "time-slice"), BAR);
    }

    #[test]
    fn the_switch_at_the_beginning_of_a_turn_of_several_streams_may_be_their_work() {
        assert_eq!(limit("four streams", Some("mixed"), "time-slice"), 100.0 * SWITCH_US / TURN_US);
        assert!(
            doubt_us(case("two streams"), &KERNELS[3]) < CLEAR_US,
            "a narrow one tells it, beside one other"
        );
        assert!(
            doubt_us(case("two streams"), &KERNELS[2]) > CLEAR_US,
            "one that may have shared the GPU does not"
        );
    }

    #[test]
    fn at_the_same_time_prices_that_may_be_off_divide_the_time_otherwise() {
        assert_eq!(limit("mixed", Some("tiny"), "mps"), BAR, "tiny ones weigh little, whatever they take");
        assert!((1.5..2.5).contains(&limit("varied", Some("steps"), "mps")));
        assert!((2.0..4.0).contains(&limit("four streams", Some("huge"), "mps")));
    }
}
