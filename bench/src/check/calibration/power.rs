//! Memory, contexts, power and clocks: the driver's and NVML's word, as the node manager has it.

use std::io;

use serde_json::json;
use weir_nodemgr::control::GpuStats;
use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::Bytes;

use super::super::setup::{Setup, Wanted, stats_of, tenant, wait};
use super::super::side::{Player, Side, Way};
use super::Found;
use crate::rig::Control;

/// What a tenant launches, and the pause of its host with which that is about half of the time, in microseconds.
const WORK: &str = "mix";
const PAUSE_US: u32 = 10_000;

/// How it is called when nobody works.
const AT_REST: &str = "at rest";

/// Memory, a context, and power and clock with nothing, half and all of the GPU's time in use.
pub fn measure(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let wanted = Wanted { memory: Bytes::gib(2), ..Wanted::class("context", ClassName::Filler, None) };
    let place = tenant(&mut control, wanted)?;
    wait(setup.time(2, 1_200)); // power is read once a second, as a mean
    let at_rest = gpu(&mut control)?;
    let mut player = Player::start(&rig, &Side::Twin, WORK, Way::Preload(&place))?;
    let context = stats_of(&mut control, "context")?.gpus.first().map_or(0, |gpu| gpu.memory_held_bytes);
    player.go(&PAUSE_US.to_string())?;
    wait(setup.time(3, 2_500));
    let at_half = gpu(&mut control)?;
    player.stop()?;
    player.go("")?;
    wait(setup.time(4, 2_500));
    let at_work = gpu(&mut control)?;
    let defaults = found.defaults.clone();
    found.add("memory", "memory", "bytes", defaults.memory.0 as f64, at_work.memory_total_bytes as f64);
    found.add("context_overhead", "a context", "bytes", defaults.context_overhead.0 as f64, context as f64);
    let half_w = f64::from(defaults.idle_w + defaults.busy_w) / 2.0;
    for (key, what, predicted, measured_mw) in [
        ("idle_w", "power at rest", f64::from(defaults.idle_w), at_rest.power.draw_mw),
        ("", "power with half of the time in use", half_w, at_half.power.draw_mw),
        ("busy_w", "power at work", f64::from(defaults.busy_w), at_work.power.draw_mw),
        ("power_limit_w", "power limit", f64::from(defaults.power_limit_w), at_work.power.limit_mw),
    ] {
        if let Some(measured_mw) = measured_mw {
            found.add(key, what, "W", predicted, f64::from(measured_mw) / 1e3);
        }
    }
    for (what, gpu) in
        [(AT_REST, &at_rest), ("with half of the time in use", &at_half), ("at work", &at_work)]
    {
        if let Some(mhz) = gpu.power.sm_clock_mhz {
            // At rest a card lowers its clock as it likes; with work it runs as fast as it may unless its power limit holds it back.
            let most = gpu.power.sm_clock_most_mhz.filter(|_| what != AT_REST);
            let predicted = most.map(|most| (f64::from(most), "NVML's highest clock"));
            found.add_predicted("", &format!("SM clock {what}"), "MHz", predicted, f64::from(mhz));
        }
    }
    found.card = json!({
        "name": at_work.name, "simulated": at_work.simulated, "sm_clock_mhz": at_work.power.sm_clock_mhz,
        "sm_clock_most_mhz": at_work.power.sm_clock_most_mhz, "clock_reasons": at_work.power.clock_reasons,
    });
    Ok(())
}

fn gpu(control: &mut Control) -> io::Result<GpuStats> {
    control.stats()?.gpus.into_iter().next().ok_or_else(|| io::Error::other("no GPU"))
}
