//! How far fillers are opened where power or heat holds the GPU's clocks back (gpu-truths, rule 17).
//!
//! *Problem.* A card at its limit cools down while its primary rests. Whoever fills that rest takes it away, and the
//! primary works at lower clocks: it pays although nobody was beside it.
//!
//! *Approach.* Clocks are read about once a second. By how much longer work takes at such clocks is judged by RCKM's law
//! ([`Level`]), as a burst is that a neighbour stretches. A card that is at its limit and loses a tenth of its clocks is at work
//! as it should be, and fillers keep all.
//!
//! ```text
//!   a better has worked since the reading before    RCKM's law
//!   no better has, or nobody reads any more         all
//! ```

use weir_protocol::units::Nanos;

use crate::Observation;
use crate::lend::FULL;
use crate::pressure::{Level, Stretched};

/// One GPU's.
#[derive(Clone, Copy, Debug)]
pub struct Cooling {
    level: Level,
    read_at: Option<Nanos>,
}

impl Default for Cooling {
    fn default() -> Self {
        Self { level: Level::new(FULL), read_at: None }
    }
}

impl Cooling {
    /// Takes a new reading in, if there is one. `quiet`: for how long no better has moved.
    pub fn look(&mut self, seen: &Observation<'_>, quiet: Nanos) {
        let Some(power) = seen.signals.power else { return *self = Self::default() };
        let before = self.read_at.replace(power.read_at);
        match before.filter(|before| *before != power.read_at) {
            None => {}
            Some(before) if quiet >= seen.now.since(before) => self.level.open(),
            Some(_) => {
                self.level.judge(Stretched::at_most(power.slowed_permille.into()));
            }
        }
    }

    /// The level, in millionths.
    pub fn ppm(&self) -> u32 {
        self.level.ppm
    }

    /// Whether fillers are held back.
    pub fn holds(&self) -> bool {
        self.level.ppm < FULL
    }
}
