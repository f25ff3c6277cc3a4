//! A memory limit that changes while the program runs: from the change to when `cuMemGetInfo` tells it, and to the first allocation that
//! is refused by it, or granted.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use weir_nodemgr::control::schema::{ClassName, SetBudget};
use weir_protocol::units::Bytes;

use super::setup::{Setup, Wanted, tenant};
use super::side::{Player, Side, Way, number};
use crate::clock::now;
use crate::rig::{Control, Rig};
use crate::sample::Spread;

/// The tenant and its two limits: contexts of two processes fit under the lower one.
const NAME: &str = "memory";
const LIMITS: [Bytes; 2] = [Bytes::mib(3_072), Bytes::mib(1_536)];

/// The piece that is asked for, and what is left under the lower limit: the piece fits under the upper one alone.
const PIECE_MIB: u64 = 128;
const LEFT_MIB: u64 = PIECE_MIB / 2;

/// What the tenant's other process launches, and its pauses in microseconds: a change is answered once a launch has seen it.
const LAUNCHES: &str = "100:132";
const PAUSE_US: u32 = 500;

/// Longest wait for a player that looks for the change without rest.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was found: microseconds from the change on.
#[derive(Default)]
pub struct Steps {
    told_us: Vec<f64>,
    bites_us: Vec<f64>,
    /// Changes of which nothing was ever seen.
    missing: usize,
}

/// Shrinks and grows the limit again and again, each time watched in another way.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "MiB of a card")]
pub fn measure(setup: &Setup, rig: &Rig, control: &mut Control) -> io::Result<Steps> {
    let wanted = Wanted { memory: LIMITS[0], ..Wanted::class(NAME, ClassName::Filler, None) };
    let place = tenant(control, wanted)?;
    let works = [("tiny", Way::Preload(&place)), (LAUNCHES, Way::Preload(&place))];
    let mut players = Player::start_all(rig, &Side::Twin, &works)?;
    players[1].go(&PAUSE_US.to_string())?;
    let player = &mut players[0];
    set(control, LIMITS[1])?;
    let free = number(&player.ask("view", Duration::ZERO)?, "free")?;
    let held_mib = (free / f64::from(1 << 20)) as u64;
    let held = held_mib.checked_sub(LEFT_MIB).ok_or_else(|| io::Error::other("contexts leave no room"))?;
    player.ask(&format!("hold {held}"), Duration::from_secs(2))?;
    set(control, LIMITS[0])?;
    let mut steps = Steps::default();
    for _ in 0..setup.of(20, 3) {
        for (to, bites) in [(LIMITS[1], "refused"), (LIMITS[0], "granted")] {
            let from = if to == LIMITS[0] { LIMITS[1] } else { LIMITS[0] };
            let told = change(player, control, to, &format!("until total {}", to.0))?;
            steps.add(told, |steps| &mut steps.told_us);
            set(control, from)?;
            let bitten = change(player, control, to, &format!("until {bites} {PIECE_MIB}"))?;
            steps.add(bitten, |steps| &mut steps.bites_us);
        }
    }
    Ok(steps)
}

/// From the change to what the player looks for, in microseconds, if it ever sees it.
fn change(player: &mut Player, control: &mut Control, to: Bytes, order: &str) -> io::Result<Option<f64>> {
    player.tell(order)?;
    super::setup::wait(LOOKS); // it looks by then
    let changed_ns = now();
    set(control, to)?;
    let said = player.answer(PATIENCE * 2)?;
    Ok(said["at_ns"].as_u64().map(|at| (at as f64 - changed_ns as f64) / 1e3))
}

/// How long a player may take to begin to look.
const LOOKS: Duration = Duration::from_millis(10);

fn set(control: &mut Control, memory: Bytes) -> io::Result<()> {
    let change = SetBudget { tenant: NAME.into(), memory_bytes: Some(memory.0), ..SetBudget::default() };
    control.client().set(change).map(drop).map_err(|fault| io::Error::other(fault.to_string()))
}

impl Steps {
    /// What was seen before the change was none of it.
    fn add(&mut self, seen: Option<f64>, row: impl Fn(&mut Self) -> &mut Vec<f64>) {
        match seen.filter(|us| *us > 0.0) {
            Some(us) => row(self).push(us),
            None => self.missing += 1,
        }
    }

    /// Whether every change was seen, in both ways.
    pub fn sound(&self) -> bool {
        self.missing == 0 && !self.told_us.is_empty() && !self.bites_us.is_empty()
    }

    /// A few words for people.
    pub fn told(&self) -> String {
        let (told, bites) = (Spread::of(&self.told_us), Spread::of(&self.bites_us));
        format!(
            "memory limits told after {:.0} us p50, {:.0} p99, and bite after {:.0} us p50, {:.0} p99; {} never seen",
            told.median, told.p99, bites.median, bites.p99, self.missing
        )
    }

    /// All of it.
    pub fn figures(&self) -> Value {
        json!({"told_us": self.told_us, "bites_us": self.bites_us, "missing": self.missing})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_nobody_saw_or_that_was_seen_too_early_is_missing() {
        let mut steps = Steps::default();
        steps.add(Some(40.0), |steps| &mut steps.told_us);
        steps.add(Some(90.0), |steps| &mut steps.bites_us);
        assert!(steps.sound());
        for wrong in [None, Some(-3.0)] {
            steps.add(wrong, |steps| &mut steps.told_us);
        }
        assert!(!steps.sound() && steps.missing == 2 && steps.told_us == [40.0]);
    }
}
