//! Bubbles: when all of a GPU's betters are drained, for how long they have been, and when the first one will be back.

use weir_protocol::units::Nanos;

use crate::bursts::{Bursts, Edge};
use crate::memory::Memory;
use crate::pools::is_filler;
use crate::rhythm::Rhythm;
use crate::{Observation, Sample};

/// A gap is what a whole tick saw nothing of; shorter ones are the board's.
const QUIET: Nanos = Nanos::from_millis(1);

/// Who is this late does not come as foretold.
const LATE: Nanos = Nanos::from_millis(3);

/// How the betters of a GPU stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lull {
    /// A better has work on the GPU.
    pub working: bool,
    /// How long the one that moved last has been still.
    pub quiet: Nanos,
    /// How long until the first one may be back, as far as that is known.
    pub ends_in: Option<Nanos>,
    /// Whether all of those that moved within the last tick are foretold to be away for a while.
    pub foreseen: bool,
    /// From one look to the next.
    pub tick: Nanos,
}

#[derive(Default)]
struct Pulse {
    bursts: Bursts,
    lengths: Rhythm, // of bursts
    gaps: Rhythm,
}

/// Watches the betters of a GPU.
#[derive(Default)]
pub struct Watch {
    pulses: Memory<Pulse>,
    looked: Option<Nanos>,
}

impl Watch {
    /// How they stand now.
    pub fn look(&mut self, seen: &Observation<'_>) -> Lull {
        let tick = self.looked.replace(seen.now).map_or(Nanos(0), |before| seen.now.since(before));
        let mut lull = Lull { working: false, quiet: Nanos(u64::MAX), ends_in: None, foreseen: true, tick };
        self.pulses.follow(seen.samples);
        for (sample, pulse) in seen.samples.iter().zip(self.pulses.iter_mut()) {
            if is_filler(sample) {
                *pulse = Pulse::default();
                continue;
            }
            match pulse.bursts.step(seen.now, sample, QUIET) {
                Edge::Began(Some(gap)) => pulse.gaps.note(gap),
                Edge::Ended(length) => pulse.lengths.note(length),
                Edge::Began(None) | Edge::None => {}
            }
            lull.add(seen.now, sample, pulse);
        }
        lull
    }
}

impl Pulse {
    /// Whether a burst that goes on has done what such bursts do: drained now, it is over.
    fn is_done(&self, now: Nanos, sample: &Sample) -> bool {
        let length = self.bursts.truly(now, sample);
        self.lengths.next().is_some_and(|foretold| length >= foretold.length.since(LATE.max(foretold.error)))
    }
}

impl Lull {
    fn add(&mut self, now: Nanos, sample: &Sample, pulse: &Pulse) {
        self.working |= is_working(sample);
        self.quiet = self.quiet.min(sample.idle_for);
        let ends_in = pulse.gaps.next().and_then(|foretold| {
            let latest = foretold.length.0.saturating_add(foretold.error.0).saturating_add(LATE.0);
            // Its return will be seen up to a tick late, as those were from which this was learnt.
            let earliest = foretold.length.since(foretold.error.max(self.tick)).since(sample.idle_for);
            (sample.idle_for.0 <= latest).then_some(earliest)
        });
        self.foreseen &= sample.idle_for >= QUIET || (ends_in.is_some() && pulse.is_done(now, sample));
        self.ends_in = match (self.ends_in, ends_in) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// Whether somebody is expected back before `margin` has passed.
    pub fn ends_within(&self, margin: Nanos) -> bool {
        self.ends_in.is_some_and(|left| left < margin)
    }
}

/// Whether a tenant has work on the GPU: something is under way, and has moved of late.
pub fn is_working(sample: &Sample) -> bool {
    sample.outstanding > Nanos(0) && sample.idle_for == Nanos(0)
}
