//! Illegal access: one tenant's kernel writes where nothing is. Its own context is lost, with the driver's own code; separate processes
//! have separate contexts, and so its neighbour goes on. On the simulated GPU, whose kernels compute nothing, a fault that breaks the
//! context takes the kernel's place.

use std::io;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::finding::{Figure, Finding};
use super::kill::Neighbour;
use super::setup::{Setup, Wanted, stats_of, tenant};
use super::side::{Player, Way, furnish, number};
use crate::rig::{Control, Rig};

/// Name of the program that crashes, by which the simulated GPU knows it.
const CRASHER: &str = "weir-crasher";

/// `CUDA_ERROR_ILLEGAL_ADDRESS`.
const ILLEGAL_ADDRESS: f64 = 700.0;

/// How often.
const TIMES: (usize, usize) = (5, 2);

/// Crashes and looks.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    // 200 launches are its first unit, and the next one crashes.
    let fault = format!(
        "[[fault]]\ncall = \"cuLaunchKernel\"\nprocess = \"{CRASHER}\"\nnth = 201\naction = \"sticky:700\"\n"
    );
    let rig = setup.rig_with(&fault, "")?;
    let mut control = Control::of(&rig)?;
    let place = tenant(&mut control, Wanted::share("neighbour", 50))?;
    let crashing = tenant(&mut control, Wanted::share("crasher", 50))?;
    let mut neighbour = Neighbour::start(setup, &rig, Way::Preload(&place))?;
    let (mut faults, mut codes) = (Vec::new(), Vec::new());
    for _ in 0..setup.of(TIMES.0, TIMES.1) {
        codes.push(crash(&rig, Way::Preload(&crashing))?);
        faults.extend(neighbour.fault()?);
        rig.wait_for("the memory of who crashed", || {
            let gpu = stats_of(&mut control, "crasher")?.gpus.into_iter().next();
            Ok(gpu.filter(|gpu| gpu.memory_held_bytes == 0).map(|_| ()))
        })?;
    }
    let kept = neighbour.kept_percent(setup)?;
    let own = codes.iter().all(|code| *code == [ILLEGAL_ADDRESS; 2]);
    Ok(Finding {
        holds: Some(faults.is_empty() && own && kept > 50.0),
        line: format!(
            "{} crashes, each with the driver's own code: {own}; neighbour: {} faults, {kept:.0} % of its pace",
            codes.len(),
            faults.len()
        ),
        bars: vec![Figure::of("gpu.neighbour_faults", faults.len() as f64)],
        figures: json!({"codes": codes, "faults": faults, "pace_percent": kept}),
        ..Finding::default()
    })
}

/// The codes that a program hears whose kernel crashes: at once, and from then on.
fn crash(rig: &Rig, way: Way<'_>) -> io::Result<[f64; 2]> {
    let program = rig.directory().join(CRASHER);
    if !program.exists() {
        symlink(std::env::current_exe()?, &program)?;
    }
    let mut command = Command::new(program);
    command.args(["check-player", "tiny"]);
    furnish(rig, &mut command, way);
    let mut player = Player::of(command, CRASHER)?;
    let said = player.ask("crash", Duration::from_secs(5))?;
    Ok([number(&said, "code")?, number(&said, "again")?])
}
