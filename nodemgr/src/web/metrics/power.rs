//! Power, clocks and energy. What a GPU does not tell has no row.

use prometheus_client::registry::Unit;

use super::{Page, Rows, of_gpu, one, pairs, ratio};
use crate::control::{PowerStats, Stats};
use crate::gpus::Reasons;

fn joules(mj: u64) -> f64 {
    mj as f64 / 1e3
}

pub(super) fn power(page: &mut Page, stats: &Stats) {
    let rows = |value: fn(&PowerStats) -> Option<f64>| -> Rows {
        stats.gpus.iter().filter_map(|gpu| Some((of_gpu(gpu), value(&gpu.power)?))).collect()
    };
    let watts = || Some(Unit::Other("watts".into()));
    let draw = rows(|power| power.draw_mw.map(|mw| f64::from(mw) / 1e3));
    page.gauge("weir_gpu_power", watts(), "What a GPU draws", draw);
    let limit = rows(|power| power.limit_mw.map(|mw| f64::from(mw) / 1e3));
    page.gauge("weir_gpu_power_limit", watts(), "What a GPU may draw", limit);
    let clock = rows(|power| {
        let most = power.sm_clock_most_mhz.filter(|most| *most > 0)?;
        Some(f64::from(power.sm_clock_mhz?) / f64::from(most))
    });
    page.gauge("weir_gpu_sm_clock", ratio(), "Clock of the SMs, 1 = the highest", clock);
    let taken = rows(|power| Some(joules(power.energy_mj?)));
    page.counter("weir_gpu_energy", Some(Unit::Joules), "Energy that a GPU has taken", taken);
    let of_tenants = pairs(stats, |_, gpu| gpu.energy_mj.map_or_else(Vec::new, |mj| one(joules(mj))));
    let help = "A tenant's part of the energy beyond rest";
    page.counter("weir_tenant_energy", Some(Unit::Joules), help, of_tenants);
    let reasons = stats.gpus.iter().filter(|gpu| gpu.power.clock_reasons.is_some()).flat_map(|gpu| {
        let held = gpu.power.held_back_by();
        let row = move |reason: String| {
            let holds = f64::from(u8::from(held.contains(&reason)));
            ([of_gpu(gpu), vec![("reason", reason)]].concat(), holds)
        };
        Reasons::HOLD_BACK.names().into_iter().map(row)
    });
    page.gauge(
        "weir_gpu_clocks_held_back",
        None,
        "1 while this holds a GPU's clocks back",
        reasons.collect(),
    );
}
