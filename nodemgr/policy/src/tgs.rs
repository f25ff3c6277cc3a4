//! `tgs`: adaptive rate control, a baseline to compare with. Source: papers 4 (TGS and its controller).
//!
//! *Problem.* Fillers may have what the production job does not miss.
//!
//! *Approach.* The betters' work in samples of 50 ms is held against the most that was ever seen. While it stays within 3 %
//! of that the fillers' rate grows, fast at first; when it does not, it falls.
//!
//! ```text
//!   SLOW_START   missing < 3 %: rate x 1.5            else: rate / 1.5, and on to STEADY
//!   STEADY       missing < 3 %: rate + 0.1 %          else: rate - 8 %
//!   BACK_OFF     missing >= 9 %: rate / 10            20 samples >= 12 %: the peak x 0.8, rate / 2
//!   OPEN         more than 2 of the last 5 samples nearly idle: all
//! ```
//!
//! Work is time here, not blocks: the start of 20,000 blocks and the step of at least 1,000 keep their ratio of 20 to 1.
//! The betters are never held back for the fillers beyond what a GPU has. Among themselves tenants share as in `static`.

use weir_protocol::units::{Nanos, Tokens};

use crate::grants::SHORT_CAP;
use crate::lend::FULL;
use crate::memory::Memory;
use crate::pools::{Opened, Opening, Pools, is_filler};
use crate::static_shares::STEADY;
use crate::{Decision, Observation, Policy};

/// How often the betters' work is looked at, and how many looks make the rate.
const SAMPLE: Nanos = Nanos::from_millis(50);
const WINDOW: usize = 5;

/// Missing from the peak, in thousandths.
const MISSED: u64 = 30;
const MISSED_MUCH: u64 = 90;
const MOVED: u64 = 120;

/// Samples in a row until the peak is taken to have moved.
const MOVED_SAMPLES: u32 = 20;

/// Less than this part of the peak is nearly idle, in thousandths, and more than so many of a window open the fillers.
const IDLE: u64 = 50;
const IDLE_SAMPLES: usize = 2;

/// The fillers' first rate, and its steps, in millionths of the GPU.
const START: u32 = 20_000;
const STEP: u32 = START / 20;

/// How the rate moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    SlowStart,
    Steady,
    BackOff,
    Open,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::SlowStart => "SLOW_START",
            Self::Steady => STEADY,
            Self::BackOff => "BACK_OFF",
            Self::Open => "OPEN",
        }
    }
}

/// The policy.
pub struct Tgs {
    charged: Memory<Tokens>, // of each better at the last sample
    sampled_at: Option<Nanos>,
    window: [u64; WINDOW], // the betters' work in each sample, ns in a second
    filled: usize,
    peak: u64,
    moved: u32,
    rate: u32,
    phase: Phase,
    pools: Pools,
}

impl Default for Tgs {
    fn default() -> Self {
        Self {
            charged: Memory::default(),
            sampled_at: None,
            window: [0; WINDOW],
            filled: 0,
            peak: 0,
            moved: 0,
            rate: START,
            phase: Phase::default(),
            pools: Pools::default(),
        }
    }
}

impl Policy for Tgs {
    fn decide(&mut self, seen: &Observation<'_>) -> &[Decision] {
        self.charged.follow(seen.samples);
        let elapsed = self.sampled_at.map(|at| seen.now.since(at));
        if elapsed.is_none_or(|elapsed| elapsed >= SAMPLE) {
            let work = self.take_work(seen);
            self.sampled_at = Some(seen.now);
            if let Some(elapsed) = elapsed {
                self.note(per_second(work, elapsed));
            }
        }
        let alone = seen.samples.iter().all(is_filler);
        let rate = if alone { FULL } else { self.rate };
        self.pools.begin(seen);
        self.pools.divide(seen, Opened::Beside(u64::from(rate)), |_| false);
        let state = if alone { Phase::Open } else { self.phase }.name();
        self.pools.answer(seen, |_| Opening::open(SHORT_CAP, state), |_| state)
    }
}

impl Tgs {
    /// What the betters did since the last call. A new one has done nothing yet.
    fn take_work(&mut self, seen: &Observation<'_>) -> u64 {
        let mut work = 0u64;
        for (sample, charged) in seen.samples.iter().zip(self.charged.iter_mut()) {
            let before = std::mem::replace(charged, sample.work.charged);
            if !is_filler(sample) && before != Tokens(0) {
                work = work.saturating_add(u64::try_from(charged.0.saturating_sub(before.0)).unwrap_or(0));
            }
        }
        work
    }

    /// One more sample: moves the rate.
    fn note(&mut self, work: u64) {
        self.window.rotate_right(1);
        self.window[0] = work;
        self.filled = (self.filled + 1).min(WINDOW);
        let window = &self.window[..self.filled];
        let rate = window.iter().fold(0, |sum: u64, work| sum.saturating_add(*work)) / self.filled as u64;
        self.peak = if self.filled < WINDOW { rate } else { self.peak.max(rate) };
        let idle = window.iter().filter(|work| **work <= self.peak / 1_000 * IDLE).count();
        if idle > IDLE_SAMPLES {
            (self.phase, self.rate, self.moved) = (Phase::Open, FULL, 0);
            return;
        }
        if self.phase == Phase::Open {
            (self.phase, self.rate) = (Phase::SlowStart, START);
        }
        self.control((self.peak - rate) / (self.peak / 1_000).max(1));
    }

    /// `missing` thousandths of the peak are missing.
    fn control(&mut self, missing: u64) {
        self.moved = if missing >= MOVED { self.moved + 1 } else { 0 };
        let (phase, rate) = match (self.phase, missing) {
            _ if self.moved >= MOVED_SAMPLES => {
                self.peak = self.peak / 5 * 4;
                self.moved = 0;
                (Phase::BackOff, self.rate / 2)
            }
            (_, MISSED_MUCH..) => (Phase::BackOff, self.rate / 10),
            (Phase::SlowStart, 0..MISSED) => (Phase::SlowStart, self.rate.saturating_mul(3) / 2),
            (Phase::SlowStart, _) => (Phase::Steady, self.rate / 3 * 2),
            (_, 0..MISSED) => (Phase::Steady, self.rate.saturating_add(STEP)),
            _ => (Phase::Steady, self.rate / 25 * 23),
        };
        (self.phase, self.rate) = (phase, rate.clamp(STEP, FULL));
    }
}

/// `work` in `elapsed`, per second.
fn per_second(work: u64, elapsed: Nanos) -> u64 {
    let rate = u128::from(work) * 1_000_000_000 / u128::from(elapsed.0.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
