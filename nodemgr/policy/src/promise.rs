//! How a tenant's promise to its users stands: when there is a new figure, and how it compares with the bound.

use weir_protocol::units::Nanos;

use crate::{Counted, Sample, Slo};

/// A figure that does not change is taken for a new one after so long: whoever scrapes it does so once a second.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// Who has told its latency goes on as it did for so long while no request ends: of a server of a request in a second one
/// scrape in a few finds none. Whoever is silent for longer is not asked any more, or its figures are gone.
const LASTS: Nanos = Nanos::from_secs(60);

/// What was read last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Promise {
    last: Option<Nanos>,
    read_at: Option<Nanos>,
}

/// A new figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The latency of late.
    pub recent: Nanos,
    /// What it should stay below.
    pub target: Nanos,
    /// Which quantile, in thousandths.
    pub quantile_permille: u16,
    /// What was counted until now, if anybody counts.
    pub counted: Option<Counted>,
}

impl Promise {
    /// The reading, if there is one that was not seen before.
    pub fn read(&mut self, now: Nanos, sample: &Sample) -> Option<Reading> {
        let Some(Slo { recent, target, quantile_permille, counted }) = sample.slo else {
            *self = Self::default();
            return None;
        };
        let read_at = self.read_at.unwrap_or_default();
        if recent.is_some() && self.last == recent && now.since(read_at) < PATIENCE {
            return None;
        }
        self.last = recent;
        let recent = recent?;
        self.read_at = Some(now);
        Some(Reading { recent, target, quantile_permille, counted })
    }

    /// Whether its figures are known: of now, or of not long ago.
    pub fn is_told(&self, now: Nanos) -> bool {
        self.read_at.is_some_and(|at| now.since(at) <= LASTS)
    }
}

/// Whether the tenant promised anything and its figures of just now are known.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::{latency, slo};

    /// design 8: latency sources, `p95 < 200ms` on one of them.
    #[test]
    fn a_figure_is_news_when_it_changes_or_after_a_second() {
        let mut promise = Promise::default();
        let mut read = |ms: u64, recent: Option<u64>| {
            let sample = Sample { slo: slo(200, recent), ..latency(10) };
            promise.read(Nanos::from_millis(ms), &sample).map(|reading| reading.recent.0 / 1_000_000)
        };
        assert_eq!(
            [read(0, Some(150)), read(1, Some(150)), read(2, Some(151))],
            [Some(150), None, Some(151)]
        );
        assert_eq!([read(1_001, Some(151)), read(1_002, Some(151))], [None, Some(151)]);
        assert_eq!(
            [read(1_003, None), read(1_004, Some(151))],
            [None, Some(151)],
            "it was silent in between"
        );
    }

    /// design 8: latency sources, `p95 < 200ms` on one of them.
    #[test]
    fn who_told_is_believed_for_a_while_in_which_no_request_ends() {
        let mut promise = Promise::default();
        let mut told = |second: u64, slo: Option<Slo>| {
            let now = Nanos::from_secs(second);
            promise.read(now, &Sample { slo, ..latency(10) });
            promise.is_told(now)
        };
        assert!(!told(1, slo(200, None)) && told(2, slo(200, Some(150))));
        assert!(told(62, slo(200, None)) && !told(63, slo(200, None)));
        assert!(told(64, slo(200, Some(150))) && !told(65, None), "it promises nothing any more");
    }

    /// design 8: latency sources, `p95 < 200ms` on one of them.
    #[test]
    fn a_promise_is_broken_at_its_bound() {
        let broken = |slo| is_broken(&Sample { slo, ..latency(10) });
        assert!(broken(slo(200, Some(200))) && !broken(slo(200, Some(199))) && !broken(slo(200, None)));
        assert!(!broken(None));
    }

    /// design 8: latency sources, `p95 < 200ms` on one of them.
    #[test]
    fn a_bound_of_nothing_is_far_exceeded() {
        let (recent, target) = (Nanos(u64::MAX), Nanos(0));
        let reading = Reading { recent, target, quantile_permille: 950, counted: None };
        assert_eq!(reading.permille(), u64::MAX);
    }
}
