//! Stories for tests: tenants on one GPU, in simulated time. What a policy decides at the end of a tick holds in the next.

use weir_protocol::pages::{Gate, Grant, Stall};
use weir_protocol::units::{Bytes, Nanos, SmShare, Tokens};

use crate::{Class, Decision, Mode, Observation, Policy, Sample, Signals, Slo, Work, find};

/// From one tick to the next.
pub const TICK: Nanos = Nanos::from_millis(1);

/// Time moves by this within a tick.
const STEP_US: u64 = 100;

/// A better that wakes while fillers are open is behind them for so many steps: 400 us in flight, and the switch.
const BEHIND_STEPS: u64 = 4;

/// A primary that requested nothing and works.
pub fn tenant() -> Sample {
    Sample {
        tenant: 0,
        class: Class::Primary,
        request: SmShare::ZERO,
        limit: SmShare::FULL,
        memory_limit: Bytes::gib(1),
        memory_held: Bytes(0),
        outstanding: Nanos(0),
        idle_for: Nanos(0),
        work: Work::default(),
        slo: None,
    }
}

/// A filler.
pub fn filler() -> Sample {
    Sample { class: Class::Filler, ..tenant() }
}

/// A primary with this request.
pub fn primary(percent: u16) -> Sample {
    Sample { request: SmShare::percent(percent), ..tenant() }
}

/// A latency tenant with this request.
pub fn latency(percent: u16) -> Sample {
    Sample { class: Class::Latency, ..primary(percent) }
}

/// p95 below `target_ms`, and where it stands.
pub fn slo(target_ms: u64, recent_ms: Option<u64>) -> Option<Slo> {
    let recent = recent_ms.map(Nanos::from_millis);
    Some(Slo { quantile_permille: 950, target: Nanos::from_millis(target_ms), recent, counted: None })
}

/// What a tenant does at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Its work is on the GPU.
    Works,
    /// The same, and a neighbour at the same moment slows it to half its pace.
    Slowed,
    /// It waits at our gate.
    Waits,
    /// Its work is queued behind a neighbour's.
    Behind,
    /// Nothing.
    Idle,
}

#[derive(Clone, Copy)]
struct Actor {
    before: Doing,
    behind: u64,
    moved: bool,
    moved_at: Nanos,
}

/// A GPU, its tenants and its policy.
pub struct Story {
    policy: Box<dyn Policy>,
    /// What is seen of each tenant.
    pub samples: Vec<Sample>,
    /// How tenants meet on the GPU.
    pub mode: Mode,
    /// What comes from outside.
    pub signals: Signals,
    /// Time in which no better had work, ...
    pub idle: Nanos,
    /// ... what fillers were granted of it, ...
    pub filled: Nanos,
    /// ... and time in which betters were behind them.
    pub lost: Nanos,
    actors: Vec<Actor>,
    decisions: Vec<Decision>,
    now: Nanos,
}

impl Story {
    /// `samples` on a GPU under the policy of this name.
    pub fn new(policy: &str, samples: &[Sample]) -> Self {
        let row = find(policy).expect("a policy of this name");
        let actor = Actor { before: Doing::Idle, behind: 0, moved: false, moved_at: Nanos(0) };
        let numbered = samples.iter().zip(1..).map(|(sample, tenant)| Sample { tenant, ..*sample });
        Self {
            policy: (row.build)(),
            samples: numbered.collect(),
            mode: Mode::TimeSlicing,
            signals: Signals::default(),
            idle: Nanos(0),
            filled: Nanos(0),
            lost: Nanos(0),
            actors: vec![actor; samples.len()],
            decisions: Vec::new(),
            now: Nanos(0),
        }
    }

    /// `ms` pass in which these tenants work, and the others do nothing.
    pub fn run(&mut self, ms: u64, working: &[usize]) {
        self.play(ms, |who, _| if working.contains(&who) { Doing::Works } else { Doing::Idle });
    }

