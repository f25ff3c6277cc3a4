//! Kinds of work beside each other where contexts run at once (MPS): by how much each slows the other down, as predictions of what goes
//! well together want it; and what the lower one of MPS's two priorities changes.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use super::setup::{Setup, wait};
use super::share;
use super::side::{Player, Side, Way};
use crate::rig::Rig;

/// Work that leaves no room on the SMs (16 blocks of 128 threads on each of 132), the same in an eighth of the room, and copies within the
/// memory.
const KINDS: [(&str, &str); 3] = [("wide", "1000:2112"), ("narrow", "1000:264"), ("copies", "within:64")];

/// The second one of a pair, if it is below the first.
const BELOW: (&str, &str) = ("CUDA_MPS_CLIENT_PRIORITY", "1");

/// Two kinds of work at once.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    kinds: [&'static str; 2],
    /// Whether the second one has the lower priority.
    below: bool,
    /// How much longer each takes than alone; nothing of one that did not get on at all.
    slower: [Option<f64>; 2],
}

impl Pair {
    /// A few words for people.
    pub fn told(&self) -> String {
        let [one, other] = self.kinds;
        let slower = |slower: Option<f64>| slower.map_or("at a standstill".into(), |by| format!("{by:.2}x"));
        let [first, second] = self.slower.map(slower);
        let below = if self.below { " below it" } else { "" };
        format!("{one} beside {other}{below} {first} and {second}")
    }
}

/// Measures all pairs of kinds, and those with the widest once more with two priorities; tells each.
pub fn measure(setup: &Setup, rig: &mut Rig, mut tell: impl FnMut(Pair) -> io::Result<()>) -> io::Result<()> {
    let alone = |(_, work): (&str, &str)| share::alone(setup, rig, &Side::Twin, work);
    let alone_per_s = KINDS.into_iter().map(alone).collect::<io::Result<Vec<_>>>()?;
    let all = (0..KINDS.len()).flat_map(|one| (one..KINDS.len()).map(move |other| (one, other)));
    let alike: Vec<_> = all.take(setup.of(usize::MAX, 2)).collect();
    let below = (0..KINDS.len()).map(|other| ((0, other), true)).take(setup.of(usize::MAX, 0));
    for (kinds, below) in alike.into_iter().map(|kinds| (kinds, false)).chain(below) {
        tell(pair(setup, rig, kinds, &alone_per_s, below)?)?;
    }
    Ok(())
}

fn pair(
    setup: &Setup,
    rig: &mut Rig,
    (one, other): (usize, usize),
    alone_per_s: &[f64],
    below: bool,
) -> io::Result<Pair> {
    let mut players = vec![Player::start(rig, &Side::Twin, KINDS[one].1, Way::Bare)?];
    if below {
        rig.add_variables(vec![(BELOW.0, PathBuf::from(BELOW.1))]);
    }
    let second = Player::start(rig, &Side::Twin, KINDS[other].1, Way::Bare);
    rig.remove_variable(BELOW.0);
    players.push(second?);
    players.iter_mut().try_for_each(|player| player.go(""))?;
    wait(setup.time(1, 200));
    let rates = share::rates(&mut players, 1, setup.time(2, 600))?;
    players.iter_mut().try_for_each(Player::stop)?;
    let slower =
        |place: usize, kind: usize| (rates[place][0] > 0.0).then(|| alone_per_s[kind] / rates[place][0]);
    Ok(Pair { kinds: [KINDS[one].0, KINDS[other].0], below, slower: [slower(0, one), slower(1, other)] })
}
