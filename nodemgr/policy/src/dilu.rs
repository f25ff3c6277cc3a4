//! `dilu`: RCKM, the kernel manager of Dilu, in time instead of blocks. Source: papers 1.5.
//!
//! *Problem.* Fillers beside online work stretch its bursts. How far may they be opened?
//!
//! *Approach.* All fillers of a GPU share a part of what their betters did not request. That part, the level, falls by the
//! ratio by which a burst was stretched, and grows back by 1.3 on each fifth calm one ([`pressure`](crate::pressure)).
//!
//! ```text
//!   some better moved within 500 ms   fillers: level x what the betters did not request
//!   all betters silent for 600 ms     level = 100 %; fillers: their limits
//!   betters                           their request, and what busy fillers do not get, by request, up to the limit
//! ```
//!
//! What the public code of Dilu gets wrong (papers 1.5, weaknesses 1 to 9) is mended, each held by a test:
//!
//! 1. *Blocks are not time.* The level is a part of the GPU's time, and what it is charged with is measured time.
//! 2. *One level for all GPUs.* Each GPU has a policy of its own.
//! 3. *Caps that never bind.* Busy betters together get the GPU once, so that requests and limits hold among them.
//! 4. *A busy neighbour counts as idle.* The betters are silent when the last of them is.
//! 5. *Whoever is busy stands in its own way.* What counts is what others use: alone, a tenant gets its limit.
//! 6. *Leaking slots.* What is remembered of a tenant goes with it.
//! 7. *Latency never enters.* A tenant that tells its latency is judged by that alone: its bound is the ratio at which an
//!    emergency begins. Burst lengths, which change with batch and sequence length, are for those who tell nothing; and
//!    of those our gate's and the neighbours' part is taken out (gpu-truths, rule 3).
//! 8. *Graphs bypass it, memory is free.* A tenant is busy while work is under way, however it was launched; each grant
//!    has the memory limit.
//! 9. *Late by 7 ms and a queue.* A burst is judged while it goes on, each tick, and fillers queue little.
//!
//! The paper's threshold for language models (1.3) is left out: nobody tells a policy what a tenant computes.
//!
//! *What always holds*: see `tests/every_policy.rs`.

use weir_protocol::units::Nanos;

use crate::bursts::{Bursts, Edge};
use crate::grants::{IN_FLIGHT_CAP, SHORT_CAP};
use crate::lend::{FULL, ppm};
use crate::memory::Memory;
use crate::pools::{Opened, Opening, Pools, is_filler};
use crate::pressure::{EMERGENCY, Level, Stretch, Stretched, Verdict};
use crate::promise::{self, Promise};
use crate::{Decision, Observation, Policy, Sample};

/// A gap of one of Dilu's samples ends a burst.
const QUIET: Nanos = Nanos::from_millis(5);

/// RCKM asks for a burst's length and not for what fillers did meanwhile (papers 1.5).
const UNKNOWN: Nanos = Nanos(u64::MAX);

/// Shorter bursts say nothing.
const LEAST_BURST: Nanos = Nanos::from_millis(30);

/// Betters that have been silent for so long no longer hold the fillers to their level ...
const SILENT: Nanos = Nanos::from_millis(600);

/// ... and do so again from here on.
const HEARD: Nanos = Nanos::from_millis(500);

/// Where the level starts: a tenth, as Dilu's conservative start.
const START: u32 = FULL / 10;

/// What is remembered of a better.
#[derive(Default)]
struct Better {
    bursts: Bursts,
    stretch: Stretch,
    promise: Promise,
    verdict: Verdict,
}

/// The policy.
pub struct Dilu {
    betters: Memory<Better>,
    level: Level,
    open: bool,
    pools: Pools,
}

impl Default for Dilu {
    fn default() -> Self {
        Self { betters: Memory::default(), level: Level::new(START), open: false, pools: Pools::default() }
    }
}

impl Policy for Dilu {
    fn decide(&mut self, seen: &Observation<'_>) -> &[Decision] {
        self.judge(seen);
        self.pools.begin(seen);
        let base = if self.open { u64::from(FULL) } else { unrequested(seen.samples) };
        let opened = Opened::Beside(base * u64::from(self.level.ppm) / u64::from(FULL));
        self.pools.divide(seen, opened, |_| false);
        let worst = self.betters.iter().map(|better| better.verdict).max().unwrap_or_default().name();
        let filler = Opening::open(if self.open { IN_FLIGHT_CAP } else { SHORT_CAP }, worst);
        self.pools.answer(seen, |_| filler, |_| worst)
    }
}

impl Dilu {
    /// Looks at each better and moves the level.
    fn judge(&mut self, seen: &Observation<'_>) {
        self.betters.follow(seen.samples);
        let mut silent = Nanos(u64::MAX);
        for (sample, better) in seen.samples.iter().zip(self.betters.iter_mut()) {
            if is_filler(sample) {
                continue;
            }
            silent = silent.min(sample.idle_for);
            if let Some(stretched) = better.look(seen, sample) {
                better.verdict = self.level.judge(stretched);
            }
        }
        self.open = silent > SILENT || (self.open && silent > HEARD);
        if self.open {
            self.level.open();
        }
    }
}

impl Better {
    /// Follows its bursts; says how far it is disturbed when there is news.
    fn look(&mut self, seen: &Observation<'_>, sample: &Sample) -> Option<Stretched> {
        let burst = match self.bursts.step(seen, sample, QUIET) {
            Edge::Ended(length) if length > LEAST_BURST => self.stretch.ended(length, UNKNOWN),
            Edge::None if self.bursts.is_busy() && self.stretch.may_be_news(self.bursts.wall(seen.now)) => {
                self.stretch.goes_on(self.bursts.truly(seen.now, sample), UNKNOWN)
            }
            _ => None,
        };
        let reading = self.promise.read(seen.now, sample);
        // A promise that is just kept is a burst that is stretched as far as is borne.
        let told = reading.map(|reading| Stretched::by(reading.permille().saturating_mul(EMERGENCY) / 1_000));
        if promise::is_told(sample) { told } else { burst }
    }
}

/// What betters did not request, busy or not, in millionths.
fn unrequested(samples: &[Sample]) -> u64 {
    let betters = samples.iter().filter(|sample| !is_filler(sample));
    u64::from(FULL).saturating_sub(betters.map(|sample| u64::from(ppm(sample.request))).sum())
}

#[cfg(test)]
mod tests;
