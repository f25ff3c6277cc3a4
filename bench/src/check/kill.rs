//! Kill: programs are killed at any moment, in mid-launch, beside others. The others go on, at their pace, and all memory of the dead
//! comes back.

use std::io;
use std::time::Duration;

use serde_json::json;

use super::finding::{Figure, Finding};
use super::setup::{Setup, Wanted, stats_of, tenant, wait};
use super::share::rates;
use super::side::{Player, Side, Way};
use crate::live::Random;
use crate::rig::{Control, Rig};

/// How many are killed.
const KILLS: (usize, usize) = (20, 3);

/// What the neighbour may lose, in percent: its own work's time varies too.
const SLOWER: f64 = 25.0;

/// Kills and looks.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let place = tenant(&mut control, Wanted::share("neighbour", 50))?;
    let victims = tenant(&mut control, Wanted::share("victim", 50))?;
    let mut neighbour = Neighbour::start(setup, &rig, Way::Preload(&place))?;
    let mut random = Random(7);
    let works = ["mix", "graph", "tiny", "decode"];
    let (mut faults, mut left) = (Vec::new(), Vec::new());
    for n in 0..setup.of(KILLS.0, KILLS.1) {
        let mut victim = Player::start(&rig, &Side::Twin, works[n % works.len()], Way::Preload(&victims))?;
        victim.ask("hold 256", Duration::from_secs(2))?;
        victim.go("")?;
        wait(Duration::from_micros(20_000 + random.next() % 200_000));
        victim.kill()?;
        let gone = rig.wait_for("the dead one's memory", || {
            let gpu = stats_of(&mut control, "victim")?.gpus.into_iter().next();
            Ok(gpu.filter(|gpu| gpu.memory_held_bytes == 0).map(|_| ()))
        });
        if let Err(error) = gone {
            left.push(error.to_string());
        }
        faults.extend(neighbour.fault()?);
    }
    let kept = neighbour.kept_percent(setup)?;
    let killed = setup.of(KILLS.0, KILLS.1);
    let sound = faults.is_empty() && left.is_empty() && kept > 100.0 - SLOWER;
    Ok(Finding {
        holds: Some(sound),
        line: format!(
            "{killed} killed; neighbour: {} faults, {kept:.0} % of its pace afterwards; memory back {} times",
            faults.len(),
            killed - left.len()
        ),
        bars: vec![Figure::of("gpu.neighbour_faults", faults.len() as f64)],
        figures: json!({"killed": killed, "faults": faults, "left": left, "pace_percent": kept}),
        ..Finding::default()
    })
}

/// A program that must not be harmed.
pub struct Neighbour {
    player: Player,
    before_per_s: f64,
    done: f64,
}

impl Neighbour {
    /// Starts it, and sees how far it gets undisturbed.
    pub fn start(setup: &Setup, rig: &Rig, way: Way<'_>) -> io::Result<Self> {
        let mut player = Player::start(rig, &Side::Twin, "mix", way)?;
        player.ask("hold 64", Duration::from_secs(2))?;
        player.go("")?;
        wait(setup.time(1, 300));
        let before_per_s = rates(std::slice::from_mut(&mut player), 1, setup.time(2, 600))?[0][0];
        let done = player.look()?.done;
        Ok(Self { player, before_per_s, done })
    }

    /// What went wrong with it since the last look: it has failed, or stands still.
    pub fn fault(&mut self) -> io::Result<Option<String>> {
        let before = self.done;
        for _ in 0..50 {
            match self.player.look() {
                Err(error) => return Ok(Some(error.to_string())),
                Ok(now) if now.done > before => {
                    self.done = now.done;
                    return Ok(None);
                }
                Ok(_) => wait(Duration::from_millis(20)),
            }
        }
        Ok(Some("it stands still".into()))
    }

    /// Its pace now, of that before, in percent; and whether its memory is as it was.
    pub fn kept_percent(&mut self, setup: &Setup) -> io::Result<f64> {
        wait(setup.time(1, 300));
        let now_per_s = rates(std::slice::from_mut(&mut self.player), 1, setup.time(2, 600))?[0][0];
        self.player.stop()?;
        let checked = self.player.ask("check", Duration::from_secs(5))?;
        Ok(if checked["ok"] == true { 100.0 * now_per_s / self.before_per_s } else { f64::NAN })
    }
}
