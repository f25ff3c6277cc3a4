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

/// Tells whether the limit holds to the last piece, with the driver's own code, and twice. What the context takes by itself
/// counts too: it is what is held once everything is freed.
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
    let (mut pieces, mut contexts) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        worker.go()?;
        pieces.push(worker.figure()?);
        contexts.push(memory(&mut control)?.0);
    }
    worker.finish()?;
    let (held, peak) = memory(&mut control)?;
    let context = contexts[0];
    let expected = (LIMIT.0.saturating_sub(context) / PIECE as u64) as f64;
    let steady = contexts.iter().all(|bytes| *bytes == context) && context < LIMIT.0;
    let full = pieces.iter().all(|count| *count == expected);
    let line = format!(
        "{pieces:?} pieces of {} fit into {LIMIT} beside a context of {} (expected {expected}); {held} bytes held at the end",
        Bytes(PIECE as u64),
        Bytes(context)
    );
    Ok(Finding {
        holds: Some(full && steady && held == 0 && peak <= LIMIT.0),
        line,
        figures: json!({"pieces": pieces, "context_bytes": contexts, "held_bytes": held, "peak_bytes": peak}),
    })
}

/// Held now, and most ever.
fn memory(control: &mut Control) -> io::Result<(u64, u64)> {
    let stats = control.stats()?;
    let total = stats.tenants.iter().find(|t| t.name == "limit").and_then(|t| t.gpus.first());
    let total = total.ok_or_else(|| io::Error::other("the tenant is gone"))?;
    Ok((total.memory_held_bytes, total.total.memory_peak_bytes))
}
