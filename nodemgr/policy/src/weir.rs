//! `weir`: the most filler work subject to the promises. The default.
//!
//! *Problem.* Latency tenants have a promise to keep, primaries must not be slowed, and whatever time neither needs shall be
//! worked in. Bubbles, latency and interference each tell a part of it.
//!
//! *Approach.* In this order:
//!
//! 1. *Latency against SLO.* Whoever breaks its promise borrows first, and nothing of its time goes to fillers. Whoever
//!    keeps it lends what it does not need, step by step ([`slack`](crate::slack); gpu-truths 2a).
//! 2. *True slowdown.* How much longer the same work of those who tell no latency is on the SMs, so that neither our gate's nor
//!    the neighbours' slices count (gpu-truths, rule 3), nor larger requests (papers 1.5, weakness 7), moves the level of the
//!    fillers by RCKM's law ([`pressure`](crate::pressure)).
//! 3. *Bubbles.* While all betters are drained the fillers are open: at once where the bubble is foretold, after a tick
//!    otherwise. What a wake then costs a primary is paid from its [`purse`](crate::purse). How much fillers may queue
//!    grows with the time that nobody woke.
//!
//! Debt never delays a latency tenant in favour of a filler (rule 4): floors come on top of the GPU, and its bucket holds
//! what accrues in ten seconds. Outside signals scale what all fillers have together. Among tenants of which none is a
//! filler or promised anything this is `static`.
//!
//! ```text
//!   BUSY       a better works, and nobody of those who work has slack     requests
//!   EMERGENCY  the same, and a promise is broken or bursts are stretched  requests
//!   SLACK      all betters who work have slack                            the least slack among them
//!   SUSPECT    drained, and it may be over at once                        requests
//!   FILL       a bubble                                                   the level
//!   OPEN       nobody has moved for long                                  the level, long queues
//! ```
//!
//! *What always holds*: see `tests/every_policy.rs`.

use weir_protocol::units::{Nanos, Tokens};

use crate::bursts::{Bursts, Edge};
use crate::grants::{IN_FLIGHT_CAP, LONG_CAP, SHORT_CAP};
use crate::lend::FULL;
use crate::lull::{Lull, Watch, is_working};
use crate::memory::Memory;
use crate::pools::{Opened, Opening, Pools, is_filler};
use crate::pressure::{Level, Stretch, Verdict};
use crate::promise::{self, Promise};
use crate::purse::{PART, Purse};
use crate::slack::Slack;
use crate::{Class, Decision, Observation, Policy, Sample};

/// A gap of so long ends a burst, as a whole tick saw nothing of the tenant.
const QUIET: Nanos = Nanos::from_millis(1);

/// Drained for so long is a bubble, if it was not foretold.
const FILL_AFTER: Nanos = Nanos::from_millis(1);

/// Nobody has moved for long: no bubble of an iteration is as long as this.
const OPEN_AFTER: Nanos = Nanos::from_millis(200);

/// A switch of the GPU from one tenant to another, about (design 9).
const SWITCH: Nanos = Nanos::from_micros(100);

/// A latency tenant's request is a guarantee over this long (gpu-truths, rule 4).
const LONG_RUN: Nanos = Nanos::from_secs(10);

/// What is remembered of a better.
#[derive(Default)]
struct Better {
    bursts: Bursts,
    stretch: Stretch,
    promise: Promise,
    slack: Slack,
    purse: Purse,
    verdict: Verdict,
}

/// The policy.
pub struct Weir {
    watch: Watch,
    betters: Memory<Better>,
    level: Level,
    filling: bool, // a bubble, in the last tick
    pools: Pools,
}

impl Default for Weir {
    fn default() -> Self {
        let (watch, betters) = (Watch::default(), Memory::default());
        Self { watch, betters, level: Level::new(FULL), filling: false, pools: Pools::default() }
    }
}

impl Policy for Weir {
    fn decide(&mut self, seen: &Observation<'_>) -> &[Decision] {
        let lull = self.watch.look(seen);
        self.judge(seen);
        let (opened, opening) = self.open(seen, &lull);
        self.pools.begin(seen);
        self.pools.divide(seen, opened, promise::is_broken);
        let fillers = seen.samples.iter().any(is_filler);
        let state = |at: usize| {
            self.betters.get(at).map_or(STEADY, |better| better.state(&seen.samples[at], fillers))
        };
        let decisions = self.pools.answer(seen, |_| opening, state);
        for (sample, Decision { grant, .. }) in seen.samples.iter().zip(&mut *decisions) {
            if sample.class == Class::Latency && (fillers || sample.slo.is_some()) {
                let saved = i64::try_from(grant.rate.over(LONG_RUN)).unwrap_or(i64::MAX);
                grant.capacity = grant.capacity.max(Tokens(saved));
            }
        }
        decisions
    }
}

/// Nothing to tell.
const STEADY: &str = "STEADY";

