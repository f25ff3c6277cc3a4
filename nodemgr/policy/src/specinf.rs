//! `specinf`: bubbles of training are filled, and closed again before training is back. Source: papers 2; what is not
//! published there (window, thresholds, growth) is ours.
//!
//! *Problem.* A training job leaves its GPU idle for 1 to 100 ms at a time, and must not notice who fills that.
//!
//! *Approach.* A bubble monitor sees when all betters are drained, a barrier keeps the fillers' gates shut until they are.
//! Tokens start small and double with each tick, since most lulls are short and the first one to fill them blindly pays.
//!
//! ```text
//!   BUSY      a better has work                      0 tokens
//!   SUSPECT   drained                                0
//!   FILL      still for 1 ms                         1/16 of the GPU, doubled each tick
//!             but SUSPECT again: the bubble's foretold end is nearer than a tick and the work in flight
//!   OPEN      still for 100 ms                       all, and a longer queue
//! ```
//!
//! How long a bubble is, is foretold from the iteration before ([`rhythm`](crate::rhythm)). An online filler, one with a
//! latency to keep, has a small reserved share outside of bubbles, so that its requests do not wait for ever.
//!
//! *What always holds*: see `tests/every_policy.rs`.

use weir_protocol::units::{Nanos, SmShare};

use crate::grants::{LONG_CAP, SHORT_CAP};
use crate::lend::{FULL, ppm};
use crate::lull::{Lull, Watch};
use crate::pools::{Opened, Opening, Pools, is_filler};
use crate::{Decision, Observation, Policy, Sample};

/// Drained for so long is a bubble: a whole tick without a launch, ten times what lies between two launches.
const FILL_AFTER: Nanos = Nanos::from_millis(1);

/// Bubbles of exchange and pipelines are over by then; this is somebody who waits for his data, or his users.
const OPEN_AFTER: Nanos = Nanos::from_millis(100);

/// Tokens of a bubble's first tick; with this four ticks are enough for all of the GPU.
const SEED: u32 = FULL / 16;

/// What an online filler has outside of bubbles: it is late by no more than twenty times its work.
pub const RESERVE: SmShare = SmShare::percent(5);

/// How the fillers stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Busy,
    Suspect,
    Fill,
    Open,
}

/// The policy.
#[derive(Default)]
pub struct SpecInf {
    watch: Watch,
    tokens: u32, // of the last tick, in millionths of the GPU
    pools: Pools,
}

impl Policy for SpecInf {
    fn decide(&mut self, seen: &Observation<'_>) -> &[Decision] {
        let phase = phase(&self.watch.look(seen));
        self.tokens = match phase {
            Phase::Busy | Phase::Suspect => 0,
            Phase::Fill => self.tokens.saturating_mul(2).clamp(SEED, FULL),
            Phase::Open => FULL,
        };
        self.pools.begin(seen);
        reserve(&mut self.pools, seen);
        let opened = match phase {
            Phase::Busy | Phase::Suspect => Opened::Beside(0),
            Phase::Fill | Phase::Open => Opened::Bubble(u64::from(self.tokens)),
        };
        self.pools.divide(seen, opened, |_| false);
        let state = |at: usize| if seen.samples[at].idle_for == Nanos(0) { "BUSY" } else { "IDLE" };
        self.pools.answer(seen, |_| phase.opening(), state)
    }
}

/// How the betters' lull is to be taken.
fn phase(lull: &Lull) -> Phase {
    let margin = Nanos(lull.tick.0.saturating_add(SHORT_CAP.0));
    match lull.quiet {
        _ if lull.working => Phase::Busy,
        quiet if quiet >= OPEN_AFTER => Phase::Open,
        quiet if quiet >= FILL_AFTER && !lull.ends_within(margin) => Phase::Fill,
        _ => Phase::Suspect,
    }
}

impl Phase {
    fn opening(self) -> Opening {
        match self {
            Self::Busy => Opening::closed("BUSY"),
            Self::Suspect => Opening::closed("SUSPECT"),
            Self::Fill => Opening::open(SHORT_CAP, "FILL"),
            Self::Open => Opening::open(LONG_CAP, "OPEN"),
        }
    }
}

/// Gives online fillers their reserve, as far as there is anything that betters did not request.
fn reserve(pools: &mut Pools, seen: &Observation<'_>) {
    let online = |sample: &Sample| is_filler(sample) && sample.slo.is_some();
    let count = seen.samples.iter().filter(|sample| online(sample)).count() as u64;
    let fillers: u64 = seen.samples.iter().filter(|s| is_filler(s)).map(|s| u64::from(ppm(s.request))).sum();
    let left = pools.unrequested(seen).saturating_sub(fillers) / count.max(1);
    let each = u32::try_from(left).unwrap_or(FULL).min(ppm(RESERVE));
    for (claim, sample) in pools.claims.iter_mut().zip(seen.samples) {
        if online(sample) {
            claim.has = claim.has.max(each).min(claim.most);
        }
    }
}
