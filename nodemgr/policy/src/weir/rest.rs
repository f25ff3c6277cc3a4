//! Who rests: tenants that have been still for long, and of whom nothing more follows until they move. A tick looks at the
//! others alone, and comes to the same: on a full node most tenants rest.

use weir_protocol::units::Nanos;

use super::{Better, Weir};
use crate::pools::is_filler;
use crate::{Class, Observation, Sample};

/// Nobody rests who has not been still for so long.
const STILL: Nanos = Nanos::from_secs(1);

/// Since when somebody rests.
#[derive(Clone, Copy)]
pub(super) struct Since {
    moved: Nanos,
    worked: u64, // by fillers in all, when it was looked at last
}

/// What the betters that rest come to.
#[derive(Clone, Copy, Default)]
pub(super) struct Resting {
    moved: Option<Nanos>, // when the last of them did
    /// Whether there are any.
    pub(super) any: bool,
    /// Whether fillers have to be out of the way of one.
    pub(super) disturbed: bool,
    /// Whether one is a latency tenant.
    pub(super) online: bool,
}

impl Resting {
    /// How long the one that moved last has been still.
    pub(super) fn quiet(&self, now: Nanos) -> Nanos {
        self.moved.map_or(Nanos(u64::MAX), |moved| now.since(moved))
    }

    fn add(&mut self, sample: &Sample, better: &Better, since: Since) {
        if is_filler(sample) {
            return;
        }
        self.moved = self.moved.max(Some(since.moved));
        self.any = true;
        self.disturbed |= better.is_disturbed(sample);
        self.online |= sample.class == Class::Latency;
    }
}

impl Weir {
    /// Everybody is looked at.
    pub(super) fn rouse_all(&mut self, seen: &Observation<'_>) {
        self.awake.clear();
        self.awake.extend(0..seen.samples.len());
        let (looked, worked) = (self.looked, self.worked);
        for better in self.betters.iter_mut() {
            better.rouse(looked, worked);
        }
        self.resting = Resting::default();
    }

    /// These are looked at, too.
    pub(super) fn rouse(&mut self, seen: &Observation<'_>, moved: &[usize]) {
        let before = self.awake.len();
        for at in moved {
            if self.betters.get_mut(*at).is_some_and(|better| better.rouse(self.looked, self.worked)) {
                self.awake.push(*at);
            }
        }
        if self.awake.len() == before {
            return;
        }
        self.awake.sort_unstable(); // the level moves by one after the other
        self.resting = Resting::default();
        for (sample, better) in seen.samples.iter().zip(self.betters.iter()) {
            if let Some(since) = better.rests {
                self.resting.add(sample, better, since);
            }
        }
    }

    /// Who can rest is looked at no more.
    pub(super) fn lay_to_rest(&mut self, seen: &Observation<'_>) {
        let Self { awake, betters, watch, resting, worked, .. } = self;
        awake.retain(|at| {
            let (Some(sample), Some(better)) = (seen.samples.get(*at), betters.get_mut(*at)) else {
                return false;
            };
            let rests = sample.idle_for >= STILL && sample.slo.is_none();
            let rests = rests
                && match is_filler(sample) {
                    true => sample.outstanding == Nanos(0),
                    false => better.purse.rests(&sample.work) && watch.rests(*at, sample),
                };
            if rests {
                let since = Since { moved: seen.now.since(sample.idle_for), worked: *worked };
                resting.add(sample, better, since);
                better.rests = Some(since);
            }
            !rests
        });
    }
}

impl Better {
    /// What it has missed, if it rested: it was looked at last at `looked`, and fillers had `worked` so much then.
    fn rouse(&mut self, looked: Nanos, worked: u64) -> bool {
        let Some(since) = self.rests.take() else { return false };
        self.purse.rested(looked);
        let missed = worked.wrapping_sub(since.worked);
        self.beside = self.beside.saturating_add(missed);
        self.within = self.within.saturating_add(missed);
        true
    }
}
