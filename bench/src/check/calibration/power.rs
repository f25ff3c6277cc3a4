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

/// What fills its pauses, and how much of the GPU it may have for half of them and for all.
const FILL: &str = "graph";
const FILLS: [(u16, &str); 2] =
    [(25, "with half of its pauses filled"), (100, "with all of its pauses filled")];

/// How it is called when nobody works.
const AT_REST: &str = "at rest";

/// Memory, a context, and power and clock with nothing, half and all of the GPU's time in use; half is a program that pauses, and then
/// its pauses are filled by another one's work.
pub fn measure(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let mut make = |name: &str, limit| {
        let wanted = Wanted { memory: Bytes::gib(2), limit, ..Wanted::class(name, ClassName::Filler, None) };
        tenant(&mut control, wanted)
    };
    let place = make("context", 100)?;
    let fillers = FILLS.map(|(limit, _)| make(&format!("fill{limit}"), limit));
    let mut look = |time| {
        wait(time);
        gpu(&mut control)
    };
    let at_rest = look(setup.time(2, 1_200))?; // power is read once a second, as a mean
    let mut player = Player::start(&rig, &Side::Twin, WORK, Way::Preload(&place))?;
    player.go(&PAUSE_US.to_string())?;
    let mut looks = vec![(AT_REST, at_rest), ("with half of the time in use", look(setup.time(3, 2_500))?)];
    for ((_, what), place) in FILLS.iter().zip(fillers) {
        let mut filler = Player::start(&rig, &Side::Twin, FILL, Way::Preload(&place?))?;
        filler.go("")?;
        looks.push((*what, look(setup.time(3, 2_500))?));
    }
    player.stop()?;
    player.go("")?;
    looks.push(("at work", look(setup.time(3, 2_500))?));
    let context = stats_of(&mut control, "context")?.gpus.first().map_or(0, |gpu| gpu.memory_held_bytes);
    tell(found, &looks, context);
    Ok(())
}

/// What was seen, from rest to work.
fn tell(found: &mut Found, looks: &[(&str, GpuStats)], context_bytes: u64) {
    let Some((_, at_work)) = looks.last() else { return };
    let defaults = found.defaults.clone();
    found.add("memory", "memory", "bytes", defaults.memory.0 as f64, at_work.memory_total_bytes as f64);
    found.add(
        "context_overhead",
        "a context",
        "bytes",
        defaults.context_overhead.0 as f64,
        context_bytes as f64,
    );
    let (idle_w, busy_w) = (f64::from(defaults.idle_w), f64::from(defaults.busy_w));
    // Of the GPU's time so much is in use: a filled pause is as good as work.
    let in_use = [("idle_w", 0.0), ("", 0.5), ("", 0.75), ("", 1.0), ("busy_w", 1.0)];
    for ((what, gpu), (key, part)) in looks.iter().zip(in_use) {
        if let Some(draw_mw) = gpu.power.draw_mw {
            let predicted = idle_w + part * (busy_w - idle_w);
            found.add(key, &format!("power {what}"), "W", predicted, f64::from(draw_mw) / 1e3);
        }
    }
    if let Some(limit_mw) = at_work.power.limit_mw {
        let (predicted, measured) = (f64::from(defaults.power_limit_w), f64::from(limit_mw) / 1e3);
        found.add("power_limit_w", "power limit", "W", predicted, measured);
    }
    for (what, gpu) in looks {
        if let Some(mhz) = gpu.power.sm_clock_mhz {
            // At rest a card lowers its clock as it likes; with work it runs as fast as it may unless its power limit holds it back.
            let most = gpu.power.sm_clock_most_mhz.filter(|_| *what != AT_REST);
            let predicted = most.map(|most| (f64::from(most), "NVML's highest clock"));
            found.add_predicted("", &format!("SM clock {what}"), "MHz", predicted, f64::from(mhz));
        }
    }
    found.card = json!({
        "name": at_work.name, "simulated": at_work.simulated, "sm_clock_mhz": at_work.power.sm_clock_mhz,
        "sm_clock_most_mhz": at_work.power.sm_clock_most_mhz, "clock_reasons": at_work.power.clock_reasons,
    });
}

fn gpu(control: &mut Control) -> io::Result<GpuStats> {
    control.stats()?.gpus.into_iter().next().ok_or_else(|| io::Error::other("no GPU"))
}
