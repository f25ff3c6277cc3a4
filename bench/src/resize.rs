//! `weir-bench resize`: from the manager's store of a new grant to the first launch under it, of tenants that have queued all that
//! they may.
//!
//! For the bars nothing else is started: who has filled its queue needs little of a processor. With a busy loop on each processor
//! beside all of it the same is measured again, and stands in the figures.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use weir_protocol::units::{Bytes, Nanos};

use crate::QuickOptions;
use crate::gate::Cores;
use crate::load::{self, Load};
use crate::report::{Bar, Report};
use crate::rig::{Control, Rig, true_use};
use crate::sample::Spread;

/// Swaps of the two tenants' shares.
const SWAPS: usize = 200;
const QUICK_SWAPS: usize = 5;

/// GPU time that each tenant has had before the first swap: its queue is full by then.
const SETTLED: Nanos = Nanos::from_secs(1);

/// The two shares, in percent.
const SHARES: [u16; 2] = [60, 30];

/// Measures and prints.
pub fn run(options: &QuickOptions) -> Result<ExitCode, io::Error> {
    let swaps = options.of(SWAPS, QUICK_SWAPS);
    let idle = Changes::make(swaps)?;
    let saturated = {
        let _busy = Cores::Saturated.share_out()?;
        Changes::make(swaps)?
    };
    let mut report = Report::new("resize", true);
    report.bar(Bar::at_most("resize.first_launch_p99_us", Spread::of(&idle.took_us).p99, "us", 1_000.0));
    report.bar(Bar::at_most("resize.unacknowledged", f64::from(idle.missing), "swaps", 0.0));
    report.figure("first_launch_us", idle.figures());
    report.figure("saturated", saturated.figures());
    Ok(report.finish(options.common.json))
}

/// What came of all changes.
struct Changes {
    took_us: Vec<f64>,
    missing: u32, // no launch followed
}

impl Changes {
    fn make(swaps: usize) -> io::Result<Self> {
        let rig = Rig::simulated(&load::costs())?;
        let mut control = Control::of(&rig)?;
        let names = ["one", "two"];
        let mut loads = Vec::new();
        for (name, percent) in names.iter().zip(SHARES) {
            let created = control.create(name, percent, Bytes::gib(1))?;
            loads.push(load::start(&rig, &created.dir, Load::Medium)?);
        }
        rig.wait_for("the tenants", || {
            let books = rig.books()?;
            let busy = loads.iter().all(|load| true_use(&books, load.id().cast_signed()) > SETTLED.0);
            Ok(busy.then_some(()))
        })?;
        let (mut took_us, mut missing) = (Vec::new(), 0);
        for swap in 0..swaps {
            for took in swap_shares(&mut control, names, swap)? {
                took.map_or_else(|| missing += 1, |us| took_us.push(us));
            }
        }
        for mut load in loads {
            load.kill()?;
            load.wait()?;
        }
        Ok(Self { took_us, missing })
    }

    fn figures(&self) -> serde_json::Value {
        json!({"changes": self.took_us.len(), "missing": self.missing, "spread": Spread::of(&self.took_us)})
    }
}

/// Exchanges the shares: first down, then up, so that the requests never sum to more than before.
pub fn swap_shares(control: &mut Control, names: [&str; 2], swap: usize) -> io::Result<[Option<f64>; 2]> {
    let (down, up) = if swap.is_multiple_of(2) { (names[0], names[1]) } else { (names[1], names[0]) };
    let first = control.set(down, SHARES[1])?.first_launch_us;
    let second = control.set(up, SHARES[0])?.first_launch_us;
    Ok([first, second])
}
