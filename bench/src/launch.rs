//! `weir-bench launch`: what a granted launch costs more with Weir than without, and that it takes no lock, allocates
//! nothing and makes no system call.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use weir_protocol::pages::{Grant, Rate};
use weir_protocol::price::PriceRow;
use weir_protocol::units::{Bytes, Nanos, Tokens};

use crate::host::Host;
use crate::pair::{Setting, take_turns};
use crate::report::{Bar, Report};
use crate::rig::{Control, Cost, Rig};
use crate::sample::Spread;
use crate::worker::Task;
use crate::{Options, count, stage};

/// The floor driver's one device.
const FLOOR_UUID: [u8; 16] = *b"weir-floor-uuid!";

/// Rounds of each setting.
const ROUNDS: usize = 15;

/// Measures and prints.
pub fn run(options: &Options) -> Result<ExitCode, std::io::Error> {
    let parts = Parts::build(options)?;
    let mut report = Report::new("launch", true);
    let mut worst = f64::NEG_INFINITY;
    for price_us in [5.0, 100.0] {
        for processes in [1, 2] {
            let host = parts.host(price_us)?;
            let [bare, with] = [parts.bare(), parts.with(&host)];
            let [bare, with] = take_turns([&bare, &with], Task::Launch, processes, ROUNDS)?;
            if options.preload.is_none() && host.launches() == 0 {
                return Err(std::io::Error::other("libweir.so did not attach: nothing was measured"));
            }
            let (bare, with) = (Spread::of(&bare), Spread::of(&with));
            let added = with.median - bare.median;
            worst = worst.max(added);
            let name = format!("{processes}_process_{price_us}us");
            report.figure(&name, json!({"bare_ns": bare, "weir_ns": with, "added_ns": added}));
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
    Ok(report.finish(options.json))
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
    let [bare, with] = take_turns([&bare, &with], Task::Launch, 1, ROUNDS)?;
    let (bare, with) = (Spread::of(&bare), Spread::of(&with));
    Ok(json!({"bare_ns": bare, "weir_ns": with, "added_ns": with.median - bare.median}))
}

/// What is measured against what.
pub struct Parts {
    driver: tempfile::TempDir,
    preload: PathBuf,
}

impl Parts {
    /// Builds what the options do not name.
    pub fn build(options: &Options) -> Result<Self, std::io::Error> {
        let dist = stage::dist()?;
        let driver = options.driver.clone().unwrap_or_else(|| dist.join("floor/libcuda.so.1"));
        let preload = options.preload.clone().unwrap_or_else(|| dist.join("lib/weir/libweir.so"));
        Ok(Self { driver: stage::as_driver(&driver)?, preload: preload.canonicalize()? })
    }

    /// A tenant whose launches cost `price_us` and whose grant is never empty: all but the whole GPU, so that every
    /// slice is drawn from the bucket.
    pub fn host(&self, price_us: f64) -> Result<Host, std::io::Error> {
        let huge = Tokens(i64::MAX / 4);
        let grant = Grant {
            rate: Rate::ppm(999_999),
            fallback_rate: Rate::ppm(999_999),
            capacity: huge,
            resume_at: Tokens(0),
            in_flight_cap: Nanos(0),
            memory_limit: Bytes::gib(8),
            ..Grant::default()
        };
        let price = PriceRow { name: "*".into(), time_us: Some(price_us), ns_per_block: None };
        let host = Host::start(FLOOR_UUID, &grant, vec![price])?;
        host.fill_bucket(huge);
        Ok(host)
    }

    /// Without a preload library.
    pub fn bare(&self) -> Setting {
        Setting { driver: self.driver.path().into(), preload: None, environment: Vec::new() }
    }

    /// With it, as a process of `host`'s tenant.
    pub fn with(&self, host: &Host) -> Setting {
        self.with_place(host.place())
    }

    fn with_place(&self, place: &Path) -> Setting {
        Setting { preload: Some((self.preload.clone(), place.into())), ..self.bare() }
    }
}
