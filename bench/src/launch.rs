//! `weir-bench launch`: what a granted launch costs more with Weir than without, and that it takes no lock, allocates
//! nothing and makes no system call.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;
use weir_policy::{Beside, Signals, grant};
use weir_protocol::pages::{Grant, Rate};
use weir_protocol::price::PriceRow;
use weir_protocol::units::{Bytes, SmShare, Tokens};

use crate::host::Host;
use crate::pair::{Round, Setting, all_of, best_pace, take_turns, while_fast};
use crate::report::{Bar, Report};
use crate::rig::{Control, Cost, Rig};
use crate::sample::Spread;
use crate::worker::Task;
use crate::{DriverOptions, count, instructions, stage};

/// The floor driver's one device.
const FLOOR_UUID: [u8; 16] = *b"weir-floor-uuid!";

/// Rounds of each setting. What holds the processor up lasts for a few of them, or for many.
const ROUNDS: usize = 400;

/// Measures and prints.
pub fn run(options: &DriverOptions) -> Result<ExitCode, std::io::Error> {
    let parts = Parts::build(options)?;
    let mut report = Report::new("launch", true);
    let mut worst = f64::NEG_INFINITY;
    for price_us in [5.0, 100.0] {
        for processes in [1, 2] {
            let host = parts.host(price_us)?;
            let measured = parts.measure(&host, Task::Launch, processes, ROUNDS)?;
            if host.launches() == 0 {
                return Err(std::io::Error::other("libweir.so did not attach: nothing was measured"));
            }
            worst = worst.max(measured.added_ns);
            report.figure(&format!("{processes}_process_{price_us}us"), measured);
        }
    }
    report.bar(Bar::at_most("launch.added_ns", worst, "ns", 25.0));
    report.figure("on_the_simulated_driver", on_simulated_driver()?);
    let host = parts.host(5.0)?;
    let counts = count::in_measured_part(&parts.with(&host), Task::Launch)?;
    report.bar(Bar::at_most("launch.syscalls", counts.system_calls as f64, "calls", 0.0));
    report.bar(Bar::at_most("launch.allocations", counts.allocations as f64, "calls", 0.0));
    report.bar(Bar::at_most("launch.locks", counts.locks as f64, "calls", 0.0));
    report.figure("counted_launches", counts.calls);
    let other = parts.other(&host);
    report.figure(
        "launch.instructions",
        instructions::of_a_launch(&parts.bare(), &parts.with(&host), other.as_ref()),
    );
    Ok(report.finish(options.preloads.common.json))
}

/// The same on the simulated driver, whose own cost a launch then includes. Kernels are so short that its queue
/// never fills.
fn on_simulated_driver() -> Result<serde_json::Value, std::io::Error> {
    let cost = Cost { name: "*", time_us: 0.001 };
    let rig = Rig::simulated(&[cost])?;
    let mut control = Control::of(&rig)?; // the tenant lives as long as this connection
    let created = control.create("bench", 99, Bytes::gib(8))?;
    let bare = Setting { driver: rig.driver_directory(), preload: None, environment: rig.variables() };
    let with = Setting { preload: Some((rig.preload(), created.dir)), ..bare.clone() };
    let [bare, with] = take_turns([(&bare, Task::Launch), (&with, Task::Launch)], 1, ROUNDS)?;
    let [bare, with] = [bare, with].map(|rounds| Spread::of(&all_of(&rounds)));
    Ok(json!({"bare_ns": bare, "weir_ns": with, "added_ns": with.median - bare.median}))
}

/// What is measured against what.
pub struct Parts {
    driver: tempfile::TempDir,
    preload: PathBuf,
    other: Option<PathBuf>,
}

/// One call without and with Weir, and with another interposer if there is one, taken in turns in one run.
#[derive(Serialize)]
pub struct Measured {
    bare_ns: Spread,
    weir_ns: Spread,
    /// Medians apart.
    pub added_ns: f64,
    /// By how much longer it is than without: medians by each other.
    ratio: f64,
    /// How many rounds of each count: those in which the processor was fast.
    rounds: [usize; 2],
    /// Of all rounds: medians apart, and what the processor took for a step in registers.
    added_in_all_ns: f64,
    pace_in_all_ns: Spread,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_ns: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_added_ns: Option<f64>,
}

