//! Overhead alone: tiny kernels through the driver API, and PyTorch where it is installed.

use std::io;
use std::process::Command;

use serde_json::{Value, json};
use weir_protocol::units::Bytes;

use super::{Finding, Setup};
use crate::pair::{Setting, all_of, take_turns};
use crate::rig::{Control, Rig};
use crate::sample::Spread;
use crate::stage;
use crate::worker::Task;

/// The bar: percent more than without Weir (`gpu.overhead_percent`).
const LIMIT_PERCENT: f64 = 0.5;

/// Measures the driver API client and, on a real GPU, PyTorch.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let created = control.create("overhead", 100, Bytes::gib(8))?;
    let bare = Setting { driver: rig.driver_directory(), preload: None, environment: rig.variables() };
    let with = Setting { preload: Some((rig.preload(), created.dir.clone())), ..bare.clone() };
    let rounds = if setup.quick { 3 } else { 15 };
    let [bare_ns, with_ns] = take_turns([(&bare, Task::Launch), (&with, Task::Launch)], 1, rounds)?;
    let (bare_ns, with_ns) = (Spread::of(&all_of(&bare_ns)), Spread::of(&all_of(&with_ns)));
    let added = with_ns.median - bare_ns.median;
    let torch = torch(&rig, &created.dir, setup)?;
    let mut line = format!("{added:.0} ns added to a launch of {:.0} ns", bare_ns.median);
    let mut holds = None;
    if let Some(percent) = torch["step_overhead_percent"].as_f64() {
        holds = Some(percent <= LIMIT_PERCENT);
        line += &format!("; PyTorch training step {percent:+.2} % (limit {LIMIT_PERCENT} %)");
    } else {
        line += "; PyTorch: not run";
    }
    let figures = json!({"bare_ns": bare_ns, "weir_ns": with_ns, "added_ns": added, "torch": torch});
    Ok(Finding { holds, line, figures })
}

/// PyTorch bare and under Weir, in turns; null where it cannot run.
fn torch(rig: &Rig, place: &std::path::Path, setup: &Setup) -> io::Result<Value> {
    let importable =
        Command::new("python3").args(["-c", "import torch; assert torch.cuda.is_available()"]).output();
    if setup.simulated || !importable.is_ok_and(|output| output.status.success()) {
        return Ok(Value::Null); // PyTorch contains libcudart, which the simulated driver refuses
    }
    let script = stage::dist()?.join("check/torch_steps.py");
    let run = |preloaded: bool| -> io::Result<Value> {
        let mut command = Command::new("python3");
        command.arg(&script);
        rig.environment(&mut command);
        if preloaded {
            command.env("LD_PRELOAD", rig.preload()).env("WEIR_DIR", place);
        }
        serde_json::from_slice(&command.output()?.stdout).map_err(io::Error::other)
    };
    let (mut bare, mut with) = (Vec::new(), Vec::new());
    for _ in 0..if setup.quick { 2 } else { 5 } {
        bare.push(run(false)?["step_ms"].as_f64().unwrap_or(f64::NAN));
        with.push(run(true)?["step_ms"].as_f64().unwrap_or(f64::NAN));
    }
    let (bare, with) = (Spread::of(&bare), Spread::of(&with));
    let percent = 100.0 * (with.median / bare.median - 1.0);
    Ok(json!({"bare_step_ms": bare, "weir_step_ms": with, "step_overhead_percent": percent}))
}
