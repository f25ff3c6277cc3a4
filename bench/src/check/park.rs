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
    let (mut rows, mut lines, mut sound) = (Vec::new(), Vec::new(), true);
    for mib in setup.of(&HELD_MIB[..], &QUICK_MIB[..]) {
        let parked = park(&rig, &mut control, *mib)?;
        sound &= parked.sound;
        lines.push(parked.line);
        rows.push(parked.figures);
    }
    let figures = json!({"parked": rows});
    Ok(Finding { holds: Some(sound), line: lines.join("; "), figures, ..Finding::default() })
}

struct Parked {
    sound: bool,
    line: String,
    figures: serde_json::Value,
}

fn park(rig: &Rig, control: &mut Control, mib: u64) -> io::Result<Parked> {
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
        // A driver before CUDA 12.8, or in a container that hides the process: no promise is broken, and the driver's word stands.
        Err(fault) => return Ok(refused(&fault.to_string(), rig.is_simulated())),
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
        sound,
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

fn refused(why: &str, simulated: bool) -> Parked {
    Parked { sound: !simulated, line: format!("not parked: {why}"), figures: json!({"refused": why}) }
}