    /// `ms` pass. `script`: what a tenant does at a microsecond of this time.
    pub fn play(&mut self, ms: u64, script: impl Fn(usize, u64) -> Doing) {
        for at_us in (0..ms * 1_000).step_by(usize::try_from(STEP_US).expect("a small number")) {
            self.step(|who| script(who, at_us));
            self.now.0 += STEP_US * 1_000;
            if self.now.0.is_multiple_of(TICK.0) {
                self.tick();
            }
        }
    }

    fn step(&mut self, doing: impl Fn(usize) -> Doing) {
        let step = Nanos::from_micros(STEP_US);
        let open = self.opened();
        let mut idle = true;
        for who in 0..self.samples.len() {
            let (sample, actor) = (&mut self.samples[who], &mut self.actors[who]);
            let better = sample.class != Class::Filler;
            let mut now = doing(who);
            let works = |doing: Doing| matches!(doing, Doing::Works | Doing::Slowed);
            let wakes = actor.before == Doing::Idle && works(now);
            actor.moved |= now != Doing::Idle || actor.before != Doing::Idle;
            actor.before = now;
            actor.behind =
                if wakes && better && open > 0 { BEHIND_STEPS } else { actor.behind.saturating_sub(1) };
            if actor.behind > 0 && works(now) {
                now = Doing::Behind;
                self.lost.0 += step.0;
            }
            idle &= !better || now == Doing::Idle;
            sample.outstanding = if works(now) || now == Doing::Behind { TICK } else { Nanos(0) };
            let charged = match now {
                Doing::Works => step.0,
                Doing::Slowed => step.0 / 2,
                _ => 0,
            };
            sample.work.charged = Tokens(sample.work.charged.0 + charged.cast_signed());
            sample.work.stalls[stall(now) as usize].0 += step.0;
        }
        if idle {
            self.idle.0 += step.0;
            self.filled.0 += step.0 * open / 1_000_000;
        }
    }

    fn tick(&mut self) {
        for (sample, actor) in self.samples.iter_mut().zip(&mut self.actors) {
            actor.moved_at = if std::mem::take(&mut actor.moved) { self.now } else { actor.moved_at };
            sample.idle_for = self.now.since(actor.moved_at);
        }
        let Self { now, mode, signals, ref samples, .. } = *self;
        let seen = Observation { now, mode, signals, samples };
        self.decisions = self.policy.decide(&seen).to_vec();
    }

    /// What fillers of short units have together beyond closed gates, in millionths.
    fn opened(&self) -> u64 {
        let rows = self.samples.iter().zip(&self.decisions);
        let fits = |grant: &Grant| grant.back_at == Nanos(0) || self.now < grant.back_at;
        let is_open = |grant: &Grant| grant.gate == Gate::Open && fits(grant);
        let open = rows.filter(|(s, d)| s.class == Class::Filler && is_open(&d.grant));
        open.map(|(_, decision)| u64::from(decision.grant.rate.as_ppm())).sum()
    }

    /// The decision that holds for this tenant.
    pub fn decision(&self, who: usize) -> Decision {
        self.decisions[who]
    }

    /// Its rate in percent, rounded.
    pub fn percent(&self, who: usize) -> u32 {
        (self.decisions[who].grant.rate.as_ppm() + 5_000) / 10_000
    }

    /// Its state.
    pub fn state(&self, who: usize) -> &'static str {
        self.decisions[who].state
    }

    /// Whether its gate is open.
    pub fn is_open(&self, who: usize) -> bool {
        self.decisions[who].grant.gate != Gate::Closed
    }

    /// Part of the betters' idle time that fillers were granted, in percent.
    pub fn filled_percent(&self) -> u64 {
        self.filled.0 * 100 / self.idle.0.max(1)
    }
}

/// An iteration: works for `busy_us`, then nothing for `bubble_us`.
pub fn iterates(at_us: u64, busy_us: u64, bubble_us: u64) -> Doing {
    if at_us % (busy_us + bubble_us) < busy_us { Doing::Works } else { Doing::Idle }
}

fn stall(doing: Doing) -> Stall {
    match doing {
        Doing::Works | Doing::Slowed => Stall::Compute,
        Doing::Waits => Stall::Gate,
        Doing::Behind => Stall::Neighbour,
        Doing::Idle => Stall::Host,
    }
}
