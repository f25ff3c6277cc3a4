//! What tenants are charged whose kernels run at once, as under MPS: the time is divided by the SMs that each one's kernels hold
//! (gpu-truths, rule 12), so that all together are charged what has gone by, and a narrow one less than its neighbour.

use std::io;
use std::time::Duration;

use serde::Serialize;
use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::Bytes;

use super::player::work::WIDE;
use super::setup::{Setup, Wanted, stats_of, tenant, wait};
use super::side::{self, Player, Side, Way};
use crate::clock::now;
use crate::rig::{Control, Rig};

/// Microseconds of each kernel.
const UNIT_US: u32 = 1_000;

/// Blocks of both tenants' kernels: one on each SM, where the card has so many.
const BLOCKS: [[u32; 2]; 3] = [[WIDE, WIDE], [WIDE / 2, WIDE], [WIDE / 8, WIDE]];

/// So far the charge of all may be from what has gone by, in percent: less means that somebody ran for nothing.
const SUM_PERCENT: std::ops::RangeInclusive<f64> = 85.0..=110.0;

/// Two tenants at once.
#[derive(Clone, Debug, Serialize)]
pub struct Charge {
    blocks: [u32; 2],
    /// Of the time that went by, in percent.
    charged_percent: [f64; 2],
    /// What their SMs come to, in percent.
    expected_percent: [f64; 2],
}

impl Charge {
    /// Whether both together were charged what went by, each something.
    pub fn is_whole(&self) -> bool {
        SUM_PERCENT.contains(&self.charged_percent.iter().sum())
            && self.charged_percent.iter().all(|percent| *percent > 0.0)
    }

    /// A few words for people.
    pub fn told(&self) -> String {
        let Self { blocks: [one, other], charged_percent: [first, second], expected_percent: [a, b] } = self;
        format!("{one} blocks beside {other} charged {first:.0} and {second:.0} % (by SMs {a:.0} and {b:.0})")
    }
}

/// Measures each pair on a node whose programs are MPS's clients and which manages them; tells each.
pub fn measure(setup: &Setup, rig: &Rig, mut tell: impl FnMut(Charge) -> io::Result<()>) -> io::Result<()> {
    let costs = Player::start(rig, &Side::Twin, "5:1", Way::Bare)?.ask("costs", Duration::from_secs(3))?;
    let sms = side::number(&costs, "sms")?;
    for (number, blocks) in setup.of(&BLOCKS[..], &BLOCKS[1..]).iter().enumerate() {
        let held = blocks.map(|blocks| f64::from(blocks).min(sms));
        let expected_percent = held.map(|own| 100.0 * own / held.iter().sum::<f64>());
        tell(pair(setup, rig, number, *blocks, expected_percent)?)?;
    }
    Ok(())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a hundred")]
fn pair(
    setup: &Setup,
    rig: &Rig,
    number: usize,
    blocks: [u32; 2],
    expected_percent: [f64; 2],
) -> io::Result<Charge> {
    let mut control = Control::of(rig)?; // the pair's own: with it what they were guaranteed ends
    let names = ["a", "b"].map(|which| format!("weight{number}{which}"));
    let mut players = Vec::new();
    for ((name, blocks), percent) in names.iter().zip(blocks).zip(expected_percent) {
        // With a guarantee of what it holds, or less by a bit, nobody is held back for the other one.
        let request = Some(percent as u16);
        let wanted = Wanted { memory: Bytes::gib(1), ..Wanted::class(name, ClassName::Primary, request) };
        let place = tenant(&mut control, wanted)?;
        players.push(Player::start(rig, &Side::Twin, &format!("{UNIT_US}:{blocks}"), Way::Preload(&place))?);
    }
    players.iter_mut().try_for_each(|player| player.go(""))?;
    wait(setup.time(2, 600)); // prices and weights are learnt
    let before = charged_ns(&mut control, &names)?;
    wait(setup.time(2, 800));
    let after = charged_ns(&mut control, &names)?;
    let passed_ns = (after.0 - before.0) as f64;
    let charged_percent = [0, 1].map(|which| 100.0 * (after.1[which] - before.1[which]) as f64 / passed_ns);
    Ok(Charge { blocks, charged_percent, expected_percent })
}

/// What each was charged so far, and when that was.
fn charged_ns(control: &mut Control, names: &[String; 2]) -> io::Result<(u64, [u64; 2])> {
    let mut charged = [0; 2];
    for (charged, name) in charged.iter_mut().zip(names) {
        *charged = stats_of(control, name)?.gpus.first().map_or(0, |gpu| gpu.total.charged_ns);
    }
    Ok((now(), charged))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_nobody_was_charged_or_all_of_which_one_was_is_not_whole() {
        let charge =
            |charged_percent| Charge { blocks: [66, 132], charged_percent, expected_percent: [33.3, 66.7] };
        assert!(charge([34.0, 65.0]).is_whole());
        assert!(!charge([20.0, 40.0]).is_whole() && !charge([99.0, 99.0]).is_whole());
        assert!(!charge([0.0, 100.0]).is_whole());
    }
}
