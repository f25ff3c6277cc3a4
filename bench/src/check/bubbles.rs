//! Bubbles: a training job whose host pauses after each step, as one does that waits for its data or its peers, and offline inference
//! that fills the pauses. What the job loses and how much of its idle time is filled: under `weir`, under a TGS-like controller, with
//! static shares, and under the driver's own time slices. Then the job as two processes that exchange through the host after each
//! step: PyTorch's through gloo, the twin's over a socket.

use std::io;

use serde::Serialize;
use serde_json::json;
use weir_nodemgr::control::policy::AskPolicy;
use weir_nodemgr::control::schema::ClassName;

use super::finding::{Figure, Finding};
use super::overhead;
use super::player::work::STEP;
use super::setup::{Setup, Wanted, tenant, wait};
use super::share::{self, rates};
use super::side::{Player, Side, Way};
use crate::rig::Control;
use crate::sample::most;

/// The job's pause after a step, the job that pauses by exchanging, and what fills it.
const PAUSE_US: u64 = 10_000;
const EXCHANGE: &str = "exchange";
const FILLER: &str = "graph";

/// Weir's default.
const OURS: &str = "weir";

/// Less idle time than this, in percent, is none that could be filled.
const LEAST_IDLE: f64 = 5.0;

/// A rule's outcome.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    side: &'static str,
    step: &'static str,
    rule: &'static str,
    /// The job's steps, of those alone, less 100 percent.
    loss_percent: f64,
    /// The filler's work, of what it gets done alone.
    filler_percent: f64,
    /// How much of the time the GPU has nothing of the job's to do, when that is alone.
    idle_percent: f64,
    /// The filler's work, of that idle time; nothing if there is none.
    filled_percent: Option<f64>,
}

/// How a pair is set up, and the rules that it is put under one after the other.
struct Setting {
    fills: bool, // the filler is one, and has no share of its own
    rules: &'static [Rule],
}

struct Rule {
    name: &'static str,
    policy: &'static str,
}

const SLICING: &str = "plain slicing";
const SETTINGS: [Setting; 2] = [
    // Ours first: it is judged.
    Setting { fills: true, rules: &[Rule { name: OURS, policy: OURS }, Rule { name: "tgs", policy: "tgs" }] },
    Setting { fills: false, rules: &[Rule { name: "static shares", policy: "static" }] },
];

/// Measures all of it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let mut outcomes = Vec::new();
    for (side, step, settings) in plan(setup) {
        let rig = setup.rig()?;
        let mut bare = Player::start_all(&rig, &side, &[(step, Way::Bare), (FILLER, Way::Bare)])?;
        let scene = Scene::open(setup, &side, step, &mut bare)?;
        scene.go(&mut bare)?;
        outcomes.push(scene.outcome(SLICING, scene.look(&mut bare)?));
        drop(bare);
        for setting in &SETTINGS[..settings] {
            scene.under(setting, &mut outcomes)?;
        }
    }
    Ok(found(&outcomes, &setup.without_torch()))
}

/// Who plays which job under how many settings. PyTorch takes its time to start: where it is the twin repeats only what is judged.
fn plan(setup: &Setup) -> Vec<(Side, &'static str, usize)> {
    let all = setup.of(SETTINGS.len(), 1);
    match setup.best_side() {
        Side::Twin => vec![(Side::Twin, STEP, all), (Side::Twin, EXCHANGE, all)],
        torch => vec![(torch.clone(), STEP, 1), (torch, EXCHANGE, all), (Side::Twin, STEP, 1)],
    }
}

struct Scene<'a> {
    setup: &'a Setup,
    side: &'a Side,
    step: &'static str,
    steps_alone_per_s: f64,
    filler_alone_per_s: f64,
    idle_percent: f64,
}

impl<'a> Scene<'a> {
    fn open(setup: &'a Setup, side: &'a Side, step: &'static str, bare: &mut [Player]) -> io::Result<Self> {
        let filler_alone_per_s = share::alone_of(setup, &mut bare[1])?;
        bare[0].round(5)?;
        // Steps with neither pause nor exchange between them: what one takes of the GPU.
        let step_s = bare[0].steps(30)? / 30.0;
        bare[0].go(&pause_us(step).to_string())?;
        wait(setup.time(1, 300));
        let steps_alone_per_s = mean(&rates(&mut bare[..1], 2, setup.time(2, 400))?[0]);
        bare[0].stop()?;
        let idle_percent = 100.0 * (1.0 - steps_alone_per_s * step_s);
        Ok(Self { setup, side, step, steps_alone_per_s, filler_alone_per_s, idle_percent })
    }