impl Weir {
    /// Looks at each better, and moves the level and the slacks.
    fn judge(&mut self, seen: &Observation<'_>) {
        self.betters.follow(seen.samples);
        let busy = seen.samples.iter().filter(|s| !is_filler(s) && is_working(s)).count();
        for (sample, better) in seen.samples.iter().zip(self.betters.iter_mut()) {
            if is_filler(sample) {
                *better = Better::default();
                continue;
            }
            better.purse.settle(seen.now, &sample.work, busy <= 1);
            if let Some(ratio) = better.look(seen.now, sample) {
                better.verdict = self.level.judge(ratio);
            }
        }
    }

    /// How far the fillers are opened, and how.
    fn open(&mut self, seen: &Observation<'_>, lull: &Lull) -> (Opened, Opening) {
        let betters =
            || seen.samples.iter().zip(self.betters.iter()).filter(|(sample, _)| !is_filler(sample));
        let filling = std::mem::take(&mut self.filling);
        if lull.working {
            let disturbed = betters().any(|(sample, better)| better.is_disturbed(sample));
            let lent = betters().filter(|(s, _)| is_working(s)).map(|(_, better)| better.slack.lent()).min();
            return match lent {
                _ if disturbed => (Opened::Beside(0), Opening::closed("EMERGENCY")),
                None | Some(0) => (Opened::Beside(0), Opening::closed("BUSY")),
                Some(lent) => {
                    let spare = betters().map(|(_, better)| better.slack.spare()).min().unwrap_or(SHORT_CAP);
                    (
                        Opened::Beside(lent.into()),
                        Opening::lent(Nanos(spare.0 / 4).clamp(SHORT_CAP, LONG_CAP), "SLACK"),
                    )
                }
            };
        }
        let empty =
            betters().any(|(sample, better)| sample.class == Class::Primary && better.purse.is_empty());
        let latency = betters().any(|(sample, _)| sample.class == Class::Latency);
        if !is_bubble(lull, empty, filling) {
            return (Opened::Beside(0), Opening::closed("SUSPECT"));
        }
        self.filling = true;
        let state = if lull.quiet >= OPEN_AFTER { "OPEN" } else { "FILL" };
        (Opened::Bubble(self.level.ppm.into()), Opening::open(cap(lull, latency), state))
    }
}

/// Whether a lull is worth filling. `careful`: a primary has nothing left to pay a wait with. `filling`: it is being filled.
fn is_bubble(lull: &Lull, careful: bool, filling: bool) -> bool {
    let wait = Nanos(SHORT_CAP.0 + SWITCH.0);
    let begun = lull.quiet >= FILL_AFTER || lull.foreseen;
    match lull.ends_in {
        Some(_) if careful => begun && !lull.ends_within(lull.tick),
        None if careful => lull.quiet.0 >= wait.0 * PART,
        _ => filling || (begun && !lull.ends_within(wait)),
    }
}

/// How much fillers may queue: what a purse pays for the time that nobody woke, in steps of two so that it seldom changes; little
/// where a user may come at any moment.
fn cap(lull: &Lull, latency: bool) -> Nanos {
    let most = if latency { LONG_CAP } else { IN_FLIGHT_CAP };
    let ends_in = lull.ends_in.unwrap_or(Nanos(u64::MAX));
    let allowed = (lull.quiet.0 / PART).min(ends_in.0 / 4).min(most.0);
    let steps = (allowed / SHORT_CAP.0).max(1).ilog2();
    Nanos(SHORT_CAP.0 << steps)
}

impl Better {
    /// Follows its bursts and its promise; says how far it is slowed down when there is news.
    fn look(&mut self, now: Nanos, sample: &Sample) -> Option<u64> {
        let stretched = match self.bursts.step(now, sample, QUIET) {
            Edge::Ended(_) => self.bursts.pace(sample).and_then(|pace| self.stretch.ended(pace)),
            Edge::None if self.bursts.is_busy() => {
                self.bursts.pace(sample).and_then(|pace| self.stretch.goes_on(pace))
            }
            _ => None,
        };
        let reading = self.promise.read(now, sample);
        if sample.class != Class::Latency || !promise::is_told(sample) {
            self.slack = Slack::default();
        } else if let Some(reading) = reading {
            self.slack.note(reading);
        }
        if !promise::is_told(sample) {
            return stretched;
        }
        self.verdict = Verdict::default();
        None
    }

    /// Whether fillers have to be out of its way.
    fn is_disturbed(&self, sample: &Sample) -> bool {
        promise::is_broken(sample) || self.verdict == Verdict::Emergency
    }

    fn state(&self, sample: &Sample, fillers: bool) -> &'static str {
        match (promise::is_broken(sample), fillers) {
            (true, _) => Verdict::Emergency.name(),
            (false, true) => self.verdict.name(),
            (false, false) => STEADY,
        }
    }
}
