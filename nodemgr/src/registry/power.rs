//! What the registry keeps of the GPUs' power, as NVML tells it about once a second (gpu-truths, rule 17): whether power or heat
//! holds the clocks back, for the policies and as events, and whose work has taken how much energy.
//!
//! What a GPU takes beyond what it takes at rest is divided from reading to reading, by the SM time that was charged to each
//! tenant meanwhile. At rest is the least mean between two readings so far: until the GPU has rested that is too much, and too
//! little is divided. What processes without a budget take is divided with the rest.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_policy::Power as Signal;
use weir_protocol::units::Nanos;

use super::Registry;
use crate::calibration::Draw;
use crate::control::PowerStats;
use crate::events::{About, What};
use crate::gpus::{GpuReading, Power, STALE};

/// Free readings in a row before that is told: near the limit the reasons come and go.
const FREE_READINGS: u32 = 3;

/// More than any card draws, in mW: what would take more was not measured.
const MOST_MW: u64 = 10_000_000;

const NS_PER_S: u128 = Duration::from_secs(1).as_nanos();

/// What follows where power or heat holds clocks back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerRule {
    /// Policies hear of it.
    #[default]
    BackOff,
    /// It is told of, and no more.
    Report,
}

impl PowerRule {
    /// As it is written in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BackOff => "back_off",
            Self::Report => "report",
        }
    }
}

/// The GPUs' power.
#[derive(Debug, Default)]
pub(super) struct Powered {
    rule: PowerRule,
    calibrated: Option<Draw>, // each card, by the node's calibration file
    gpus: BTreeMap<usize, Gpu>,
}

#[derive(Debug, Default)]
struct Gpu {
    last: Power,
    energy: Option<(Nanos, u64)>, // when it was divided last, and what the counter said
    mean_mw: Option<u64>,         // between the last two readings
    idle_mw: Option<u64>,
    told: bool, // that the clocks are held back
    free: u32,  // readings in a row
}

impl Powered {
    /// What a policy hears of a GPU's clocks.
    pub(super) fn signal(&self, gpu: usize, now: Nanos) -> Option<Signal> {
        let last = &self.gpus.get(&gpu)?.last;
        let slowed_permille = last.slowed_permille()?;
        let fresh = u128::from(now.since(last.at).0) <= STALE.as_nanos();
        (fresh && self.rule == PowerRule::BackOff).then_some(Signal { slowed_permille, read_at: last.at })
    }
}

impl Gpu {
    /// Takes a reading in; says what has changed for those who are told.
    fn note(&mut self, power: Power) -> Option<What> {
        self.last = power;
        let held = power.reasons?.held_back();
        self.free = if held.is_any() { 0 } else { self.free.saturating_add(1) };
        if held.is_any() && !self.told {
            self.told = true;
            let (draw_mw, limit_mw) = (power.draw_mw, power.limit_mw);
            return Some(What::ClocksHeldBack { reasons: held.names(), draw_mw, limit_mw });
        }
        let over = self.told && self.free >= FREE_READINGS;
        self.told &= !over;
        over.then_some(What::ClocksFree)
    }

    /// What it has taken beyond rest since this was last asked, in mJ; none where that cannot be told.
    fn above_rest(&mut self) -> Option<u64> {
        self.mean_mw = None;
        let (now, counter) = (self.last.at, self.last.energy_mj?);
        let (then, before) = self.energy.replace((now, counter))?;
        let elapsed = u128::from(now.since(then).0.max(1));
        let grown = counter.checked_sub(before)?; // the driver may have been loaded anew
        let mean = u64::try_from(u128::from(grown) * NS_PER_S / elapsed).ok()?;
        if !(1..=MOST_MW).contains(&mean) {
            return None;
        }
        self.mean_mw = Some(mean);
        let idle = self.idle_mw.map_or(mean, |idle| idle.min(mean));
        self.idle_mw = Some(idle);
        Some(grown.saturating_sub(u64::try_from(u128::from(idle) * elapsed / NS_PER_S).ok()?))
    }
}

impl Registry {
    /// What is to follow where power or heat holds clocks back.
    pub fn power_by(&mut self, rule: PowerRule) {
        self.powered.rule = rule;
    }

    /// What a card draws, if it was calibrated.
    pub fn expect_draw(&mut self, draw: Option<Draw>) {
        self.powered.calibrated = draw;
    }

    /// NVML has answered.
    pub fn note_power(&mut self, reading: &[Result<GpuReading, String>]) {
        let read =
            reading.iter().enumerate().filter_map(|(gpu, read)| Some((gpu, read.as_ref().ok()?.power)));
        for (gpu, power) in read {
            let known = self.powered.gpus.entry(gpu).or_default();
            if let Some(what) = known.note(power) {
                self.events.push(About::gpu(gpu), what);
            }
            if power.energy_mj.is_some() {
                let above_rest = known.above_rest();
                self.divide_energy(gpu, above_rest);
            }
        }
    }

