//! Memory: a client that allocates until it is refused, frees everything, and does it again.

use std::io;

use serde_json::json;
use weir_protocol::units::Bytes;

use super::{Finding, Setup};
use crate::pair::Setting;
use crate::rig::Control;
use crate::worker::{PIECE, Task};

/// The tenant's limit.
const LIMIT: Bytes = Bytes::gib(2);

/// Tells whether the limit holds to the byte, with the driver's own code, and twice.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let created = control.create("limit", 99, LIMIT)?;
    let setting = Setting {
        driver: rig.driver_directory(),
        preload: Some((rig.preload(), created.dir)),
        environment: rig.variables(),
    };
    let mut worker = setting.start(Task::Fill)?;
    let mut pieces = Vec::new();
    for _ in 0..2 {
        worker.go()?;
        pieces.push(worker.figure()?);
    }
    worker.finish()?;
    let stats = control.stats()?;
    let total = stats.tenants.iter().find(|t| t.name == "limit").and_then(|t| t.gpus.first());
    let (held, peak) =
        total.map_or((u64::MAX, 0), |gpu| (gpu.memory_held_bytes, gpu.total.memory_peak_bytes));
    let expected = (LIMIT.0 / PIECE as u64) as f64;
    let holds = pieces.iter().all(|count| *count == expected) && held == 0 && peak <= LIMIT.0;
    let line = format!(
        "{pieces:?} pieces of {} fit into {LIMIT} (expected {expected}); {held} bytes held at the end",
        Bytes(PIECE as u64)
    );
    Ok(Finding {
        holds: Some(holds),
        line,
        figures: json!({"pieces": pieces, "held_bytes": held, "peak_bytes": peak}),
    })
}
