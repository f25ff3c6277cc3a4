//! How contexts share the GPU where nobody interferes: slices, switches, and who waits for whom.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::setup::{Setup, wait};
use super::super::share;
use super::super::side::{Player, SOON, Side, Way, number, numbers};
use super::Found;
use crate::rig::Rig;
use crate::sample::{Spread, quantile};

/// What two contexts launch to see each other's slices: short against any slice.
const UNIT: &str = "100:132";
const UNIT_NS: f64 = 100_000.0;

/// What they launch to see what switching loses: so long that the host keeps up whatever else it does.
const LONG: &str = "1000:132";

/// What a newcomer launches, and how long that takes, in microseconds.
const SMALL: &str = "20:132";
const SMALL_US: f64 = 20.0;

/// A pause between two units' ends that is no pause of the context's own.
const APART_NS: f64 = 5.0 * UNIT_NS;

/// How contexts that nobody keeps apart share the GPU.
pub struct Slices {
    /// A time slice, in microseconds.
    pub slice_us: f64,
    /// A switch from one to the next, in microseconds.
    pub switch_us: f64,
    /// What all together get done, of what one gets alone.
    sum: f64,
}

/// Slices, and what is lost by switching, with two contexts, three and four, none of which is Weir's.
pub fn slices(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let alone_per_s = share::alone(setup, &rig, &Side::Twin, LONG)?;
    let (slice_us, switch_us) = (found.defaults.slice_us as f64, found.defaults.switch_us as f64);
    for contexts in setup.of(2..=4, 2..=2) {
        let slices = slices_of(setup, &rig, contexts, alone_per_s)?;
        let expected = 100.0 * slice_us / (slice_us + switch_us);
        if contexts == 2 {
            found.add("slice_us", "time slice", "us", slice_us, slices.slice_us);
            found.add("switch_us", "switch between contexts", "us", switch_us, slices.switch_us);
        }
        let what = format!("{contexts} contexts together, of one alone");
        found.add("", &what, "percent", expected, 100.0 * slices.sum);
    }
    Ok(())
}

/// The same of two contexts, for who wants no more than that.
pub fn two_contexts(setup: &Setup, rig: &Rig) -> io::Result<Slices> {
    let alone_per_s = share::alone(setup, rig, &Side::Twin, LONG)?;
    slices_of(setup, rig, 2, alone_per_s)
}

fn slices_of(setup: &Setup, rig: &Rig, contexts: usize, alone_per_s: f64) -> io::Result<Slices> {
    let mut players = (0..contexts)
        .map(|_| Player::start(rig, &Side::Twin, UNIT, Way::Bare))
        .collect::<io::Result<Vec<_>>>()?;
    players.iter_mut().try_for_each(|player| player.go("stamps"))?;
    wait(setup.time(2, 600));
    players.iter_mut().try_for_each(Player::stop)?;
    let ends_ns = numbers(&players[0].ask("stamps", Duration::from_secs(2))?, "ends_ns")?;
    for player in &mut players {
        player.take_up(LONG)?;
        player.go("")?;
    }
    wait(setup.time(1, 200));
    let rates = share::rates(&mut players, 1, setup.time(2, 900))?;
    let sum = rates.iter().map(|rate| rate[0] / alone_per_s).sum::<f64>();
    let slice_us = run_us(&ends_ns);
    Ok(Slices { slice_us, switch_us: slice_us * (1.0 / sum - 1.0), sum })
}

/// The median time for which a context runs before another one does, in microseconds.
fn run_us(ends_ns: &[f64]) -> f64 {
    let mut runs = Vec::new();
    let mut began = None;
    for pair in ends_ns.windows(2) {
        if pair[1] - pair[0] > APART_NS {
            // A run begins a unit before its first end; the first one was under way already.
            runs.extend(began.map(|began| pair[0] - began + UNIT_NS));
            began = Some(pair[1]);
        }
    }
    runs.sort_by(f64::total_cmp);
    quantile(&runs, 0.5) / 1e3
}

/// How long a newcomer's first work waits for a filler's unit, neither of which is Weir's: rule 10 of the simulator's model. And how
/// long the filler then waits until that little work is done: whoever has no more gives its slice up.
pub fn arrivals(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let (slice_us, switch_us) = (found.defaults.slice_us as f64, found.defaults.switch_us as f64);
    for (unit, unit_us) in
        setup.of(&[("100:132", 100.0), ("1000:132", 1e3), ("10000:132", 1e4)][..], &[("1000:132", 1e3)][..])
    {
        let mut newcomer = Player::start(&rig, &Side::Twin, SMALL, Way::Bare)?;
        let sleeps: Vec<u64> = (0..setup.of(60, 10)).map(|n| 6_000 + 937 * (n % 11)).collect();
        let served = |newcomer: &mut Player| -> io::Result<f64> {
            let said = newcomer.ask(&format!("wake {}", json!(sleeps)), Duration::from_secs(3))?;
            let wakes = said["wakes"].as_array().map_or(&[][..], Vec::as_slice);
            let took = wakes.iter().filter_map(|wake| Some((wake[1].as_f64()? - wake[0].as_f64()?) / 1e3));
            Ok(Spread::of(&took.collect::<Vec<_>>()).median)
        };
        let alone = served(&mut newcomer)?;
        let mut filler = Player::start(&rig, &Side::Twin, unit, Way::Bare)?;
        filler.go("stamps")?;
        wait(Duration::from_millis(200));
        let waited = served(&mut newcomer)? - alone;
        filler.stop()?;
        let ends_ns = numbers(&filler.ask("stamps", Duration::from_secs(2))?, "ends_ns")?;
        // More is queued than a slice holds: half a slice is left on average, and then one switch.
        let expected = slice_us / 2.0 + switch_us;
        found.add(
            "",
            &format!("a newcomer waits beside units of {unit_us} us"),
            "us, median",
            expected,
            waited,
        );
        let what = format!("and keeps it from units of {unit_us} us");
        let (expected, kept) = (SMALL_US + 2.0 * switch_us, interruption_us(&ends_ns));
        if kept.is_finite() {
            found.add("", &what, "us, median", expected, kept);
        }
    }
    Ok(())
}

