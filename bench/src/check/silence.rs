//! Silence: from a latency tenant's first launch to the last work of a filler's that the GPU did before the tenant was served, by an
//! event behind each unit of the filler's; and how much later the tenant's own work was done than alone. Units from 10 us to 10 ms, and
//! graphs. What may be left: the cap and a unit that are under way, the rest of the driver's slice, two switches.

use std::io;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use weir_nodemgr::control::schema::ClassName;

use super::calibration::two_contexts;
use super::finding::{Figure, Finding};
use super::player::work::Work;
use super::setup::{Setup, Wanted, tenant, wait};
use super::side::{Player, Side, Way, numbers};
use crate::live::Random;
use crate::rig::Control;
use crate::sample::{Spread, most};

/// What the filler launches.
const UNITS: [&str; 6] = ["10:132", "100:132", "1000:132", "10000:132", "graph:100:10", "graph:100:50"];
const QUICK: [&str; 2] = ["100:132", "graph:100:10"];

/// The tenant's burst: longer than a slice, so that the filler comes back into it if the driver lets it.
const BURST: &str = "3000:132";

/// The tenant sleeps so long, from and to, in microseconds.
const SLEEP_US: (u64, u64) = (6_000, 16_000);

/// What a filler may queue while a better may wake.
const CAP_US: f64 = weir_policy::SHORT_CAP.0 as f64 / 1e3;

/// Slices and switches that are longer were misread: five times what the simulated GPU's defaults have of a card. They are no
/// excuse for a filler.
const MOST_SLICE_US: f64 = 10_000.0;
const MOST_SWITCH_US: f64 = 1_000.0;

/// A filler that launches one unit.
#[derive(Clone, Debug, Serialize)]
struct Case {
    unit: &'static str,
    unit_us: f64,
    wakes: usize,
    /// What the filler got of the GPU between the first wake and the last: of one that never runs silence says nothing.
    filler_percent: f64,
    silent_us: Spread,
    delay_us: Spread,
    /// What may be left: cap, unit, slice and two switches, the latter two as measured on this card before.
    limit_us: f64,
}

/// Measures all of it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let slices = two_contexts(setup, &setup.rig()?)?;
    let driver_us = slices.slice_us.min(MOST_SLICE_US) + 2.0 * slices.switch_us.clamp(0.0, MOST_SWITCH_US);
    let mut cases = Vec::new();
    for unit in setup.of(&UNITS[..], &QUICK[..]) {
        cases.push(measure(setup, unit, driver_us)?);
        setup.note(&found(&cases))?;
    }
    Ok(found(&cases))
}

/// Beside a filler of these units; what the driver's slice and two switches take is known.
fn measure(setup: &Setup, unit: &'static str, driver_us: f64) -> io::Result<Case> {
    let rig = setup.rig_with("", "policy = \"weir\"\n")?;
    let mut control = Control::of(&rig)?;
    let online = tenant(&mut control, Wanted::class("online", ClassName::Latency, Some(50)))?;
    let offline = tenant(&mut control, Wanted::class("offline", ClassName::Filler, None))?;
    let mut waker = Player::start(&rig, &Side::Twin, BURST, Way::Preload(&online))?;
    let sleeps = sleeps(setup.of(150, 15));
    let alone = wakes(&mut waker, &sleeps[..sleeps.len() / 5 + 2])?;
    let burst_us = Spread::of(&alone.iter().map(|[from, to]| (to - from) / 1e3).collect::<Vec<_>>()).median;
    let mut filler = Player::start(&rig, &Side::Twin, unit, Way::Preload(&offline))?;
    filler.go("stamps")?;
    wait(setup.time(2, 500)); // prices are learnt
    wakes(&mut waker, &sleeps[..sleeps.len() / 5 + 2])?;
    let beside = wakes(&mut waker, &sleeps)?;
    filler.stop()?;
    let ends_ns = numbers(&filler.ask("stamps", Duration::from_secs(5))?, "ends_ns")?;
    let unit_us = unit.parse::<Work>().map_or(f64::NAN, |work| work.unit_us());
    let silent: Vec<f64> = beside.iter().map(|wake| silent_us(*wake, &ends_ns)).collect();
    let delays: Vec<f64> = beside.iter().map(|[from, to]| (to - from) / 1e3 - burst_us).collect();
    Ok(Case {
        unit,
        unit_us,
        wakes: beside.len(),
        filler_percent: 100.0 * unit_us * 1e3 * work_between(&beside, &ends_ns),
        silent_us: Spread::of(&silent),
        delay_us: Spread::of(&delays),
        limit_us: CAP_US + unit_us + driver_us,
    })
}

