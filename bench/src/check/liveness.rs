//! Liveness: throttled programs whose parts wait for each other, none of which may hang. Those of [`crate::live`]: kernels that spin
//! for flags which gated kernels set, streams that wait for words, host functions, locks that are held at the gate, captures beside
//! queries, processes that spin for each other; first each way in which a gate can deadlock, then random ones. PyTorch's own part
//! (`torch_live.py`) captures in one thread while another asks for events, and waits for kernels that sleep.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::finding::{Figure, Finding};
use super::setup::{Setup, Wanted, tenant};
use super::side::{Player, Side, Way, furnish, number, script};
use crate::live;
use crate::rig::Control;

/// For so long random programs follow those that are no matter of chance.
const RANDOM: (u64, u64) = (20, 1);

/// Tenants of 10 %, the first two of two processes each.
const TENANTS: (usize, usize) = (4, 2);

/// Runs them.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let seconds = setup.of(RANDOM.0, RANDOM.1);
    let outcome = live::check(setup.simulated, setup.of(TENANTS.0, TENANTS.1), Duration::from_secs(seconds))?;
    let mut hangs = outcome.hangs as f64;
    let mut finding = Finding {
        holds: Some(outcome.hangs == 0 && outcome.errors == 0 && outcome.programs > 0),
        line: format!(
            "{} programs, {} hung, {} failed; longest launch {:.0} ms",
            outcome.programs, outcome.hangs, outcome.errors, outcome.longest_launch_ms
        ),
        bars: vec![Figure::of("gpu.hangs", hangs)],
        figures: json!({"programs": outcome.figures}),
        ..Finding::default()
    };
    setup.note(&finding)?;
    if let Side::Torch(python) = setup.best_side() {
        let rig = setup.rig()?;
        let mut control = Control::of(&rig)?;
        let place = tenant(&mut control, Wanted::share("live", 10))?;
        let mut command = Command::new(python);
        command.arg("-u").arg(script("torch_live.py")?);
        furnish(&rig, &mut command, Way::Preload(&place));
        command.stdin(Stdio::null());
        let mut player = Player::of(command, "live")?;
        let said = player.answer(Duration::from_secs(40));
        let done = said.as_ref().is_ok_and(|said| number(said, "rounds").is_ok_and(|rounds| rounds > 0.0));
        hangs += f64::from(u8::from(!done));
        finding.holds = finding.holds.map(|holds| holds && done);
        finding.line +=
            &format!("; PyTorch: {}", said.as_ref().map_or_else(ToString::to_string, ToString::to_string));
        finding.figures["torch"] = said.unwrap_or_default();
        finding.bars = vec![Figure::of("gpu.hangs", hangs)];
    }
    finding.line += &setup.without_torch();
    Ok(finding)
}
