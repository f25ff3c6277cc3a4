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

/// From here on a burst is stretched beyond what is borne. Ratios are in thousandths.
pub const EMERGENCY: u64 = 1_600;
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

    /// Somebody was stretched: shrinks or grows, and says how it judges.
    pub fn judge(&mut self, stretched: Stretched) -> Verdict {
        let verdict = stretched.verdict();
        match verdict {
            Verdict::Emergency => self.shrink(stretched),
            Verdict::Recovery => self.calm += 1,
            Verdict::Contention if stretched.permille >= ANOTHER_WORKLOAD => self.take_back(stretched.judged),
            Verdict::Contention => {}
        }
        if self.calm >= CALM_VERDICTS {
            self.calm = 0;
            let grown = u64::from(self.ppm) * GROWTH_PERCENT / 100;
            self.ppm = u32::try_from(grown).unwrap_or(FULL).min(FULL);
        }
        verdict
    }

    fn shrink(&mut self, by: Stretched) {
        self.calm = 0;
        let less = u128::from(self.ppm) * u128::from(by.judged.max(1_000)) / u128::from(by.permille.max(1));
        self.ppm = u32::try_from(less).unwrap_or(FULL).clamp(FLOOR, self.ppm.max(FLOOR));
    }

    /// A burst that was judged while it went on was no interference after all.
    fn take_back(&mut self, judged: u64) {
        let before = u128::from(self.ppm) * u128::from(judged) / 1_000;
        self.ppm = u32::try_from(before).unwrap_or(FULL).min(FULL);
    }

    /// Nobody is there to be disturbed.
    pub fn open(&mut self) {
        *self = Self::new(FULL);
    }
}

/// By how much somebody was stretched, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretched {
    /// In all.
    pub permille: u64,
    /// Up to which ratio the same burst was judged before; 1,000: not at all.
    judged: u64,
}

impl Stretched {
    /// That was not judged before.
    pub const fn by(permille: u64) -> Self {
        Self { permille, judged: 1_000 }
    }

    /// That was not judged before and is interference however far it goes.
    pub fn at_most(permille: u64) -> Self {
        Self::by(permille.min(ANOTHER_WORKLOAD - 1))
    }

    fn verdict(self) -> Verdict {
        match self.permille {
            EMERGENCY..ANOTHER_WORKLOAD => Verdict::Emergency,
            0..CALM => Verdict::Recovery,
            _ => Verdict::Contention,
        }
    }
}

/// The lengths of one tenant's bursts.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    lengths: History<20>,
    judged: Option<u64>, // of the burst that is on: up to which ratio
}

impl Stretch {
    /// Whether a burst that has lasted so long may be news at all: most ticks need no division.
    pub fn may_be_news(&self, wall: Nanos) -> bool {
        let long = |least: Nanos| u128::from(wall.0) * 1_000 >= u128::from(least.0) * u128::from(EMERGENCY);
        self.judged.is_none() && self.lengths.least().is_some_and(long)
    }

    /// A burst goes on: news once it is an emergency, so that nobody waits for its end (papers 1.5, weakness 9). Fillers can
    /// have made it longer by `beside` at most.
    pub fn goes_on(&mut self, length: Nanos, beside: Nanos) -> Option<Stretched> {
        let ratio = self.ratio(length, beside)?;
        if self.judged.is_some() || !(EMERGENCY..ANOTHER_WORKLOAD).contains(&ratio) {
            return None;
        }
        self.judged = Some(ratio);
        Some(Stretched::by(ratio))
    }

    /// A burst has ended; as there, fillers can have made it longer by `beside`.
    pub fn ended(&mut self, length: Nanos, beside: Nanos) -> Option<Stretched> {
        let ratio = self.ratio(length, beside);
        self.lengths.push(length);
        let judged = self.judged.take().unwrap_or(1_000);
        ratio.map(|permille| Stretched { permille, judged })
    }

