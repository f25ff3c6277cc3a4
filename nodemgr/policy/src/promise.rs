//! How a tenant's promise to its users stands: when there is a new figure, and how it compares with the bound.

use weir_protocol::units::Nanos;

use crate::{Sample, Slo};

/// A figure that does not change is taken for a new one after so long: whoever scrapes it does so once a second.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// What was read last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Promise {
    last: Option<Nanos>,
    read_at: Nanos,
}

/// A new figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The latency of late.
    pub recent: Nanos,
    /// What it should stay below.
    pub target: Nanos,
}

impl Promise {
    /// The reading, if there is one that was not seen before.
    pub fn read(&mut self, now: Nanos, sample: &Sample) -> Option<Reading> {
        let Some(Slo { recent: Some(recent), target, .. }) = sample.slo else {
            *self = Self::default();
            return None;
        };
        if self.last == Some(recent) && now.since(self.read_at) < PATIENCE {
            return None;
        }
        (self.last, self.read_at) = (Some(recent), now);
        Some(Reading { recent, target })
    }
}

/// Whether the tenant promised anything and its figures are known.
pub fn is_told(sample: &Sample) -> bool {
    sample.slo.is_some_and(|slo| slo.recent.is_some())
}

/// Whether the promise is broken just now.
pub fn is_broken(sample: &Sample) -> bool {
    sample.slo.is_some_and(|slo| slo.recent.is_some_and(|recent| recent >= slo.target))
}

impl Reading {
    /// The latency in thousandths of the bound.
    pub fn permille(self) -> u64 {
        let permille = u128::from(self.recent.0) * 1_000 / u128::from(self.target.0.max(1));
        u64::try_from(permille).unwrap_or(u64::MAX)
    }
}
