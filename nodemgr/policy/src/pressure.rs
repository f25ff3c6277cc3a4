//! RCKM's law: how much of their budget the fillers keep, from how far bursts are stretched (papers 1.5).
//!
//! ```text
//!   1.6 <= r < 4     EMERGENCY    level = max(floor, level / r)
//!   r < 1.2          RECOVERY     on each fifth such verdict: level = min(maximum, 1.3 x level)
//!   otherwise        CONTENTION   unchanged
//! ```
//!
//! r is a burst's length over the least of the last twenty; from 4 on it is another workload, not interference.

use weir_protocol::units::Nanos;

use crate::history::History;
use crate::lend::FULL;

/// Ratios are in thousandths.
const EMERGENCY: u64 = 1_600;
const ANOTHER_WORKLOAD: u64 = 4_000;
const CALM: u64 = 1_200;

/// Calm verdicts until the fillers get more, and how much more, in percent.
const CALM_VERDICTS: u32 = 5;
const GROWTH_PERCENT: u64 = 130;

/// The level never falls below this, in millionths.
const FLOOR: u32 = FULL / 100;

/// How a ratio is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nobody is disturbed.
    #[default]
    Recovery,
    /// In between.
    Contention,
    /// Bursts are stretched.
    Emergency,
}

impl Verdict {
    /// As people see it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Emergency => "EMERGENCY",
            Self::Contention => "CONTENTION",
            Self::Recovery => "RECOVERY",
        }
    }
}

/// How far the fillers are opened, in millionths of what they may have.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// The level.
    pub ppm: u32,
    calm: u32,
}

impl Level {
    /// Starts at `ppm`.
    pub fn new(ppm: u32) -> Self {
        Self { ppm, calm: 0 }
    }

    /// A burst was stretched by `ratio`, or a latency stands so: shrinks or grows, and says how it judges.
    pub fn judge(&mut self, ratio: u64) -> Verdict {
        let verdict = verdict(ratio);
        match verdict {
            Verdict::Emergency => self.shrink(ratio),
            Verdict::Recovery => self.calm += 1,
            Verdict::Contention => {}
        }
        if self.calm >= CALM_VERDICTS {
            self.calm = 0;
            let grown = u64::from(self.ppm) * GROWTH_PERCENT / 100;
            self.ppm = u32::try_from(grown).unwrap_or(FULL).min(FULL);
        }
        verdict
    }

    /// Divides by `ratio`, thousandths.
    pub fn shrink(&mut self, ratio: u64) {
        self.calm = 0;
        let less = u64::from(self.ppm) * 1_000 / ratio.max(1_000);
        self.ppm = u32::try_from(less).unwrap_or(FULL).max(FLOOR);
    }

    /// Nobody is there to be disturbed.
    pub fn open(&mut self) {
        *self = Self::new(FULL);
    }
}

/// How a ratio is judged.
fn verdict(ratio: u64) -> Verdict {
    match ratio {
        EMERGENCY..ANOTHER_WORKLOAD => Verdict::Emergency,
        0..CALM => Verdict::Recovery,
        _ => Verdict::Contention,
    }
}

/// The lengths of one tenant's bursts.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    lengths: History<20>,
    told: u64, // of the burst that is on: up to which ratio it was judged
}

impl Stretch {
    /// The ratio of a burst that goes on, once it is an emergency: nobody waits for its end (papers 1.5, weakness 9).
    pub fn goes_on(&mut self, length: Nanos) -> Option<u64> {
        let ratio = self.ratio(length)?;
        let news = self.told == 0 && (EMERGENCY..ANOTHER_WORKLOAD).contains(&ratio);
        self.told = if news { ratio } else { self.told };
        news.then_some(ratio)
    }

    /// The ratio of a burst that has ended; of one that was judged before, by how much it went on growing.
    pub fn ended(&mut self, length: Nanos) -> Option<u64> {
        let ratio = self.ratio(length);
        self.lengths.push(length);
        match std::mem::take(&mut self.told) {
            0 => ratio,
            told => ratio.map(|ratio| (ratio.saturating_mul(1_000) / told).max(CALM)),
        }
    }

    fn ratio(&self, length: Nanos) -> Option<u64> {
        let permille = u128::from(length.0) * 1_000 / u128::from(self.lengths.least()?.0.max(1));
        Some(u64::try_from(permille).unwrap_or(u64::MAX))
    }
}
