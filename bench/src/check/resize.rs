//! Resize: two busy tenants' shares are exchanged again and again. From the change to the first launch under it, by the node
//! manager's account; and by the tenants' progress how long it is until they get what they now request. Then the same of a memory
//! limit ([`step`]).

use std::io;
use std::time::{Duration, Instant};

use serde_json::json;

use super::finding::Finding;
use super::setup::{Setup, Wanted, tenant, wait};
use super::share;
use super::side::{Player, Progress, Side, Way};
use super::step;
use crate::resize::swap_shares;
use crate::rig::Control;
use crate::sample::{Spread, most};

/// The two shares, in percent, as [`swap_shares`] exchanges them.
const SHARES: [u16; 2] = [60, 30];

/// Between two looks at progress, and for how long after a change.
const LOOK: Duration = Duration::from_millis(40);
const STEP: (u64, u64) = (2, 600);

/// What counts as there: so many points off.
const NEAR: f64 = 5.0;

/// Work of half a millisecond, so that a look sees many units.
const WORK: &str = "100:132";

/// Measures it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let alone_per_s = share::alone(setup, &rig, &Side::Twin, WORK)?;
    let names = ["one", "two"];
    let mut players = Vec::new();
    for (name, percent) in names.iter().zip(SHARES) {
        let place = tenant(&mut control, Wanted::share(name, percent))?;
        players.push(Player::start(&rig, &Side::Twin, WORK, Way::Preload(&place))?);
    }
    players.iter_mut().try_for_each(|player| player.go(""))?;
    wait(setup.time(3, 800));
    let (mut took_us, mut missing, mut there_ms, mut steps) = (Vec::new(), 0, Vec::new(), Vec::new());
    for swap in 0..setup.of(8, 2) {
        for took in swap_shares(&mut control, names, swap)? {
            took.map_or_else(|| missing += 1, |us| took_us.push(us));
        }
        let wanted = if swap % 2 == 0 { [SHARES[1], SHARES[0]] } else { SHARES };
        let step = follow(setup, &mut players, alone_per_s)?;
        there_ms.push(arrived_ms(&step, wanted));
        steps.push(step);
    }
    for swap in 0..setup.of(100, 5) {
        for took in swap_shares(&mut control, names, swap)? {
            took.map_or_else(|| missing += 1, |us| took_us.push(us));
        }
    }
    players.clear();
    let memory = step::measure(setup, &rig, &mut control)?;
    let (first, there) = (Spread::of(&took_us), most(there_ms.iter().copied()));
    let line = format!(
        "{} changes, first launch under them after {:.0} us p50, {:.0} p99; {missing} followed by none; \
         shares within {NEAR} points after {there:.0} ms at most; {}",
        took_us.len(),
        first.median,
        first.p99,
        memory.told()
    );
    let figures = json!({"first_launch_us": first, "missing": missing, "there_ms": there_ms, "steps": steps, "memory": memory.figures()});
    let holds = Some(missing == 0 && there.is_finite() && memory.sound());
    Ok(Finding { holds, line, figures, ..Finding::default() })
}

/// Both tenants' shares at each look after a change: milliseconds since then, and percent.
fn follow(setup: &Setup, players: &mut [Player], alone_per_s: f64) -> io::Result<Vec<(f64, [f64; 2])>> {
    let look = |players: &mut [Player]| -> io::Result<[Progress; 2]> {
        Ok([players[0].look()?, players[1].look()?])
    };
    let (start, mut seen) = (Instant::now(), Vec::new());
    let mut before = look(players)?;
    while start.elapsed() < setup.time(STEP.0, STEP.1) {
        wait(LOOK);
        let now = look(players)?;
        let share = |n: usize| match now[n].at_ns > before[n].at_ns {
            true => 100.0 * now[n].rate_since(before[n]) / alone_per_s,
            false => 0.0,
        };
        seen.push((start.elapsed().as_secs_f64() * 1e3, [share(0), share(1)]));
        before = now;
    }
    Ok(seen)
}

/// When the mean of all that follows is as it should be for the first time; no number if it never is.
fn arrived_ms(step: &[(f64, [f64; 2])], wanted: [u16; 2]) -> f64 {
    let is_there = |rest: &[(f64, [f64; 2])]| {
        let mean = |n: usize| rest.iter().map(|(_, share)| share[n]).sum::<f64>() / rest.len() as f64;
        (0..2).all(|n| (mean(n) - f64::from(wanted[n])).abs() <= NEAR)
    };
    let first = (0..step.len()).find(|from| is_there(&step[*from..]));
    first.map_or(f64::NAN, |from| step[from].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_arrived_when_what_follows_is_as_it_should_be() {
        let step = [(40.0, [60.0, 30.0]), (80.0, [61.0, 29.0]), (120.0, [31.0, 58.0]), (160.0, [29.0, 61.0])];
        assert!((arrived_ms(&step, [30, 60]) - 120.0).abs() < 1e-9);
        assert!(arrived_ms(&step, [90, 5]).is_nan());
    }
}
