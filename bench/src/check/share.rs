//! Share error: how far each tenant gets against how far the same program gets alone, in windows of a second. Events would not do:
//! beside a neighbour they count his time slices, too. Where the requests are all of the GPU, switching takes its part from all of
//! them: a share is one of what all together got. Beside it the same programs under the driver's own time slices.

use std::io;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::finding::{Figure, Finding};
use super::overhead;
use super::setup::{Setup, Wanted, tenant, wait};
use super::side::{Player, Progress, Side, Way};
use crate::rig::{Control, Rig};
use crate::sample::{most, quantile};

/// Who keeps the shares.
const WEIR: &str = "weir";

/// Tenants that share the GPU, and what all of them do.
struct Setting {
    requests: &'static [u16],
    work: &'static str,
    quick: bool, // also in the short form
}

const fn setting(requests: &'static [u16], work: &'static str, quick: bool) -> Setting {
    Setting { requests, work, quick }
}

const SETTINGS: [Setting; 8] = [
    setting(&[70, 30], "mix", true),
    setting(&[50, 50], "graph", true),
    setting(&[70, 30], "graph", false),
    setting(&[90, 10], "mix", false),
    setting(&[50, 50], "mix", false),
    setting(&[20, 20, 20, 20, 20], "mix", false),
    setting(&[90, 10], "graph", false),
    setting(&[60, 30], "mix", false),
];

/// The same with PyTorch's programs.
const TORCH: [Setting; 2] = [setting(&[70, 30], "train", false), setting(&[50, 50], "decode", false)];

/// The one that is measured where contexts run at once.
const AT_ONCE: Setting = setting(&[70, 30], "mix", true);

/// One case's outcome.
#[derive(Serialize)]
pub struct Case {
    side: &'static str,
    work: &'static str,
    requests_percent: &'static [u16],
    under: &'static str,
    alone_per_s: f64,
    /// Of each tenant, in each window, of its own rate alone.
    progress_percent: Vec<Vec<f64>>,
    share_percent: Vec<Vec<f64>>,
    worst_error_points: f64,
    /// All tenants together of what one gets alone.
    sum_percent: f64,
}

/// Measures all of it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let (mut cases, mut alone) = (Vec::new(), Alone::default());
    let twin = SETTINGS.iter().filter(|setting| setting.quick || !setup.quick);
    let mut all: Vec<_> = twin.map(|setting| (Side::Twin, setting)).collect();
    if let Ok(python) = &setup.torch {
        all.extend(TORCH.iter().map(|setting| (Side::Torch(python.clone()), setting)));
    }
    for (side, setting) in all {
        for weir in [true, false] {
            // Plain slicing knows no shares: one setting of each number of tenants says it all.
            let told = setting.requests.iter().all(|request| *request == setting.requests[0]);
            if weir || (told && !setup.quick) {
                let under = if weir { WEIR } else { "plain slicing" };
                cases.push(measure(setup, &setup.rig()?, &side, setting, under, &mut alone)?);
                setup.note(&found(setup, &cases))?;
            }
        }
    }
    Ok(found(setup, &cases))
}

impl Case {
    /// A few words for people.
    pub fn told(&self) -> String {
        let Self { side, work, under, worst_error_points: off, sum_percent: sum, .. } = self;
        let requests: Vec<_> = self.requests_percent.iter().map(u16::to_string).collect();
        format!("{side} {work} {} {under}: {off:.1} points off, {sum:.0} % in sum", requests.join("/"))
    }
}

/// What each work gets done alone, by side and work; measured once.
#[derive(Default)]
struct Alone(Vec<(&'static str, &'static str, f64)>);

impl Alone {
    fn of(&mut self, setup: &Setup, rig: &Rig, side: &Side, work: &'static str) -> io::Result<f64> {
        let key = (overhead::name(side), work);
        if let Some((.., rate)) = self.0.iter().find(|(side, work, _)| (*side, *work) == key) {
            return Ok(*rate);
        }
        let rate = alone(setup, rig, side, work)?;
        self.0.push((key.0, key.1, rate));
        Ok(rate)
    }
}

/// Shares where contexts run at once: on a node whose programs are MPS's clients, which Weir manages or does not.
pub fn at_once(setup: &Setup, rig: &Rig, managed: bool) -> io::Result<Case> {
    let under = if managed { WEIR } else { "MPS" };
    measure(setup, rig, &Side::Twin, &AT_ONCE, under, &mut Alone::default())
}

