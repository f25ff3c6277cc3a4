//! Bubbles: a training job whose host pauses after each step, as one does that waits for its data or its peers, and offline inference
//! that fills the pauses. What the job loses and how much of its idle time is filled: under `weir`, under a TGS-like controller, with
//! static shares, and under the driver's own time slices. PyTorch's job also as two processes that exchange through gloo.

use std::io;

use serde::Serialize;
use serde_json::json;
use weir_nodemgr::control::schema::ClassName;

use super::finding::{Figure, Finding};
use super::overhead;
use super::setup::{Setup, Wanted, tenant, wait};
use super::share::{self, rates};
use super::side::{Player, Side, Way};
use crate::rig::Control;
use crate::sample::most;

/// The job's step, its pause, and what fills it.
const STEP: &str = "train";
const PAUSE_US: u64 = 10_000;
const FILLER: &str = "graph";

/// Weir's default.
const OURS: &str = "weir";

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
    /// The same, of the job's idle time.
    filled_percent: f64,
}

/// How a rule is set up.
#[derive(Clone, Copy)]
struct Rule {
    name: &'static str,
    policy: Option<&'static str>, // nobody's: plain slicing
    fills: bool,                  // the filler is one, and has no share of its own
}

const SLICING: Rule = Rule { name: "plain slicing", policy: None, fills: false };
const RULES: [Rule; 3] = [
    Rule { name: OURS, policy: Some(OURS), fills: true },
    Rule { name: "tgs", policy: Some("tgs"), fills: true },
    Rule { name: "static shares", policy: Some("static"), fills: false },
];

/// Measures all of it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let mut outcomes = Vec::new();
    for side in setup.sides() {
        // PyTorch takes its time to start: some rules are the twin's alone.
        let plan: &[(&'static str, usize)] = match side {
            Side::Twin => &[(STEP, RULES.len())],
            Side::Torch(_) => &[(STEP, 2), ("exchange", 1)],
        };
        for (step, rules) in plan {
            let rig = setup.rig()?;
            let mut bare = Player::start_all(&rig, &side, &[(step, Way::Bare), (FILLER, Way::Bare)])?;
            let scene = Scene::open(setup, &side, step, &mut bare)?;
            outcomes.push(scene.outcome(SLICING, scene.beside(&mut bare)?));
            drop(bare);
            for rule in &RULES[..setup.of(*rules, 1)] {
                outcomes.push(scene.measure(*rule)?);
                setup.note(&found(setup, &outcomes))?;
            }
        }
    }
    Ok(found(setup, &outcomes))
}

struct Scene<'a> {
    setup: &'a Setup,
    side: &'a Side,
    step: &'static str,
    steps_alone_per_s: f64,
    filler_alone_per_s: f64,
    busy_percent: f64,
}

impl<'a> Scene<'a> {
    fn open(setup: &'a Setup, side: &'a Side, step: &'static str, bare: &mut [Player]) -> io::Result<Self> {
        let filler_alone_per_s = share::alone_of(setup, &mut bare[1])?;
        bare[0].round(5)?;
        // Steps with no pause between them: what one takes of the GPU, and of the exchange where that is its pause.
        let step_s = bare[0].round(30)? / 30.0;
        bare[0].go(&pause_us(step).to_string())?;
        wait(setup.time(1, 300));
        let steps_alone_per_s = mean(&rates(&mut bare[..1], 2, setup.time(2, 400))?[0]);
        bare[0].stop()?;
        let busy_percent = (100.0 * steps_alone_per_s * step_s).min(100.0);
        Ok(Self { setup, side, step, steps_alone_per_s, filler_alone_per_s, busy_percent })
    }

    fn measure(&self, rule: Rule) -> io::Result<Outcome> {
        let policy = rule.policy.map_or_else(String::new, |policy| format!("policy = \"{policy}\"\n"));
        let rig = self.setup.rig_with("", &policy)?;
        let mut control = Control::of(&rig)?;
        let job = tenant(&mut control, Wanted::class("job", ClassName::Primary, Some(50)))?;
        let filler = match rule.fills {
            true => tenant(&mut control, Wanted::class("filler", ClassName::Filler, None))?,
            false => tenant(&mut control, Wanted::share("filler", 50))?,
        };
        let ways = [(self.step, Way::Preload(&job)), (FILLER, Way::Preload(&filler))];
        let mut pair = Player::start_all(&rig, self.side, &ways)?;
        Ok(self.outcome(rule, self.beside(&mut pair)?))
    }

    /// Steps and filler's units in a second.
    fn beside(&self, pair: &mut [Player]) -> io::Result<(f64, f64)> {
        pair[0].go(&pause_us(self.step).to_string())?;
        pair[1].go("")?;
        wait(self.setup.time(3, 700)); // prices are learnt, rhythms foreseen
        let rates = rates(pair, self.setup.of(4, 2), self.setup.time(1, 500))?;
        Ok((mean(&rates[0]), mean(&rates[1])))
    }

    fn outcome(&self, rule: Rule, (steps, filled): (f64, f64)) -> Outcome {
        let filler_percent = 100.0 * filled / self.filler_alone_per_s;
        Outcome {
            side: overhead::name(self.side),
            step: self.step,
            rule: rule.name,
            loss_percent: 100.0 * (1.0 - steps / self.steps_alone_per_s),
            filler_percent,
            filled_percent: 100.0 * filler_percent / (100.0 - self.busy_percent).max(1.0),
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

fn found(setup: &Setup, outcomes: &[Outcome]) -> Finding {
    let told = outcomes.iter().map(|outcome| {
        let Outcome { side, step, rule, loss_percent, filled_percent, .. } = outcome;
        format!("{side} {step} {rule}: loses {loss_percent:.1} %, {filled_percent:.0} % of idle time filled")
    });
    let ours = outcomes.iter().filter(|outcome| outcome.rule == OURS);
    let worst = most(ours.clone().map(|outcome| outcome.loss_percent));
    // A filler that got nothing harms nobody: then no loss says anything.
    let works = ours.clone().all(|outcome| outcome.filler_percent > 0.0 && outcome.loss_percent < 60.0);
    Finding {
        holds: Some(works && !outcomes.is_empty()),
        line: told.collect::<Vec<_>>().join("; ") + &setup.without_torch(),
        bars: vec![Figure::of("gpu.primary_loss_percent", worst)],
        figures: json!({"pause_us": PAUSE_US, "outcomes": outcomes}),
        ..Finding::default()
    }
}
