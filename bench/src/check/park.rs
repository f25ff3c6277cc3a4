//! Park: an idle tenant's memory goes to the host by the driver's checkpoint, and comes back with its next call, as it was.

use std::io;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::Bytes;

use super::finding::Finding;
use super::setup::{Setup, Wanted, stats_of, tenant, wait};
use super::side::{Player, Side, Way, number};
use crate::rig::{Control, Rig};

/// What the tenant holds beside its context, in MiB.
const HELD_MIB: [u64; 2] = [1_024, 4_096];
const QUICK_MIB: [u64; 1] = [256];

/// How long the tenant has been idle before.
const IDLE: Duration = Duration::from_millis(300);

/// Parks and brings back.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let (mut rows, mut lines, mut judged) = (Vec::new(), Vec::new(), Vec::new());
    for mib in setup.of(&HELD_MIB[..], &QUICK_MIB[..]) {
        let parked = park(&rig, &mut control, *mib)?;
        judged.push(parked.holds);
        lines.push(parked.line);
        rows.push(parked.figures);
    }
    let figures = json!({"parked": rows});
    Ok(Finding { holds: all(judged.into_iter()), line: lines.join("; "), figures, ..Finding::default() })
}

/// One tenant's memory, out and back.
pub struct Parked {
    holds: Option<bool>,
    line: String,
    /// Everything measured: `bytes`, `out_s`, `back_s` among it; or why it was refused.
    pub figures: serde_json::Value,
}

/// Parks a tenant that holds so much beside its context, and brings it back by its next call.
pub fn park(rig: &Rig, control: &mut Control, mib: u64) -> io::Result<Parked> {
    let name = format!("park{mib}");
    let wanted = Wanted { memory: Bytes::mib(mib + 2_048), ..Wanted::class(&name, ClassName::Filler, None) };
    let place = tenant(control, wanted)?;
    let mut player = Player::start(rig, &Side::Twin, "train", Way::Preload(&place))?;
    player.round(20)?;
    let hold = player.ask(&format!("hold {mib}"), Duration::from_secs(5))?;
    wait(IDLE);
    let start = Instant::now();
    let done = match control.client().park(&name) {
        Ok(done) => done,
        Err(fault) => return Ok(refused(&fault.to_string())),
    };
    let out_s = start.elapsed().as_secs_f64();
    let away = stats_of(control, &name)?;
    let held_meanwhile = away.gpus.first().map_or(0, |gpu| gpu.memory_held_bytes);
    let start = Instant::now();
    player.round(1)?; // its first call brings it back
    let back_s = start.elapsed().as_secs_f64();
    let checked = player.ask("check", Duration::from_secs(10))?;
    let goes_on = player.round(20)?;
    let gib = done.memory_bytes as f64 / f64::from(1 << 30);
    let sound = number(&hold, "code")? == 0.0
        && checked["ok"] == true
        && held_meanwhile == 0
        && away.state == "parked";
    Ok(Parked {
        holds: Some(sound),
        line: format!(
            "{} out in {out_s:.2} s ({:.2} s/GiB), back in {back_s:.2} s, memory {}",
            Bytes(done.memory_bytes),
            out_s / gib,
            if checked["ok"] == true { "as it was" } else { "NOT as it was" }
        ),
        figures: json!({
            "held_mib": mib, "bytes": done.memory_bytes, "out_s": out_s, "back_s": back_s, "state": away.state,
            "held_meanwhile_bytes": held_meanwhile, "checked": checked, "goes_on_s": goes_on,
        }),
    })
}

/// A park that was refused: where the driver takes no checkpoints of this process nothing can be judged, and its word stands. Any
/// other refusal is a failure, our own most of all.
fn refused(why: &str) -> Parked {
    let holds = (!is_unsupported(why)).then_some(false);
    let word = if holds.is_none() { "cannot be judged" } else { "not parked" };
    Parked { holds, line: format!("{word}: {why}"), figures: json!({"refused": why}) }
}

/// Whether the driver has no checkpoints at all (before CUDA 12.8, as the node manager tells it), or answers one of their calls that
/// this system has none: of the codes that its reference lists for them the only one that says so.
fn is_unsupported(why: &str) -> bool {
    let answered = why.contains("cuCheckpointProcess") && why.contains("CUDA_ERROR_NOT_SUPPORTED");
    why.contains("the driver takes no checkpoints") || answered
}

/// Of several parks: one that fails fails all; none is judged if one could not be.
fn all(parks: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    parks.reduce(|all, next| match (all, next) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_driver_without_checkpoints_is_no_failure() {
        let driver =
            "the driver does not lock process 7: cuCheckpointProcessLock answered CUDA_ERROR_NOT_SUPPORTED";
        for why in [driver, "the driver takes no checkpoints: no symbol cuCheckpointProcessGetState"] {
            assert_eq!(refused(why).holds, None, "{why}");
        }
        let busy =
            "the driver does not lock process 7: cuCheckpointProcessLock answered CUDA_ERROR_NOT_READY";
        let ours = "the tenant has called the driver meanwhile: it is not idle";
        for why in [busy, ours, "CUDA_ERROR_NOT_SUPPORTED", ""] {
            assert_eq!(refused(why).holds, Some(false), "{why}");
        }
    }

    #[test]
    fn one_park_that_fails_fails_the_story_and_one_that_was_not_judged_leaves_it_open() {
        assert_eq!(all([Some(true), Some(true)].into_iter()), Some(true));
        assert_eq!(all([Some(true), None].into_iter()), None);
        assert_eq!(all([None, Some(false)].into_iter()), Some(false));
        assert_eq!(all([].into_iter()), None);
    }
}
