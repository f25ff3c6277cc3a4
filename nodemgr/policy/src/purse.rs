//! What fillers may cost a primary: a fiftieth of its time.
//!
//! Whoever wakes in a bubble that is being filled waits for the filler's work in flight and for the switch. That time shows
//! as a neighbour's, and is paid from a purse which fills with a fiftieth of all time. While it is empty, only such
//! bubbles are filled as cost nothing: those whose end is foretold, until shortly before it, and those that are already so
//! long that the wait at their end is such a small part of them.

use weir_protocol::units::Nanos;

use crate::Work;
use crate::bursts::spent;

/// What a primary may lose: one part in so many. The bar is 4 % (`duel.filled_loss_percent`), of which half stays for what shows
/// too late to be paid, and for noise. Fillers of short units cost less than 1 % whatever this is (`policy.primary_loss_percent`); with half of it
/// those whose units are as long as two milliseconds get half as many.
pub const PART: u64 = 50;

/// Most that is saved up, so that a quiet hour does not pay for a bad second.
const MOST: i64 = 10_000_000;

/// Deepest debt: a second is enough to pay for what is long over.
const LEAST: i64 = -20_000_000;

/// One primary's purse.
#[derive(Clone, Copy, Debug, Default)]
pub struct Purse {
    before: Option<(Nanos, Work)>,
    saved: i64,
}

impl Purse {
    /// Pays in for the time since the last call, and out for what was lost to fillers in it: time behind a neighbour if
    /// only fillers were there, and at our gate if that let all through that it could (`unmetered`), so that it was the turn
    /// that was waited for. Stalls come late, and those of several processes add up; neither favours the fillers.
    pub fn settle(&mut self, now: Nanos, work: &Work, only_fillers: bool, unmetered: bool) {
        if let Some((at, before)) = &mut self.before
            && self.saved == MOST
            && before == work
        {
            *at = now; // as below: of a tenant that rests nothing is lost, and it has all that may be saved up
            return;
        }
        let Some((at, before)) = self.before.replace((now, *work)) else { return };
        let spent = spent(&before, work);
        let gate = if unmetered { spent.gate } else { 0 };
        let lost = if only_fillers { spent.neighbour.saturating_add(gate) } else { 0 };
        let sum = i128::from(self.saved) + i128::from(now.since(at).0 / PART) - i128::from(lost);
        self.saved = i64::try_from(sum.clamp(LEAST.into(), MOST.into())).unwrap_or(LEAST);
    }

    /// Whether nothing changes in it as long as its tenant does no more than `work`: it has all that may be saved up.
    pub fn rests(&self, work: &Work) -> bool {
        self.saved == MOST && self.before.as_ref().is_some_and(|(_, before)| before == work)
    }

    /// It has rested until then.
    pub fn rested(&mut self, until: Nanos) {
        self.before = self.before.map(|(_, before)| (until, before));
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.saved < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_protocol::pages::Stall;

    /// A second of which so many milliseconds went to this, told at its end.
    fn after(stall: Stall, ms: u64, only_fillers: bool, unmetered: bool) -> Purse {
        let (mut purse, mut work) = (Purse::default(), Work::default());
        purse.settle(Nanos(0), &work, only_fillers, unmetered);
        work.stalls[stall as usize] = Nanos::from_millis(ms);
        purse.settle(Nanos::from_secs(1), &work, only_fillers, unmetered);
        purse
    }

    #[test]
    fn a_fiftieth_of_its_time_may_be_lost() {
        assert!(!after(Stall::Neighbour, 19, true, true).is_empty());
        assert!(after(Stall::Neighbour, 21, true, true).is_empty());
        assert!(after(Stall::Gate, 21, true, true).is_empty(), "it waited for the turn");
    }

    #[test]
    fn what_fillers_did_not_cause_is_not_paid() {
        assert!(!after(Stall::Neighbour, 500, false, true).is_empty(), "another primary was there");
        assert!(!after(Stall::Gate, 500, true, false).is_empty(), "it had used up its own rate");
        assert!(!after(Stall::Compute, 900, true, true).is_empty());
    }

    #[test]
    fn neither_a_quiet_hour_nor_a_bad_one_counts_for_long() {
        let mut purse = after(Stall::Neighbour, 3_600_000, true, true);
        let mut work = Work::default();
        work.stalls[Stall::Neighbour as usize] = Nanos::from_secs(3_600);
        purse.settle(Nanos::from_secs(4), &work, true, true);
        assert!(!purse.is_empty(), "paid back in a second");
        purse.settle(Nanos::from_secs(4_000), &work, true, true);
        work.stalls[Stall::Neighbour as usize].0 += 11_000_000;
        purse.settle(Nanos::from_secs(4_000), &work, true, true);
        assert!(purse.is_empty(), "11 ms at once are more than is ever saved");
    }
}
