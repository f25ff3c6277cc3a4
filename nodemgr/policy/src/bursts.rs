//! When a tenant's bursts of work begin and end, and how long they really took.
//!
//! ```text
//!   idle_for   0 0 0 0 0 1 2 3 4 0 0 0 0      a tick each
//!              [ burst  ][  gap  ][ burst
//! ```
//!
//! A burst that waited at our gate, or while the GPU was a neighbour's, was not slowed down: that time is taken out of its
//! length (gpu-truths, rule 3). With several processes the stalls are the sum of theirs, so it is the *part* of their time
//! that counts.

use weir_protocol::pages::Stall;
use weir_protocol::units::Nanos;

use crate::{Sample, Work};

/// What has just happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Nothing.
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
    moved: Option<Nanos>, // when it last did
    began: Nanos,
    before: Work,
}

impl Bursts {
    /// Looks at the tenant; a gap is one of at least `quiet`.
    pub fn step(&mut self, now: Nanos, sample: &Sample, quiet: Nanos) -> Edge {
        let moved = now.since(sample.idle_for);
        if sample.idle_for < quiet {
            let gap = self.moved.map(|before| moved.since(before));
            self.moved = Some(moved);
            if self.busy {
                return Edge::None;
            }
            (self.busy, self.began, self.before) = (true, moved, sample.work);
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

    /// How slow the burst was: its time on the SMs for a thousand tokens, which nothing but a neighbour at the same moment
    /// changes. A longer request, or a larger batch, takes longer and costs more alike (papers 1.5, weakness 7).
    pub fn pace(&self, sample: &Sample) -> Option<Nanos> {
        let grown = |stall: Stall| {
            let at = stall as usize;
            sample.work.stalls[at].since(self.before.stalls[at]).0
        };
        let on_sms = grown(Stall::Compute).saturating_add(grown(Stall::Communication));
        let charged = sample.work.charged.0.saturating_sub(self.before.charged.0);
        let charged = u64::try_from(charged).ok().filter(|charged| *charged >= ENOUGH)?;
        Some(Nanos(on_sms.saturating_mul(1_000) / charged))
    }

    /// How long the burst truly took until `now`.
    pub fn truly(&self, now: Nanos, sample: &Sample) -> Nanos {
        let wall = now.since(self.began);
        let spent = spent(&self.before, &sample.work);
        // Nothing is dealt out yet, or nobody does: then all of it counts.
        let lost = u128::from(spent.gate.saturating_add(spent.neighbour)) * u128::from(wall.0);
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
