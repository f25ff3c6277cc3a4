//! Look-up: the probe's table under the preload, and a client whose number of launches is known.

use std::io;
use std::process::Command;

use serde_json::{Value, json};
use weir_protocol::units::Bytes;

use super::finding::Finding;
use super::setup::{Setup, stats_of};
use crate::pair::Setting;
use crate::rig::Control;
use crate::stage;
use crate::worker::{self, Task};

/// Tells which routes are covered and whether every launch of a known number is counted.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    // So short that the simulated GPU's queue never fills.
    let rig = setup.rig_with("[[kernel]]\nname = \"bench_*\"\ntime_us = 0.001\n", "")?;
    let mut probe = Command::new(stage::dist()?.join("bin/weir-probe"));
    rig.environment(&mut probe);
    let output = probe.arg("--json").env("LD_PRELOAD", rig.preload()).output()?;
    let routes: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let mut control = Control::of(&rig)?;
    let created = control.create("lookup", 99, Bytes::gib(1))?;
    let setting = Setting {
        driver: rig.driver_directory(),
        preload: Some((rig.preload(), created.dir)),
        environment: rig.variables(),
    };
    let mut worker = setting.start(Task::Launch)?;
    worker.go()?;
    worker.figure()?;
    worker.finish()?;
    let made = worker::launches_of_rounds(1);
    let tenant = stats_of(&mut control, "lookup")?;
    let counted = tenant.gpus.first().map_or(0, |gpu| gpu.total.launches);
    let missed = unexpected(&routes);
    let line = format!(
        "{counted} of {made} launches counted; {}",
        if missed.is_empty() {
            "routes as promised".into()
        } else {
            format!("routes not as promised: {missed:?}")
        }
    );
    let holds = Some(counted == made && missed.is_empty() && !routes.is_null());
    let figures = json!({"made": made, "counted": counted, "probe": routes});
    Ok(Finding { holds, line, figures, ..Finding::default() })
}

/// Routes whose outcome is not the promised one.
fn unexpected(probe: &Value) -> Vec<String> {
    let routes = probe["routes"].as_array().map_or(&[][..], Vec::as_slice);
    let differs = |route: &&Value| route["caught"] != route["expected"] && !route["caught"].is_null();
    routes.iter().filter(differs).filter_map(|route| route["route"].as_str().map(str::to_owned)).collect()
}
