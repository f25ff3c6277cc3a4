//! Overhead: what Weir costs a program that is alone. The same program bare, under Weir, bare once more, in turns of a third of a
//! second; both bare ones together say what the machine itself varies by. Each is there all the time and waits for its turn.

use std::io;
use std::path::Path;

use serde::Serialize;
use serde_json::json;

use super::finding::{Figure, Finding};
use super::setup::{Setup, Wanted, file_name, tenant};
use super::side::{Player, Side, Way};
use crate::rig::{Control, Rig};
use crate::sample::{Spread, most};

/// What is run, by name in `player::work`, and in `torch_play.py`.
const WORKS: [&str; 5] = ["tiny", "graph", "matmul", "train", "decode"];

/// How long a round should take, in seconds; and in the short form.
const ROUND_S: (f64, f64) = (0.3, 0.05);

/// A program under one interposer and without.
#[derive(Serialize)]
struct Case {
    side: &'static str,
    work: &'static str,
    interposer: String,
    units: u64,
    bare_s: Spread,
    with_s: Spread,
    /// Added to a round, each with the bare one before it.
    added_percent: Spread,
    /// The same of the second bare program.
    noise_percent: Spread,
}

/// Measures all of it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let place = tenant(&mut control, Wanted::share("overhead", 100))?;
    let mut cases = Vec::new();
    let ours = Interposer { name: "libweir.so".into(), way: Way::Preload(&place) };
    let theirs =
        setup.others.iter().map(|other| Interposer { name: file_name(other), way: Way::Other(other) });
    // Others after all of ours: what is judged is there then, whatever becomes of them.
    for interposer in [ours].into_iter().chain(theirs) {
        for side in setup.sides() {
            measure(setup, &rig, &side, &interposer, &mut cases)?;
        }
    }
    Ok(found(setup, &cases))
}

struct Interposer<'a> {
    name: String,
    way: Way<'a>,
}

fn measure(
    setup: &Setup,
    rig: &Rig,
    side: &Side,
    interposer: &Interposer<'_>,
    cases: &mut Vec<Case>,
) -> io::Result<()> {
    let ways = [Way::Bare, interposer.way, Way::Bare].map(|way| (WORKS[0], way));
    let mut players = Player::start_all(rig, side, &ways)?;
    for work in WORKS {
        players.iter_mut().try_for_each(|player| player.take_up(work))?;
        cases.push(case(setup, side, work, interposer, &mut players)?);
        setup.note(&found(setup, cases))?;
    }
    Ok(())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of units")]
fn case(
    setup: &Setup,
    side: &Side,
    work: &'static str,
    interposer: &Interposer<'_>,
    players: &mut [Player],
) -> io::Result<Case> {
    let rounds = setup.of(9, 2);
    players[0].round(2)?; // kernels are loaded, and clocks come up
    let unit_s = players[0].round(5)? / 5.0;
    let units = (setup.of(ROUND_S.0, ROUND_S.1) / unit_s).ceil().clamp(1.0, 1e6) as u64;
    for player in players.iter_mut() {
        player.round(units)?; // prices are learnt, marks find their pace
    }
    let (mut bare_s, mut with_s, mut added, mut noise) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (bare, with, again) =
            (players[0].round(units)?, players[1].round(units)?, players[2].round(units)?);
        // The bare ones stand before and behind: a clock that drifts meets both alike.
        let between = f64::midpoint(bare, again);
        added.push(100.0 * (with / between - 1.0));
        noise.push(100.0 * (again / bare - 1.0));
        bare_s.push(between);
        with_s.push(with);
    }
    let spread = |samples: &[f64]| Spread::of(samples);
    Ok(Case {
        side: name(side),
        work,
        interposer: interposer.name.clone(),
        units,
        bare_s: spread(&bare_s),
        with_s: spread(&with_s),
        added_percent: spread(&added),
        noise_percent: spread(&noise),
    })
}

/// How figures call a side.
pub fn name(side: &Side) -> &'static str {
    match side {
        Side::Twin => "driver",
        Side::Torch(_) => "torch",
    }
}

fn found(setup: &Setup, cases: &[Case]) -> Finding {
    let ours = || cases.iter().filter(|case| Path::new(&case.interposer) == Path::new("libweir.so"));
    // The promise is PyTorch's; where it is not there the driver's own calls stand for it, and the line says so.
    let torch = ours().any(|case| case.side == "torch");
    let judged = || ours().filter(|case| !torch || case.side == "torch");
    let worst = most(judged().map(|case| case.added_percent.median));
    let each: Vec<String> = cases.iter().map(Case::told).collect();
    let whole = ours().all(|case| case.bare_s.min > 0.0 && case.with_s.min > 0.0);
    let line = format!("{}{}", each.join(", "), setup.without_torch());
    Finding {
        holds: Some(whole && !cases.is_empty()),
        line,
        bars: vec![Figure::of("gpu.overhead_percent", worst)],
        figures: json!({"cases": cases}),
        ..Finding::default()
    }
}

impl Case {
    fn told(&self) -> String {
        let Spread { median, min, max, .. } = self.added_percent;
        let of =
            if self.interposer == "libweir.so" { String::new() } else { format!(" ({})", self.interposer) };
        format!("{} {}{of} {median:+.2} % ({min:+.1} to {max:+.1})", self.side, self.work)
    }
}
