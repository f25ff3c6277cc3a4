//! `weir-bench alloc`: what an allocation and its free cost more with Weir than without, plain and from a pool.

use std::process::ExitCode;

use crate::DriverOptions;
use crate::launch::Parts;
use crate::report::{Bar, Report};
use crate::worker::Task;

/// Rounds of each setting.
const ROUNDS: usize = 15;

/// Measures and prints.
pub fn run(options: &DriverOptions) -> Result<ExitCode, std::io::Error> {
    let parts = Parts::build(options)?;
    let mut report = Report::new("alloc", true);
    let host = parts.host(5.0)?;
    let mut worst = f64::NEG_INFINITY;
    for (task, name) in [(Task::Alloc, "alloc_and_free"), (Task::AllocAsync, "in_stream_order")] {
        let measured = parts.measure(&host, task, 1, ROUNDS)?;
        worst = worst.max(measured.added_ns);
        report.figure(name, measured);
    }
    report.bar(Bar::at_most("alloc.added_ns", worst, "ns", 200.0));
    Ok(report.finish(options.preloads.common.json))
}