impl Parts {
    /// Builds what the options do not name.
    pub fn build(options: &DriverOptions) -> Result<Self, std::io::Error> {
        let dist = stage::dist()?;
        let driver = options.driver.clone().unwrap_or_else(|| dist.join("floor/libcuda.so.1"));
        let preload = dist.join("lib/weir/libweir.so").canonicalize()?;
        let other = options.preloads.preload.as_ref().map(|other| other.canonicalize()).transpose()?;
        Ok(Self { driver: stage::as_driver(&driver)?, preload, other })
    }

    /// Measures what the workers of one task take for a call.
    pub fn measure(
        &self,
        host: &Host,
        task: Task,
        processes: usize,
        rounds: usize,
    ) -> std::io::Result<Measured> {
        let (bare, with) = (self.bare(), self.with(host));
        let (bare, with) = ((&bare, task), (&with, task));
        let (bare, with, other) = match self.other(host) {
            None => {
                let [bare, with] = take_turns([bare, with], processes, rounds)?;
                (bare, with, None)
            }
            Some(other) => {
                let [bare, with, other] = take_turns([bare, with, (&other, task)], processes, rounds)?;
                (bare, with, Some(other))
            }
        };
        let run = || bare.iter().chain(&with).chain(other.iter().flatten());
        let best = best_pace(run());
        let fast = |rounds: &[Round]| while_fast(rounds, best);
        let (bare_ns, weir_ns) = (Spread::of(&fast(&bare)), Spread::of(&fast(&with)));
        let other_ns = other.as_deref().map(|other| Spread::of(&fast(other)));
        let added = |spread: &Spread| spread.median - bare_ns.median;
        let in_all = |rounds: &[Round]| Spread::of(&all_of(rounds)).median;
        Ok(Measured {
            bare_ns,
            weir_ns,
            added_ns: added(&weir_ns),
            ratio: weir_ns.median / bare_ns.median,
            rounds: [fast(&bare).len(), fast(&with).len()],
            added_in_all_ns: in_all(&with) - in_all(&bare),
            pace_in_all_ns: Spread::of(&run().map(|round| round.pace_ns).collect::<Vec<_>>()),
            other_ns,
            other_added_ns: other_ns.as_ref().map(added),
        })
    }

    /// A tenant whose launches cost `price_us` and whose grant is never empty: what the policies grant for all but the whole
    /// GPU, so that every slice is drawn from the bucket and what is queued is bounded; but of tokens more than can be spent.
    pub fn host(&self, price_us: f64) -> Result<Host, std::io::Error> {
        let huge = Tokens(i64::MAX / 4);
        let beside = Beside { tenants: 1, gives_way: false, switch: Signals::default().switch };
        let granted = grant(Rate::ppm(999_999), SmShare::percent(99), Bytes::gib(8), beside);
        let granted = Grant { capacity: huge, ..granted };
        let price = PriceRow { name: "*".into(), time_us: Some(price_us), ..PriceRow::default() };
        let host = Host::start(FLOOR_UUID, &granted, vec![price])?;
        host.fill_bucket(huge);
        Ok(host)
    }

    /// Without a preload library.
    pub fn bare(&self) -> Setting {
        Setting { driver: self.driver.path().into(), preload: None, environment: Vec::new() }
    }

    /// With it, as a process of `host`'s tenant.
    pub fn with(&self, host: &Host) -> Setting {
        Setting { preload: Some((self.preload.clone(), host.place().into())), ..self.bare() }
    }

    /// With the other interposer; should it be a build of Weir's, it is a process of `host`'s tenant, too.
    pub fn other(&self, host: &Host) -> Option<Setting> {
        let other = self.other.clone()?;
        Some(Setting { preload: Some((other, host.place().into())), ..self.bare() })
    }
}
