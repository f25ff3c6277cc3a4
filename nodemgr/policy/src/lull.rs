//! Bubbles: when all of a GPU's betters are drained, for how long they have been, and when the first one will be back.

use weir_protocol::units::Nanos;

use crate::bursts::{Bursts, Edge};
use crate::memory::Memory;
use crate::pools::is_filler;
use crate::rhythm::{Foretold, Rhythm};
use crate::{Observation, Sample};

/// A gap is what a whole tick saw nothing of; shorter ones are the board's.
const QUIET: Nanos = Nanos::from_millis(1);

/// Who is this late does not come as foretold.
const LATE: Nanos = Nanos::from_millis(3);

/// Who was not looked at for so long may have had any number of bursts and gaps: none is learnt from that. A policy that rests
/// is not asked, nor is any while all are asleep; ticks come more often.
const UNSEEN: Nanos = Nanos::from_millis(100);

/// How the betters of a GPU stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lull {
    /// When that was.
    pub now: Nanos,
    /// A better has work on the GPU.
    pub working: bool,
    /// How long the one that moved last has been still.
    pub quiet: Nanos,
    /// When the first one may be back, as far as that is known.
    pub back_at: Option<Nanos>,
    /// Whether all of those that moved within the last tick are foretold to be away for a while.
    pub foreseen: bool,
    /// From one look to the next.
    pub tick: Nanos,
}

#[derive(Default)]
struct Pulse {
    bursts: Bursts,
    edge: Edge,      // at the last look
    lengths: Rhythm, // of bursts
    gaps: Rhythm,
    drained: bool, // at the last look, for the first time
    lulls: u8,     // of the last eight times that it was: whether a gap had begun; one bit each
}

/// Of eight times that somebody was found drained so many began a gap: then the next one does, too.
const MOSTLY: u32 = 6;

/// Watches the betters of a GPU.
#[derive(Default)]
pub struct Watch {
    pulses: Memory<Pulse>,
    looked: Option<Nanos>,
}

impl Watch {
    /// How they stand now.
    pub fn look(&mut self, seen: &Observation<'_>) -> Lull {
        self.follow(seen);
        self.look_at(seen, 0..seen.samples.len())
    }

    /// Learns who is there.
    pub fn follow(&mut self, seen: &Observation<'_>) {
        self.pulses.follow(seen.samples);
        if self.looked.is_some_and(|before| seen.now.since(before) > UNSEEN) {
            self.pulses.iter_mut().for_each(|pulse| pulse.bursts = Bursts::default());
        }
    }

    /// How those at these positions stand now.
    pub fn look_at(&mut self, seen: &Observation<'_>, rows: impl Iterator<Item = usize>) -> Lull {
        let tick = self.looked.replace(seen.now).map_or(Nanos(0), |before| seen.now.since(before));
        let (now, quiet) = (seen.now, Nanos(u64::MAX));
        let mut lull = Lull { now, working: false, quiet, back_at: None, foreseen: true, tick };
        for at in rows {
            let (Some(sample), Some(pulse)) = (seen.samples.get(at), self.pulses.get_mut(at)) else {
                continue;
            };
            if is_filler(sample) {
                continue;
            }
            pulse.edge = pulse.bursts.step(seen, sample, QUIET);
            match pulse.edge {
                Edge::Began(Some(gap)) => pulse.gaps.note(gap),
                Edge::Ended(length) => pulse.lengths.note(length),
                Edge::Began(None) | Edge::None => {}
            }
            pulse.note_drained(sample);
            lull.add(sample, pulse);
        }
        lull
    }

    /// Whether it looked not so long before `now` that it would have to begin anew.
    pub fn is_followed(&self, now: Nanos) -> bool {
        self.looked.is_some_and(|before| now.since(before) <= UNSEEN)
    }

    /// A tenant's bursts, and what the last look found. Of fillers: nothing.
    pub fn bursts(&self, at: usize) -> Option<(&Bursts, Edge)> {
        self.pulses.get(at).map(|pulse| (&pulse.bursts, pulse.edge))
    }

    /// Whether nothing more follows from a tenant that has been still for long, until it moves: its return is not foretold.
    pub fn rests(&self, at: usize, sample: &Sample) -> bool {
        let rests = |pulse: &Pulse| {
            !pulse.bursts.is_busy()
                && pulse.edge == Edge::None
                && !pulse.drained
                && pulse.gap(sample).is_none()
        };
        self.pulses.get(at).is_some_and(rests)
    }
}

impl Pulse {
    /// Learns what it means that the tenant is found drained: most programs wait only where they have a bubble.
    fn note_drained(&mut self, sample: &Sample) {
        let before = std::mem::replace(&mut self.drained, !is_working(sample) && sample.idle_for == Nanos(0));
        if before && (sample.idle_for == Nanos(0) || sample.idle_for >= QUIET) {
            self.lulls = self.lulls << 1 | u8::from(sample.idle_for >= QUIET);
        }
    }

    /// The gap that it is in, as it is foretold; none once that is over.
    fn gap(&self, sample: &Sample) -> Option<Foretold> {
        self.gaps.next().filter(|foretold| {
            let latest = foretold.length.0.saturating_add(foretold.error.0).saturating_add(LATE.0);
            sample.idle_for.0 <= latest
        })
    }

