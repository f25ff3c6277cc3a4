//! `weir-bench alloc`: what an allocation and its free cost more with Weir than without.

use std::process::ExitCode;

use serde_json::json;

use crate::Options;
use crate::launch::Parts;
use crate::pair::take_turns;
use crate::report::{Bar, Report};
use crate::sample::Spread;
use crate::worker::Task;

/// Rounds of each setting.
const ROUNDS: usize = 15;

/// Measures and prints.
pub fn run(options: &Options) -> Result<ExitCode, std::io::Error> {
    let parts = Parts::build(options)?;
    let mut report = Report::new("alloc", true);
    let host = parts.host(5.0)?;
    let [bare, with] = take_turns([&parts.bare(), &parts.with(&host)], Task::Alloc, 1, ROUNDS)?;
    let (bare, with) = (Spread::of(&bare), Spread::of(&with));
    let added = with.median - bare.median;
    report.bar(Bar::at_most("alloc.added_ns", added, "ns", 200.0));
    report.figure("alloc_and_free", json!({"bare_ns": bare, "weir_ns": with}));
    Ok(report.finish(options.json))
}