    fn ratio(&self, length: Nanos, beside: Nanos) -> Option<u64> {
        let least = self.lengths.least()?;
        let length = length.0.min(least.0.saturating_add(beside.0));
        let permille = u128::from(length) * 1_000 / u128::from(least.0.max(1));
        Some(u64::try_from(permille).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Fillers worked all the time.
    const THROUGHOUT: Nanos = Nanos(u64::MAX);

    #[test]
    fn the_level_falls_by_the_ratio_and_grows_on_each_fifth_calm_verdict() {
        // papers 1.5, the table of states.
        let mut level = Level::new(100_000);
        assert_eq!((level.judge(Stretched::by(2_000)), level.ppm), (Verdict::Emergency, 50_000));
        assert_eq!((level.judge(Stretched::by(1_599)), level.ppm), (Verdict::Contention, 50_000));
        assert_eq!((level.judge(Stretched::by(4_000)), level.ppm), (Verdict::Contention, 50_000), "ignored");
        for _ in 0..4 {
            assert_eq!((level.judge(Stretched::by(1_199)), level.ppm), (Verdict::Recovery, 50_000));
        }
        assert_eq!((level.judge(Stretched::by(1_000)), level.ppm), (Verdict::Recovery, 65_000));
    }

    /// papers 1.5: the floor and the cap of a level.
    #[test]
    fn the_level_stays_between_its_floor_and_all() {
        let mut level = Level::new(FULL);
        for _ in 0..50 {
            level.judge(Stretched::by(3_999));
        }
        assert_eq!(level.ppm, FLOOR);
        for _ in 0..500 {
            level.judge(Stretched::by(0));
        }
        assert_eq!(level.ppm, FULL);
    }

    /// papers 1.5: once per burst; that it is judged early is Weir's own.
    #[test]
    fn a_burst_that_was_judged_while_it_went_on_shrinks_the_level_no_further_than_by_all_of_it() {
        let (mut stretch, mut level) = (Stretch::default(), Level::new(900_000));
        assert_eq!(stretch.ended(Nanos(40 * MS), THROUGHOUT), None, "nothing to compare with");
        assert_eq!(stretch.goes_on(Nanos(60 * MS), THROUGHOUT), None);
        let early = stretch.goes_on(Nanos(80 * MS), THROUGHOUT).expect("twice as long");
        assert_eq!((level.judge(early), level.ppm), (Verdict::Emergency, 450_000));
        assert_eq!(stretch.goes_on(Nanos(90 * MS), THROUGHOUT), None, "told once");
        let late = stretch.ended(Nanos(120 * MS), THROUGHOUT).expect("three times as long");
        assert_eq!((level.judge(late), level.ppm), (Verdict::Emergency, 300_000));
    }

    #[test]
    fn a_burst_that_turns_out_to_be_another_workload_is_taken_back() {
        // papers 1.5: a ratio of 4 and more is ignored.
        let (mut stretch, mut level) = (Stretch::default(), Level::new(800_000));
        stretch.ended(Nanos(40 * MS), THROUGHOUT);
        let early = stretch.goes_on(Nanos(80 * MS), THROUGHOUT).expect("twice as long");
        assert_eq!((level.judge(early), level.ppm), (Verdict::Emergency, 400_000));
        let late = stretch.ended(Nanos(200 * MS), THROUGHOUT).expect("five times as long");
        assert_eq!((level.judge(late), level.ppm), (Verdict::Contention, 800_000));
    }

    /// papers 1.5: the baseline of a burst.
    #[test]
    fn the_least_of_the_last_twenty_is_what_bursts_are_held_against() {
        let mut stretch = Stretch::default();
        stretch.ended(Nanos(10 * MS), THROUGHOUT);
        for _ in 0..20 {
            stretch.ended(Nanos(30 * MS), THROUGHOUT);
        }
        assert_eq!(
            stretch.ended(Nanos(60 * MS), THROUGHOUT),
            Some(Stretched::by(2_000)),
            "the 10 ms are forgotten"
        );
    }

    #[test]
    fn a_burst_is_stretched_no_further_than_by_what_fillers_did_meanwhile() {
        // gpu-truths 3: hosts hiccup for 1 to 30 ms; rule 12: what one takes of the GPU is what another lacks.
        let mut stretch = Stretch::default();
        stretch.ended(Nanos(40 * MS), THROUGHOUT);
        assert_eq!(stretch.goes_on(Nanos(100 * MS), Nanos(2 * MS)), None);
        assert_eq!(stretch.ended(Nanos(100 * MS), Nanos(2 * MS)), Some(Stretched::by(1_050)));
        assert_eq!(stretch.ended(Nanos(100 * MS), Nanos(60 * MS)), Some(Stretched::by(2_500)));
    }
}