    /// The pair under Weir, by one rule after the other.
    fn under(&self, setting: &Setting, outcomes: &mut Vec<Outcome>) -> io::Result<()> {
        let rig = self.setup.rig()?;
        let mut control = Control::of(&rig)?;
        let job = tenant(&mut control, Wanted::class("job", ClassName::Primary, Some(50)))?;
        let filler = match setting.fills {
            true => tenant(&mut control, Wanted::class("filler", ClassName::Filler, None))?,
            false => tenant(&mut control, Wanted::share("filler", 50))?,
        };
        let ways = [(self.step, Way::Preload(&job)), (FILLER, Way::Preload(&filler))];
        let mut pair = Player::start_all(&rig, self.side, &ways)?;
        self.go(&mut pair)?;
        for rule in setting.rules {
            let wanted = AskPolicy { name: Some(rule.policy.to_owned()), ..AskPolicy::default() };
            control.client().policy(wanted).map_err(|fault| io::Error::other(fault.to_string()))?;
            outcomes.push(self.outcome(rule.name, self.look(&mut pair)?));
            self.setup.note(&found(outcomes, &self.setup.without_torch()))?;
        }
        Ok(())
    }

    fn go(&self, pair: &mut [Player]) -> io::Result<()> {
        pair[0].go(&pause_us(self.step).to_string())?;
        pair[1].go("")
    }

    /// Steps and filler's units in a second.
    fn look(&self, pair: &mut [Player]) -> io::Result<(f64, f64)> {
        wait(self.setup.time(3, 700)); // prices are learnt, rhythms foreseen
        let rates = rates(pair, self.setup.of(4, 2), self.setup.time(1, 500))?;
        Ok((mean(&rates[0]), mean(&rates[1])))
    }

    fn outcome(&self, rule: &'static str, (steps, filled): (f64, f64)) -> Outcome {
        let filler_percent = 100.0 * filled / self.filler_alone_per_s;
        let idle_percent = self.idle_percent;
        Outcome {
            side: overhead::name(self.side),
            step: self.step,
            rule,
            loss_percent: 100.0 * (1.0 - steps / self.steps_alone_per_s),
            filler_percent,
            idle_percent,
            filled_percent: (idle_percent >= LEAST_IDLE).then(|| 100.0 * filler_percent / idle_percent),
        }
    }
}

/// Who exchanges pauses by that.
fn pause_us(step: &str) -> u64 {
    if step == STEP { PAUSE_US } else { 0 }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn found(outcomes: &[Outcome], without_torch: &str) -> Finding {
    let told = outcomes.iter().map(|outcome| {
        let Outcome { side, step, rule, loss_percent, idle_percent, filled_percent, .. } = outcome;
        let filled = filled_percent.map_or("nothing to fill".into(), |filled| {
            format!("{filled:.0} % of the idle {idle_percent:.0} % filled")
        });
        format!("{side} {step} {rule}: loses {loss_percent:.1} %, {filled}")
    });
    let ours = || outcomes.iter().filter(|outcome| outcome.rule == OURS);
    let worst = most(ours().map(|outcome| outcome.loss_percent));
    // A filler that got nothing harms nobody, and in a job without pauses there is nothing to fill: then no loss says anything.
    let works = |outcome: &Outcome| {
        outcome.filler_percent > 0.0 && outcome.loss_percent < 60.0 && outcome.filled_percent.is_some()
    };
    Finding {
        holds: Some(ours().count() > 0 && ours().all(works)),
        line: told.collect::<Vec<_>>().join("; ") + without_torch,
        bars: vec![Figure::of("gpu.primary_loss_percent", worst)],
        figures: json!({"pause_us": PAUSE_US, "outcomes": outcomes}),
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_counts_only_beside_a_filler_that_got_on_in_pauses_that_there_are() {
        let outcome = |filler_percent, filled_percent| Outcome {
            side: "driver",
            step: STEP,
            rule: OURS,
            loss_percent: 0.0,
            filler_percent,
            idle_percent: 50.0,
            filled_percent,
        };
        assert_eq!(found(&[outcome(40.0, Some(80.0))], "").holds, Some(true));
        assert_eq!(found(&[outcome(40.0, Some(80.0)), outcome(0.0, Some(0.0))], "").holds, Some(false));
        assert_eq!(found(&[outcome(40.0, None)], "").holds, Some(false));
        assert_eq!(found(&[], "").holds, Some(false));
    }
}