    fn divide_energy(&mut self, gpu: usize, above_rest: Option<u64>) {
        let cells = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.cells);
        let mut parts: Vec<_> = cells
            .filter(|cell| cell.gpu == gpu)
            .map(|cell| {
                let charged = cell.take_charged();
                (cell, charged)
            })
            .collect();
        let all: u128 = parts.iter().map(|(_, charged)| u128::from(*charged)).sum();
        for (cell, charged) in &mut parts {
            let part = u128::from(above_rest.unwrap_or(0)) * u128::from(*charged) / all.max(1);
            let part = u64::try_from(part).unwrap_or(u64::MAX);
            cell.energy_mj = Some(cell.energy_mj.unwrap_or(0).saturating_add(part));
        }
    }

    /// What is known of a GPU's power.
    pub fn power_of(&self, gpu: usize) -> PowerStats {
        let calibrated = self.powered.calibrated;
        let Some(Gpu { last, idle_mw, .. }) = self.powered.gpus.get(&gpu) else {
            return PowerStats { calibrated, ..PowerStats::default() };
        };
        PowerStats {
            calibrated,
            draw_mw: last.draw_mw,
            limit_mw: last.limit_mw,
            idle_mw: *idle_mw,
            energy_mj: last.energy_mj,
            sm_clock_mhz: last.sm_mhz,
            sm_clock_most_mhz: last.sm_most_mhz,
            clock_reasons: last.reasons.map(crate::gpus::Reasons::names),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::Reasons;

    const CAPPED: Reasons = Reasons(0x4);
    const NONE: Reasons = Reasons(0);

    /// A reading at a second: energy in J, and what holds the clocks down.
    fn at(second: u64, joules: u64, reasons: Reasons) -> Power {
        let energy_mj = Some(joules * 1_000);
        Power { at: Nanos::from_secs(second), energy_mj, reasons: Some(reasons), ..Power::default() }
    }

    /// What is divided after each of these readings, in J.
    fn above_rest(gpu: &mut Gpu, readings: &[(u64, u64)]) -> Vec<Option<u64>> {
        let take = |(second, joules): &(u64, u64)| {
            gpu.note(at(*second, *joules, NONE));
            gpu.above_rest().map(|mj| mj / 1_000)
        };
        readings.iter().map(take).collect()
    }

    #[test]
    fn what_is_taken_beyond_rest_is_divided_and_rest_is_the_least_that_was_measured() {
        // gpu-truths, rule 17: energy is part of a filler's price.
        let mut gpu = Gpu::default();
        let readings = [(1, 1_000), (2, 1_300), (3, 1_600), (5, 1_700), (6, 2_000), (16, 4_500)];
        let divided = above_rest(&mut gpu, &readings);
        assert_eq!(divided, [None, Some(0), Some(0), Some(0), Some(250), Some(2_000)]);
        assert_eq!(gpu.idle_mw, Some(50_000), "100 J in two seconds");
    }

    #[test]
    fn a_counter_that_begins_anew_or_jumps_leads_to_no_energy_of_anybody() {
        let mut gpu = Gpu::default();
        let readings = [(1, 1_000), (2, 1_050), (3, 7), (4, 57), (5, 1 << 50), (6, (1 << 50) + 150)];
        let divided = above_rest(&mut gpu, &readings);
        assert_eq!(divided, [None, Some(0), None, Some(0), None, Some(100)]);
    }

    #[test]
    fn held_back_is_told_at_once_and_free_when_it_has_been_for_some_readings() {
        let mut gpu = Gpu::default();
        let mut told = Vec::new();
        for (second, reasons) in
            [NONE, CAPPED, NONE, NONE, CAPPED, NONE, NONE, NONE, NONE].into_iter().enumerate()
        {
            told.push(gpu.note(at(second as u64, 0, reasons)).map(|what| what == What::ClocksFree));
        }
        let free_after = [None, Some(false), None, None, None, None, None, Some(true), None];
        assert_eq!(told, free_after);
    }

    #[test]
    fn a_policy_hears_what_is_fresh_and_known_unless_the_operator_says_otherwise() {
        // gpu-truths, rule 17.
        let mut powered = Powered::default();
        let signal = |powered: &Powered, second| powered.signal(0, Nanos::from_secs(second));
        assert_eq!(signal(&powered, 1), None, "NVML has not answered");
        powered.gpus.entry(0).or_default().note(Power { at: Nanos::from_secs(1), ..Power::default() });
        assert_eq!(signal(&powered, 1), None, "a card that does not tell");
        let (sm_mhz, sm_most_mhz) = (Some(1_500), Some(1_980));
        powered.gpus.entry(0).or_default().note(Power { sm_mhz, sm_most_mhz, ..at(2, 0, CAPPED) });
        let heard = Some(Signal { slowed_permille: 1_320, read_at: Nanos::from_secs(2) });
        assert_eq!((signal(&powered, 3), signal(&powered, 9)), (heard, None), "and an NVML that hangs");
        powered.rule = PowerRule::Report;
        assert_eq!(signal(&powered, 3), None);
    }
}
