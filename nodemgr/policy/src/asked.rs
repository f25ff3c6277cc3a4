//! What a division of the GPU was asked for last: where that is the same again, so are the grants, and most ticks are such.

use weir_protocol::units::{Bytes, Nanos};

use crate::lend::is_busy;
use crate::pools::{Opened, Opening};
use crate::pressure::Verdict;
use crate::{Sample, promise};

/// What holds for all tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// How much the fillers get together, ...
    pub opened: Opened,
    /// ... and how.
    pub opening: Opening,
    /// For how long bursts are put off.
    pub hold: Nanos,
    /// What best effort may have at most, in thousandths.
    pub best_effort: u16,
}

/// All of a tenant that its grant, or another's, depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    tenant: u64,
    memory_limit: Bytes,
    rest: u64, // shares, class, verdict, turn, whether it is busy, has promised, has broken that: packed, as each tick has all rows
}

impl Row {
    /// That of a tenant whose bursts are judged so, and whose turns are so long: less than a second.
    pub fn of(sample: &Sample, verdict: Verdict, turn: Nanos) -> Self {
        let shares = [sample.request, sample.limit].map(|share| u64::from(share.as_permille()));
        let kinds = (sample.class as u64) << 2 | verdict as u64;
        let promise = sample.slo.map_or(0, |_| 1 << 1 | u64::from(promise::is_broken(sample)));
        let stands = u64::from(is_busy(sample)) << 2 | promise;
        let rest = ((turn.0 / 1_000) << 34) | shares[0] << 23 | shares[1] << 7 | kinds << 3 | stands;
        Self { tenant: sample.tenant, memory_limit: sample.memory_limit, rest }
    }
}

/// What was asked for last.
#[derive(Default)]
pub struct Asked {
    common: Option<Common>,
    rows: Vec<Row>,
}

impl Asked {
    /// Whether this is the same again; remembers it. `rows`: those of so many that may have changed, by their positions.
    pub fn is_same(
        &mut self,
        common: Common,
        count: usize,
        rows: impl Iterator<Item = (usize, Row)>,
    ) -> bool {
        let mut same = self.common.replace(common) == Some(common) && self.rows.len() == count;
        self.rows.resize(count, Row::default());
        for (at, row) in rows {
            same &= self.rows.get_mut(at).is_some_and(|before| std::mem::replace(before, row) == row);
        }
        same
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::units::SmShare;

    use super::*;
    use crate::Class;
    use crate::story::{slo, tenant};

    fn common() -> Common {
        let opening = Opening::open(Nanos(1), "FILL");
        Common { opened: Opened::Bubble(5), opening, hold: Nanos(0), best_effort: 1_000 }
    }

    fn row(change: impl FnOnce(&mut Sample)) -> Row {
        let mut sample = tenant();
        change(&mut sample);
        Row::of(&sample, Verdict::Recovery, Nanos(0))
    }

    fn is_same(asked: &mut Asked, common: Common, rows: &[Row]) -> bool {
        asked.is_same(common, rows.len(), rows.iter().copied().enumerate())
    }

    /// Weir's own: docs/time.md, rest (design 10, `manager.core_percent`).
    #[test]
    fn whatever_a_grant_depends_on_makes_another_question() {
        let same = row(|_| {});
        let others = [
            row(|sample| sample.tenant += 1),
            row(|sample| sample.request = SmShare::permille(1)),
            row(|sample| sample.limit = SmShare::permille(1)),
            row(|sample| sample.memory_limit.0 += 1),
            row(|sample| sample.class = Class::Filler),
            row(|sample| sample.idle_for = crate::IDLE_AFTER),
            row(|sample| sample.slo = slo(200, None)),
            row(|sample| sample.slo = slo(200, Some(200))),
            Row::of(&tenant(), Verdict::Emergency, Nanos(0)),
            Row::of(&tenant(), Verdict::Recovery, Nanos::from_micros(1)),
        ];
        for other in others {
            let mut asked = Asked::default();
            assert!(!is_same(&mut asked, common(), &[same, same]), "the first one");
            assert!(is_same(&mut asked, common(), &[same, same]));
            assert!(!is_same(&mut asked, common(), &[same, other]), "{other:?}");
            assert!(is_same(&mut asked, common(), &[same, other]));
        }
        assert_eq!(same, row(|sample| sample.idle_for = Nanos(1)), "as busy as before");
    }

    /// Weir's own: docs/time.md, rest (design 10, `manager.core_percent`).
    #[test]
    fn so_does_what_holds_for_all_and_how_many_they_are() {
        let same = row(|_| {});
        let others = [
            Common { opened: Opened::Beside(5), ..common() },
            Common { opening: Opening::closed("BUSY"), ..common() },
            Common { hold: Nanos(1), ..common() },
            Common { best_effort: 999, ..common() },
        ];
        for other in others {
            let mut asked = Asked::default();
            is_same(&mut asked, common(), &[same]);
            assert!(!is_same(&mut asked, other, &[same]), "{other:?}");
        }
        let mut asked = Asked::default();
        is_same(&mut asked, common(), &[same, same]);
        assert!(!is_same(&mut asked, common(), &[same]) && is_same(&mut asked, common(), &[same]));
        assert!(!is_same(&mut asked, common(), &[same, same]));
    }
}