fn measure(
    setup: &Setup,
    rig: &Rig,
    side: &Side,
    setting: &Setting,
    under: &'static str,
    alone: &mut Alone,
) -> io::Result<Case> {
    let mut control = Control::of(rig)?;
    let alone_per_s = alone.of(setup, rig, side, setting.work)?;
    let make = |(number, percent): (usize, &u16)| {
        tenant(&mut control, Wanted::share(&format!("tenant{number}"), *percent))
    };
    let places = setting.requests.iter().enumerate().map(make).collect::<io::Result<Vec<_>>>()?;
    let way = |place| if under == WEIR { Way::Preload(place) } else { Way::Bare };
    let wanted: Vec<_> = places.iter().map(|place| (setting.work, way(place))).collect();
    let mut players = Player::start_all(rig, side, &wanted)?;
    players.iter_mut().try_for_each(|player| player.go(""))?;
    wait(setup.time(4, 1_500)); // prices are learnt, turns found
    let windows = rates(&mut players, setup.of(4, 2), setup.time(1, 500))?;
    let progress: Vec<Vec<f64>> =
        windows.iter().map(|rates| rates.iter().map(|rate| 100.0 * rate / alone_per_s).collect()).collect();
    let whole = setting.requests.iter().sum::<u16>() == 100;
    let share = |window: usize, tenant: usize| {
        let of = if whole { progress.iter().map(|all| all[window]).sum() } else { 100.0 };
        100.0 * progress[tenant][window] / of
    };
    let shares: Vec<Vec<f64>> = (0..players.len())
        .map(|tenant| (0..progress[tenant].len()).map(|w| share(w, tenant)).collect())
        .collect();
    let errors = setting.requests.iter().zip(&shares);
    let errors =
        errors.flat_map(|(request, shares)| shares.iter().map(|share| (share - f64::from(*request)).abs()));
    let mean = |row: &[f64]| row.iter().sum::<f64>() / row.len().max(1) as f64;
    Ok(Case {
        side: overhead::name(side),
        work: setting.work,
        requests_percent: setting.requests,
        under,
        alone_per_s,
        worst_error_points: most(errors),
        sum_percent: progress.iter().map(|row| mean(row)).sum(),
        progress_percent: progress,
        share_percent: shares,
    })
}

/// Units in a second of this work with nothing beside it.
pub fn alone(setup: &Setup, rig: &Rig, side: &Side, work: &str) -> io::Result<f64> {
    alone_of(setup, &mut Player::start(rig, side, work, Way::Bare)?)
}

/// The same of a player that waits for orders.
pub fn alone_of(setup: &Setup, player: &mut Player) -> io::Result<f64> {
    player.go("")?;
    wait(setup.time(1, 200));
    let windows = rates(std::slice::from_mut(player), setup.of(3, 2), setup.time(1, 400))?;
    player.stop()?;
    let mut rates = windows.into_iter().flatten().collect::<Vec<_>>();
    rates.sort_by(f64::total_cmp);
    Ok(quantile(&rates, 0.5))
}

/// Units in a second of each player in each of so many windows.
pub fn rates(players: &mut [Player], windows: usize, length: Duration) -> io::Result<Vec<Vec<f64>>> {
    let look =
        |players: &mut [Player]| players.iter_mut().map(Player::look).collect::<io::Result<Vec<Progress>>>();
    let mut rates = vec![Vec::new(); players.len()];
    let mut before = look(players)?;
    for _ in 0..windows {
        wait(length);
        let now = look(players)?;
        for (rates, (now, before)) in rates.iter_mut().zip(now.iter().zip(&before)) {
            // Of whom no unit came to its end nobody can say when it will.
            rates.push(if now.at_ns > before.at_ns { now.rate_since(*before) } else { 0.0 });
        }
        before = now;
    }
    Ok(rates)
}

fn found(setup: &Setup, cases: &[Case]) -> Finding {
    let under_weir = || cases.iter().filter(|case| case.under == WEIR);
    let worst = most(under_weir().map(|case| case.worst_error_points));
    let told = cases.iter().map(Case::told);
    // Where nothing else runs it is a few points; a share that nobody keeps is tens of points away.
    let kept = under_weir().all(|case| case.worst_error_points < 15.0);
    let all_got_on = under_weir()
        .all(|case| case.progress_percent.iter().all(|tenant| tenant.iter().any(|progress| *progress > 0.0)));
    Finding {
        holds: Some(kept && all_got_on && !cases.is_empty()),
        line: told.collect::<Vec<_>>().join("; ") + &setup.without_torch(),
        bars: vec![Figure::of("gpu.share_error_points", worst)],
        figures: json!({"cases": cases}),
        ..Finding::default()
    }
}
