//! Calibration: what the GPU is like where no document says it. `weir doctor --measure` runs this alone, within a minute; the story
//! runs the same. It changes no setting of the card. The result is a configuration of the simulated GPU: started with it, that is like
//! this card (`WEIR_SIMGPU_CONFIG`), and `weir sim --calibration` takes slice and switch from it. Each measurement stands beside what
//! the simulated GPU is configured to or assumes by default; run on the simulated one it shows how well these measurements find out
//! what is known.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::Bytes;
use weir_simgpu_link::config::Config;

use super::finding::Finding;
use super::setup::{Setup, Wanted, stats_of, tenant, wait};
use super::share;
use super::side::{Player, Side, Way, number, numbers};
use crate::rig::Control;
use crate::sample::{Spread, quantile};

/// What two contexts launch to see each other's slices: short against any slice.
const UNIT: &str = "100:132";
const UNIT_NS: f64 = 100_000.0;

/// What they launch to see what switching loses: so long that the host keeps up whatever else it does.
const LONG: &str = "1000:132";

/// A pause between two units' ends that is no pause of the context's own.
const APART_NS: f64 = 5.0 * UNIT_NS;

/// Bytes of a copy that is timed, in MiB; and in the short form.
const COPY_MIB: (u32, u32) = (512, 64);

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Key in the simulated GPU's configuration, if it has one.
    pub key: Option<String>,
    /// What was measured.
    pub what: String,
    /// Its unit.
    pub unit: String,
    /// What the simulated GPU takes it for.
    pub predicted: Option<f64>,
    /// What it is.
    pub measured: f64,
}

/// Measures all of it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let mut found = Found { rows: Vec::new(), defaults: Config::default(), card: Value::Null };
    for part in [slices, arrivals, calls, copies, rest] {
        part(setup, &mut found)?;
        setup.note(&found.finding(setup))?;
    }
    Ok(found.finding(setup))
}

/// What has been found so far.
struct Found {
    rows: Vec<Row>,
    defaults: Config,
    card: Value,
}

impl Found {
    fn add(&mut self, key: &str, what: &str, unit: &str, predicted: impl Into<Option<f64>>, measured: f64) {
        let key = (!key.is_empty()).then(|| key.to_owned());
        let (what, unit, predicted) = (what.to_owned(), unit.to_owned(), predicted.into());
        self.rows.push(Row { key, what, unit, predicted, measured });
    }

    fn finding(&self, setup: &Setup) -> Finding {
        let told: Vec<String> = self.rows.iter().map(Row::told).collect();
        // What the simulated GPU is configured to must come out as what it is, within what a busy machine adds.
        let slice = self.rows.iter().find(|row| row.key.as_deref() == Some("slice_us"));
        let known =
            |row: &Row| row.predicted.is_some_and(|predicted| (row.measured / predicted - 1.0).abs() < 0.3);
        let finite = self.rows.iter().all(|row| row.measured.is_finite());
        Finding {
            holds: setup.simulated.then_some(finite && slice.is_none_or(known)),
            line: told.join("; "),
            figures: json!({"rows": self.rows, "card": self.card}),
            ..Finding::default()
        }
    }
}

impl Row {
    /// A line for people.
    pub fn told(&self) -> String {
        let predicted =
            self.predicted.map_or_else(String::new, |predicted| format!(" (predicted {predicted:.4})"));
        format!("{} {:.4} {}{predicted}", self.what, self.measured, self.unit)
    }
}

