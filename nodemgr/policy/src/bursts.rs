//! When a tenant's bursts of work begin and end, and how long they really took.
//!
//! ```text
//!   idle_for   0 0 0 0 0 1 2 3 4 0 0 0 0      a tick each
//!              [ burst  ][  gap  ][ burst
//! ```
//!
//! A burst that waited at our gate, or while the GPU was a neighbour's, was not slowed down: that time is taken out of its
//! length (gpu-truths, rule 3). Where tenants overlap (MPS) nobody waits for the GPU: what is a neighbour's there is by how
//! much he slowed it down, and is left in. With several processes the stalls are the sum of theirs, so it is the *part* of
//! their time that counts.

use weir_protocol::pages::Stall;
use weir_protocol::units::Nanos;

use crate::{Mode, Observation, Sample, Work};

/// What has just happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edge {
    /// Nothing.
    #[default]
    None,
    /// A burst has begun after so long a gap; of the first burst no gap is known.
    Began(Option<Nanos>),
    /// A burst has ended that truly took so long.
    Ended(Nanos),
}

/// Tokens of a burst that say how slow it was: less would be lost in what is settled late.
const ENOUGH: u64 = 1_000_000;

/// Follows one tenant.
#[derive(Clone, Debug, Default)]
pub struct Bursts {
    busy: bool,
    mode: Mode,
    moved: Option<Nanos>, // when it last did
    began: Nanos,
    before: Work, // when the burst was first seen, ...
    early: Work,  // ... and at the look before that: whoever runs ahead has launched much in between
    last: Work,   // at the last look
}

impl Bursts {
    /// Looks at one of the tenants; a gap is one of at least `quiet`.
    pub fn step(&mut self, seen: &Observation<'_>, sample: &Sample, quiet: Nanos) -> Edge {
        self.mode = seen.mode;
        let moved = seen.now.since(sample.idle_for);
        let last = std::mem::replace(&mut self.last, sample.work);
        if sample.idle_for < quiet {
            let gap = self.moved.map(|before| moved.since(before));
            self.moved = Some(moved);
            if self.busy {
                return Edge::None;
            }
            (self.busy, self.began) = (true, moved);
            (self.before, self.early) = (sample.work, last);
            return Edge::Began(gap);
        }
        if !std::mem::take(&mut self.busy) {
            return Edge::None;
        }
        Edge::Ended(self.truly(moved, sample))
    }

    /// Whether it is in a burst.
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// How slow the burst was: its time on the SMs for a thousand tokens, or where tenants overlap for a thousand ns that it
    /// would take there alone. Nothing but a neighbour at the same moment changes it: a longer request, or a larger batch,
    /// takes longer and costs more alike (papers 1.5, weakness 7). Beside it, in the same measure, what `others` did.
    pub fn pace(&self, sample: &Sample, others: Nanos) -> Option<(Nanos, Nanos)> {
        let grown = |stall: Stall| {
            let at = stall as usize;
            sample.work.stalls[at].since(self.early.stalls[at]).0
        };
        let on_sms = grown(Stall::Compute).saturating_add(grown(Stall::Communication));
        let charged = sample.work.charged.0.saturating_sub(self.early.charged.0);
        let charged = u64::try_from(charged).ok().filter(|charged| *charged >= ENOUGH)?;
        let (took, unit) = match self.mode {
            Mode::TimeSlicing => (on_sms, charged),
            Mode::Overlap => (on_sms.saturating_add(grown(Stall::Neighbour)), on_sms.max(1)),
        };
        let paced = |ns: u64| Nanos(ns.saturating_mul(1_000) / unit);
        Some((paced(took), paced(others.0)))
    }

    /// How long the burst has lasted.
    pub fn wall(&self, now: Nanos) -> Nanos {
        now.since(self.began)
    }

    /// How long the burst truly took until `now`.
    pub fn truly(&self, now: Nanos, sample: &Sample) -> Nanos {
        let wall = self.wall(now);
        let spent = spent(&self.before, &sample.work);
        // Nothing is dealt out yet, or nobody does: then all of it counts.
        let waited = match self.mode {
            Mode::TimeSlicing => spent.gate.saturating_add(spent.neighbour),
            Mode::Overlap => spent.gate,
        };
        let lost = u128::from(waited) * u128::from(wall.0);
        let lost = u64::try_from(lost / u128::from(spent.all.max(1))).unwrap_or(wall.0);
        wall.since(Nanos(lost))
    }
}