    /// Whether it mostly is in a gap when it is found drained.
    fn is_mostly_a_gap(&self) -> bool {
        self.lulls.count_ones() >= MOSTLY
    }

    /// Whether a burst that goes on has done what such bursts do: drained now, it is over.
    fn is_done(&self, now: Nanos, sample: &Sample) -> bool {
        let length = self.bursts.truly(now, sample);
        self.lengths.next().is_some_and(|foretold| length >= foretold.length.since(LATE.max(foretold.error)))
    }
}

/// A better is expected back by no more than this too early: units of fillers are seldom longer, and one of them is all that it waits for.
const EARLY: Nanos = Nanos::from_millis(2);

impl Lull {
    fn add(&mut self, sample: &Sample, pulse: &Pulse) {
        let now = self.now;
        self.quiet = self.quiet.min(sample.idle_for);
        if is_working(sample) {
            (self.working, self.foreseen) = (true, false);
            return;
        }
        // Its return will be seen up to a tick late, as those were from which this was learnt.
        let early = |foretold: Foretold| foretold.length.since(foretold.error.clamp(QUIET, EARLY));
        let moved = now.since(sample.idle_for);
        let back_at = pulse.gap(sample).map(|foretold| Nanos(moved.0.saturating_add(early(foretold).0)));
        self.foreseen &= sample.idle_for >= QUIET
            || (back_at.is_some() && (pulse.is_done(now, sample) || pulse.is_mostly_a_gap()));
        self.back_at = match (self.back_at, back_at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// Whether somebody is expected back before `margin` has passed.
    pub fn ends_within(&self, margin: Nanos) -> bool {
        self.back_at.is_some_and(|back_at| back_at.since(self.now) < margin)
    }
}

/// Whether a tenant has work on the GPU: something is under way, and has moved of late.
pub fn is_working(sample: &Sample) -> bool {
    sample.outstanding > Nanos(0) && sample.idle_for == Nanos(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::{filler, primary, tenant};
    use crate::{Mode, Signals};

    /// How many milliseconds of it are left.
    fn left(lull: &Lull) -> Option<u64> {
        lull.back_at.map(|back_at| back_at.since(lull.now).0 / 1_000_000)
    }

    /// Looks in these milliseconds at a primary that iterates, 5 ms of work and 10 ms of nothing, and at a filler.
    fn watch(ms: impl IntoIterator<Item = u64>) -> Vec<Lull> {
        let mut watch = Watch::default();
        let look = |at: u64| {
            let (busy, idle) = (at % 15 <= 5, (at % 15).saturating_sub(5));
            let outstanding = Nanos(u64::from(busy && at % 15 != 5));
            let primary =
                Sample { tenant: 1, outstanding, idle_for: Nanos::from_millis(idle), ..primary(50) };
            let filler = Sample { tenant: 2, outstanding: Nanos(9), ..filler() };
            let now = Nanos::from_millis(at + 100);
            let (mode, signals) = (Mode::default(), Signals::default());
            watch.look(&Observation { now, mode, signals, samples: &[primary, filler] })
        };
        ms.into_iter().map(look).collect()
    }

    /// papers 2: bubble-length prediction from the iteration period.
    #[test]
    fn a_bubbles_end_is_foretold_once_there_is_a_rhythm() {
        let lulls = watch(0..150);
        assert!(lulls.iter().take(40).all(|lull| lull.back_at.is_none()), "two bubbles are no rhythm");
        let left = |at: usize| left(&lulls[at]);
        assert_eq!(
            (left(140), left(145), left(149)),
            (Some(9), Some(4), Some(0)),
            "a tick before it is seen"
        );
    }

    /// papers 2: the same, one burst earlier.
    #[test]
    fn a_bubble_is_foreseen_when_the_burst_before_it_is_done() {
        let lulls = watch(0..150);
        assert!(!lulls[5].foreseen, "the first");
        assert!(lulls[140].foreseen && !lulls[140].working && lulls[140].quiet == Nanos(0));
        assert!(!lulls[136].foreseen, "the burst has only begun");
    }

    /// papers 2: the bubble monitor.
    #[test]
    fn what_nobody_looked_at_is_no_gap() {
        let lulls = watch((0..150).chain(15_000..15_040));
        let left = |at: usize| left(&lulls[at]);
        assert_eq!((left(140), left(155), left(170)), (Some(9), Some(9), Some(9)));
    }

    /// papers 2: a bubble is the primary's, whoever fills it.
    #[test]
    fn fillers_disturb_no_lull() {
        let lulls = watch(0..15);
        assert!(lulls[2].working && !lulls[8].working);
        assert_eq!(lulls[8].quiet, Nanos::from_millis(3));
    }

    /// gpu-truths 1: a bubble is "context drained", and the dead have none.
    #[test]
    fn what_is_left_behind_by_the_dead_is_no_work() {
        let stale = Sample { outstanding: Nanos(5), idle_for: Nanos::from_secs(2), ..tenant() };
        assert!(!is_working(&stale));
        assert!(is_working(&Sample { idle_for: Nanos(0), ..stale }));
    }
}