/// The median of what interrupts units, in microseconds: where one ended later than it would have by itself, by more than the least that a
/// switch may take and what lengths differ by. By itself one takes as long as the shortest tenth do. Not a number if nothing did.
fn interruption_us(ends_ns: &[f64]) -> f64 {
    const LEAST_NS: f64 = 20_000.0;
    let mut apart: Vec<f64> = ends_ns.windows(2).map(|pair| pair[1] - pair[0]).collect();
    apart.sort_by(f64::total_cmp);
    let unit_ns = quantile(&apart, 0.1);
    let interrupted = apart.partition_point(|apart| *apart <= 1.01 * unit_ns + LEAST_NS);
    (quantile(&apart[interrupted..], 0.5) - unit_ns) / 1e3
}

/// What is left to a filler beside a kernel of one block that waits, as a collective's does for a peer that is late: where contexts run
/// in slices the waiting counts as work.
pub fn beside_a_spinner(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let percent = 100.0 * left_beside_a_spinner(setup, &setup.rig()?)?;
    let (slice_us, switch_us) = (found.defaults.slice_us as f64, found.defaults.switch_us as f64);
    let expected = 50.0 * slice_us / (slice_us + switch_us);
    found.add("", "a filler beside one block that waits, of one alone", "percent", expected, percent);
    Ok(())
}

/// The same as a part of what the filler gets done alone.
pub fn left_beside_a_spinner(setup: &Setup, rig: &Rig) -> io::Result<f64> {
    Ok(left_beside(setup, rig, "spin")?.left)
}

/// What is left to a filler beside a stream that waits for a word, with a unit behind it, as launches wait that Weir does not let go;
/// and how long after the word that unit is done.
pub fn beside_a_wait(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let expected_us = SMALL_US + found.defaults.submit_to_start_us as f64;
    for (order, stream) in [("closed", "a stream"), ("closed-legacy", "the legacy stream")] {
        // A driver may refuse waits, and the player ends with that.
        let Ok(beside) = left_beside(setup, &rig, order) else { return Ok(()) };
        let what = format!("a filler beside {stream} that waits for a word, of one alone");
        found.add("", &what, "percent", 100.0, 100.0 * beside.left);
        let what = format!("and from the word until {SMALL_US} us behind it are done");
        found.add("", &what, "us", expected_us, number(&beside.said, "released_us")?);
    }
    Ok(())
}

/// What came of a program beside a filler.
struct Beside {
    left: f64, // of what the filler gets done alone
    said: Value,
}

/// A filler beside a program that was given an order that takes its time.
fn left_beside(setup: &Setup, rig: &Rig, order: &str) -> io::Result<Beside> {
    let mut filler = Player::start(rig, &Side::Twin, LONG, Way::Bare)?;
    let alone_per_s = share::alone_of(setup, &mut filler)?;
    let mut other = Player::start(rig, &Side::Twin, SMALL, Way::Bare)?;
    let takes = setup.time(3, 1_500);
    other.tell(&format!("{order} {}", takes.as_millis()))?;
    filler.go("")?;
    wait(takes / 3);
    let rates = share::rates(std::slice::from_mut(&mut filler), 1, takes / 3)?;
    filler.stop()?;
    let said = other.answer(takes + SOON)?;
    Ok(Beside { left: rates[0][0] / alone_per_s, said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_lasts_from_one_pause_to_the_next() {
        let unit = |n: u32| f64::from(n) * UNIT_NS;
        // 20 units, a pause of 22, 20 units, a pause, and the beginning of another run.
        let ends: Vec<f64> = (0..20).chain(42..62).chain(84..90).map(unit).collect();
        assert!((run_us(&ends) - 2_000.0).abs() < 1.0, "{}", run_us(&ends));
        assert!(run_us(&[]).is_nan());
    }

    #[test]
    fn what_interrupts_is_what_lies_between_two_units_beyond_one() {
        let mut at = 0.0;
        let end = |n: u32| {
            at += if n.is_multiple_of(20) { 320_000.0 } else { UNIT_NS };
            at
        };
        let ends: Vec<f64> = (1..100).map(end).collect();
        assert!((interruption_us(&ends) - 220.0).abs() < 1e-6);
        assert!(interruption_us(&ends[..5]).is_nan(), "nobody came");
        assert!(interruption_us(&[]).is_nan());
    }
}