/// From the launch to the end of the filler's last unit before the burst was done.
fn silent_us([launched, ended]: [f64; 2], ends_ns: &[f64]) -> f64 {
    let within = ends_ns.iter().filter(|end| (launched..=ended).contains(*end));
    within.fold(launched, |last, end| last.max(*end)) / 1e3 - launched / 1e3
}

/// Units of the filler's in a nanosecond between the first wake and the last.
fn work_between(wakes: &[[f64; 2]], ends_ns: &[f64]) -> f64 {
    let (Some([from, _]), Some([_, to])) = (wakes.first(), wakes.last()) else { return f64::NAN };
    ends_ns.iter().filter(|end| (*from..=*to).contains(*end)).count() as f64 / (to - from)
}

fn wakes(waker: &mut Player, sleeps_us: &[u64]) -> io::Result<Vec<[f64; 2]>> {
    let takes = Duration::from_micros(sleeps_us.iter().sum::<u64>() + 5_000 * sleeps_us.len() as u64);
    let said = waker.ask(&format!("wake {}", json!(sleeps_us)), takes)?;
    let wakes = said["wakes"]
        .as_array()
        .map(|wakes| wakes.iter().filter_map(|wake| Some([wake[0].as_f64()?, wake[1].as_f64()?])).collect());
    wakes.ok_or_else(|| io::Error::other(format!("no wakes: {said}")))
}

/// Nobody can foretell when the filler must go; the same in each run.
fn sleeps(count: usize) -> Vec<u64> {
    let mut random = Random(1);
    (0..count).map(|_| SLEEP_US.0 + random.next() % (SLEEP_US.1 - SLEEP_US.0)).collect()
}

impl Case {
    fn of_limit_percent(&self) -> f64 {
        100.0 * self.silent_us.p99 / self.limit_us
    }
}

fn found(cases: &[Case]) -> Finding {
    let told = cases.iter().map(|case| {
        let Case { unit, silent_us, delay_us, limit_us, filler_percent, .. } = case;
        format!(
            "{unit} ({filler_percent:.0} % of the time): silent after {:.0} us p50, {:.0} p99 (limit {limit_us:.0}), start {:.0} us later",
            silent_us.median, silent_us.p99, delay_us.median
        )
    });
    let worst = most(cases.iter().map(Case::of_limit_percent));
    // Of a filler that never ran, or a tenant that never woke, there is no silence to be told.
    let seen = cases
        .iter()
        .all(|case| case.wakes > 0 && case.silent_us.max.is_finite() && case.filler_percent > 0.0);
    let figures: Value = json!({"cases": cases});
    Finding {
        holds: Some(seen && !cases.is_empty()),
        line: told.collect::<Vec<_>>().join("; "),
        bars: vec![Figure::of("gpu.silence_of_limit_percent", worst)],
        figures,
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_begins_with_the_last_unit_before_the_burst_was_done() {
        let ends = [500_000.0, 1_200_000.0, 1_400_000.0, 9_000_000.0];
        assert!((silent_us([1_000_000.0, 4_000_000.0], &ends) - 400.0).abs() < 1e-6);
        assert!(silent_us([2_000_000.0, 4_000_000.0], &ends).abs() < 1e-6, "nothing of it was there");
    }

    #[test]
    fn the_silence_of_a_filler_that_never_runs_does_not_hold_on_any_gpu() {
        let none = Spread::of(&[0.0]);
        let case = |filler_percent| Case {
            unit: UNITS[0],
            unit_us: 10.0,
            wakes: 5,
            filler_percent,
            silent_us: none,
            delay_us: none,
            limit_us: 2_000.0,
        };
        assert_eq!(found(&[case(30.0)]).holds, Some(true));
        assert_eq!(found(&[case(30.0), case(0.0)]).holds, Some(false));
        assert_eq!(found(&[]).holds, Some(false));
    }
}
