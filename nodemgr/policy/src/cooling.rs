//! How far fillers are opened where power or heat holds the GPU's clocks back (gpu-truths, rule 17).
//!
//! *Problem.* A card at its limit cools down while its primary rests. Whoever fills that rest takes it away, and the
//! primary works at lower clocks: it pays although nobody was beside it.
//!
//! *Approach.* What holds the clocks back is read about once a second. Each reading is a verdict of RCKM's law
//! ([`Level`]), since one moment of a second says little and a cap that is tried again costs the primary a second. So the
//! energy of what is filled counts: fillers that shrank grow no more once the card takes nearly what it may.
//!
//! ```text
//!   held back, and a better has worked since the reading before    half
//!   free, a better has, and the card took nearly what it may       as before
//!   free, and a better has                                         on each fifth such reading 1.3 times as much
//!   no better has, or nobody reads any more                        all
//! ```
//!
//! The energy is the whole card's: what each of its tenants takes is told by SM time, which says nothing of whose kernels draw more,
//! so that it is no price for one filler against another.

use weir_protocol::units::Nanos;

use crate::Observation;
use crate::lend::FULL;
use crate::pressure::{Level, Stretched};

/// Held back is judged as a burst that takes twice as long, ...
const HELD_BACK: Stretched = Stretched::by(2_000);

/// ... and free as one that takes as long as ever.
const FREE: Stretched = Stretched::by(1_000);

/// Fillers that had 1.3 times as much of what is left of the time could bring a card that takes so much of what it may to its
/// limit, in thousandths.
const NEARLY: u16 = 950;

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
            Some(_) if power.held_back => {
                self.level.judge(HELD_BACK);
            }
            Some(_) if power.taken_permille.is_some_and(|taken| taken >= NEARLY) => {}
            Some(_) => {
                self.level.judge(FREE);
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