/// Where time went between two looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Waiting at our gate.
    pub gate: u64,
    /// While the GPU was somebody else's.
    pub neighbour: u64,
    /// All of it.
    pub all: u64,
}

/// Where time went between `before` and `after`. A tenant writes these figures: whatever runs backwards is nothing.
pub fn spent(before: &Work, after: &Work) -> Spent {
    let grown = |stall: usize| after.stalls[stall].since(before.stalls[stall]).0;
    Spent {
        gate: grown(Stall::Gate as usize),
        neighbour: grown(Stall::Neighbour as usize),
        all: (0..Stall::ALL.len()).map(grown).fold(0, u64::saturating_add),
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::units::Tokens;

    use super::*;
    use crate::Signals;
    use crate::story::tenant;

    const QUIET: Nanos = Nanos::from_millis(1);

    fn at(ms: u64, idle_ms: u64, stalls: &[(Stall, u64)]) -> (Nanos, Sample) {
        let mut sample = Sample { idle_for: Nanos::from_millis(idle_ms), ..tenant() };
        stalls.iter().for_each(|(stall, ms)| sample.work.stalls[*stall as usize] = Nanos::from_millis(*ms));
        (Nanos::from_millis(ms), sample)
    }

    fn step(bursts: &mut Bursts, seen: (Nanos, Sample)) -> Edge {
        step_in(Mode::TimeSlicing, bursts, seen)
    }

    fn step_in(mode: Mode, bursts: &mut Bursts, (now, sample): (Nanos, Sample)) -> Edge {
        let seen = Observation { now, mode, signals: Signals::default(), samples: &[sample] };
        bursts.step(&seen, &sample, QUIET)
    }

    /// papers 1.5: the length of a burst is what RCKM judges by.
    #[test]
    fn bursts_and_gaps_are_told_from_when_something_last_moved() {
        let mut bursts = Bursts::default();
        assert_eq!(step(&mut bursts, at(100, 0, &[])), Edge::Began(None));
        assert_eq!(step(&mut bursts, at(110, 0, &[])), Edge::None);
        assert_eq!(step(&mut bursts, at(111, 1, &[])), Edge::Ended(Nanos::from_millis(10)));
        assert_eq!(step(&mut bursts, at(118, 8, &[])), Edge::None);
        assert_eq!(step(&mut bursts, at(120, 0, &[])), Edge::Began(Some(Nanos::from_millis(10))));
    }

    #[test]
    fn the_part_of_a_burst_that_was_our_gates_or_a_neighbours_is_taken_out() {
        // gpu-truths, rule 3. Two processes: their stalls add up to twice the time.
        let mut bursts = Bursts::default();
        step(&mut bursts, at(100, 0, &[]));
        let spent = [(Stall::Compute, 100), (Stall::Gate, 60), (Stall::Neighbour, 40)];
        assert_eq!(step(&mut bursts, at(201, 1, &spent)), Edge::Ended(Nanos::from_millis(50)));
    }

    #[test]
    fn where_tenants_overlap_what_is_a_neighbours_is_slowdown() {
        // gpu-truths, rule 3: what is taken out are the driver's slices, and there are none.
        let mut bursts = Bursts::default();
        let at = |ms: u64, idle_ms: u64, stalls: &[(Stall, u64)]| {
            let (now, mut sample) = at(ms, idle_ms, stalls);
            sample.work.charged = Tokens(ms.cast_signed() * 1_000_000 / 3); // by weight, beside two others
            (now, sample)
        };
        step_in(Mode::Overlap, &mut bursts, at(100, 0, &[]));
        let (now, sample) = at(200, 0, &[(Stall::Compute, 50), (Stall::Gate, 20), (Stall::Neighbour, 30)]);
        assert_eq!(bursts.pace(&sample, Nanos(0)), Some((Nanos(1_600), Nanos(0))), "80 ms on the SMs for 50");
        assert_eq!(bursts.truly(now, &sample), Nanos::from_millis(80));
    }

    /// design 7: whatever a tenant wrote is range-checked before use.
    #[test]
    fn a_tenant_that_lies_changes_no_more_than_its_own_figure() {
        let mut bursts = Bursts::default();
        step(&mut bursts, at(100, 0, &[(Stall::Gate, 50)]));
        let (now, mut sample) = at(200, 50, &[]);
        sample.work.stalls = [Nanos(u64::MAX); Stall::ALL.len()];
        sample.work.stalls[Stall::Gate as usize] = Nanos(0);
        assert!(
            matches!(step(&mut bursts, (now, sample)), Edge::Ended(length) if length <= Nanos::from_millis(50))
        );
    }
}