/// Slices, and what is lost by switching, with two contexts, three and four, none of which is Weir's.
fn slices(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let alone_per_s = share::alone(setup, &rig, &Side::Twin, LONG)?;
    let (slice_us, switch_us) = (found.defaults.slice_us as f64, found.defaults.switch_us as f64);
    for contexts in setup.of(2..=4, 2..=2) {
        let mut players = (0..contexts)
            .map(|_| Player::start(&rig, &Side::Twin, UNIT, Way::Bare))
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
        let slice = run_us(&ends_ns);
        let lost = slice * (1.0 / sum - 1.0);
        let of = format!("{contexts} contexts");
        let expected = 100.0 * slice_us / (slice_us + switch_us);
        if contexts == 2 {
            found.add("slice_us", "time slice", "us", slice_us, slice);
            found.add("switch_us", "switch between contexts", "us", switch_us, lost);
        }
        found.add("", &format!("{of} together, of one alone"), "percent", expected, 100.0 * sum);
    }
    Ok(())
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

/// How long a newcomer's first work waits for a filler's unit, neither of which is Weir's: rule 10 of the simulator's model.
fn arrivals(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let (slice_us, switch_us) = (found.defaults.slice_us as f64, found.defaults.switch_us as f64);
    for (unit, unit_us) in
        setup.of(&[("100:132", 100.0), ("1000:132", 1e3), ("10000:132", 1e4)][..], &[("1000:132", 1e3)][..])
    {
        let mut newcomer = Player::start(&rig, &Side::Twin, "20:132", Way::Bare)?;
        let sleeps: Vec<u64> = (0..setup.of(60, 10)).map(|n| 6_000 + 937 * (n % 11)).collect();
        let served = |newcomer: &mut Player| -> io::Result<f64> {
            let said = newcomer.ask(&format!("wake {}", json!(sleeps)), Duration::from_secs(3))?;
            let wakes = said["wakes"].as_array().map_or(&[][..], Vec::as_slice);
            let took = wakes.iter().filter_map(|wake| Some((wake[1].as_f64()? - wake[0].as_f64()?) / 1e3));
            Ok(Spread::of(&took.collect::<Vec<_>>()).median)
        };
        let alone = served(&mut newcomer)?;
        let mut filler = Player::start(&rig, &Side::Twin, unit, Way::Bare)?;
        filler.go("")?;
        wait(Duration::from_millis(200));
        let waited = served(&mut newcomer)? - alone;
        // More is queued than a slice holds: half a slice is left on average, and then one switch.
        let expected = slice_us / 2.0 + switch_us;
        found.add(
            "",
            &format!("a newcomer waits beside units of {unit_us} us"),
            "us, median",
            expected,
            waited,
        );
    }
    Ok(())
}

/// What calls take of the host, and what a launch takes until it is known to be done.
fn calls(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let mut player = Player::start(&rig, &Side::Twin, "5:1", Way::Bare)?;
    let said = player.ask("costs", Duration::from_secs(3))?;
    let defaults = found.defaults.clone();
    found.add("launch_cpu_ns", "a launch call", "ns", None, number(&said, "launch_ns")?);
    found.add("", "an event's record call", "ns", None, number(&said, "record_ns")?);
    let kernel_us = number(&player.ask("span 200", Duration::from_secs(1))?, "gpu_ms")? * 1e3 / 200.0;
    let beyond = number(&said, "round_trip_ns")? / 1e3 - kernel_us;
    let predicted = defaults.submit_to_start_us as f64;
    found.add(
        "submit_to_start_us",
        "launch to known to be done, less the kernel (an upper bound)",
        "us",
        predicted,
        beyond,
    );
    found.add("sms", "SMs", "", f64::from(defaults.sms), number(&said, "sms")?);
    Ok(())
}

/// Copies between host and GPU, of pinned memory, and within the GPU; the latter reads and writes each byte.
fn copies(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let mut player = Player::start(&rig, &Side::Twin, "5:1", Way::Bare)?;
    let mib = setup.of(COPY_MIB.0, COPY_MIB.1);
    let defaults = &found.defaults;
    let ways = [
        ("in", "host_to_device_gb_s", "copy to the GPU", defaults.host_to_device_gb_s),
        ("out", "device_to_host_gb_s", "copy from the GPU", defaults.device_to_host_gb_s),
        ("within", "device_gb_s", "memory read and written", defaults.device_gb_s),
    ];
    for (way, key, what, predicted) in ways {
        let gb_s = number(&player.ask(&format!("copy {way} {mib}"), Duration::from_secs(5))?, "gb_s")?;
        let twice = if way == "within" { 2.0 } else { 1.0 };
        found.add(key, what, "GB/s", predicted as f64, twice * gb_s);
    }
    Ok(())
}

/// Memory, contexts, power: the driver's and NVML's word, as the node manager has it.
fn rest(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let wanted = Wanted { memory: Bytes::gib(2), ..Wanted::class("context", ClassName::Filler, None) };
    let place = tenant(&mut control, wanted)?;
    wait(setup.time(2, 1_200)); // power is read once a second, as a mean
    let idle_w = watts(&mut control)?;
    let mut player = Player::start(&rig, &Side::Twin, "mix", Way::Preload(&place))?;
    let context = stats_of(&mut control, "context")?.gpus.first().map_or(0, |gpu| gpu.memory_held_bytes);
    player.go("")?;
    wait(setup.time(4, 2_500));
    let busy_w = watts(&mut control)?;
    let stats = control.stats()?;
    let gpu = stats.gpus.first().ok_or_else(|| io::Error::other("no GPU"))?;
    let defaults = found.defaults.clone();
    let limit_w = gpu.power.limit_mw.map(|mw| f64::from(mw) / 1e3);
    found.add("memory", "memory", "bytes", defaults.memory.0 as f64, gpu.memory_total_bytes as f64);
    found.add("context_overhead", "a context", "bytes", defaults.context_overhead.0 as f64, context as f64);
    for (key, what, predicted, measured) in [
        ("idle_w", "power at rest", defaults.idle_w, idle_w),
        ("busy_w", "power at work", defaults.busy_w, busy_w),
        ("power_limit_w", "power limit", defaults.power_limit_w, limit_w),
    ] {
        if let Some(measured) = measured {
            found.add(key, what, "W", f64::from(predicted), measured);
        }
    }
    found.card = json!({
        "name": gpu.name, "simulated": gpu.simulated, "sm_clock_mhz": gpu.power.sm_clock_mhz,
        "sm_clock_most_mhz": gpu.power.sm_clock_most_mhz, "clock_reasons": gpu.power.clock_reasons,
    });
    Ok(())
}

fn watts(control: &mut Control) -> io::Result<Option<f64>> {
    let stats = control.stats()?;
    Ok(stats.gpus.first().and_then(|gpu| gpu.power.draw_mw).map(|mw| f64::from(mw) / 1e3))
}

/// What NVML says of the card: only a real one has more to tell than that it is none.
pub fn card(simulated: bool) -> io::Result<Value> {
    if simulated {
        return Ok(json!({"name": "simulated"}));
    }
    let library = "libnvidia-ml.so.1".as_ref();
    let nvml = nvml_wrapper::Nvml::builder().lib_path(library).init().map_err(io::Error::other)?;
    let device = nvml.device_by_index(0).map_err(io::Error::other)?;
    Ok(json!({
        "name": device.name().map_err(io::Error::other)?,
        "driver": nvml.sys_driver_version().ok(),
        "cuda": nvml.sys_cuda_driver_version().ok(),
        "memory_bytes": device.memory_info().ok().map(|memory| memory.total),
        "power_limit_mw": device.enforced_power_limit().ok(),
    }))
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
}
