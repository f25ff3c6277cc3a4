//! What fillers may cost a primary: less than a hundredth of its time.
//!
//! Whoever wakes in a bubble that is being filled waits for the filler's work in flight and for the switch. That time shows
//! as a neighbour's, and is paid from a purse which fills with a 125th of all time. While it is empty, only such
//! bubbles are filled as cost nothing: those whose end is foretold, until shortly before it, and those that are already so
//! long that the wait at their end is such a small part of them.

use weir_protocol::units::Nanos;

use crate::Work;
use crate::bursts::spent;

/// What a primary may lose: one part in so many. The bar is 1 % (design 10, `policy.primary_loss_percent`), of which a fifth
/// stays for what shows too late to be paid.
pub const PART: u64 = 125;

/// Most that is saved up, so that a quiet hour does not pay for a bad second.
const MOST: i64 = 10_000_000;

/// Deepest debt: two seconds are enough to pay for what is long over.
const LEAST: i64 = -20_000_000;

/// One primary's purse.
#[derive(Clone, Copy, Debug, Default)]
pub struct Purse {
    before: Option<(Nanos, Work)>,
    saved: i64,
}

impl Purse {
    /// Pays in for the time since the last call, and out for what the neighbours took of it. `theirs`: those are fillers.
    pub fn settle(&mut self, now: Nanos, work: &Work, theirs: bool) {
        let Some((at, before)) = self.before.replace((now, *work)) else { return };
        let elapsed = now.since(at).0;
        let spent = spent(&before, work);
        // The stalls are those of several processes, perhaps, and come late: what counts is their part, of the time
        // that they are about.
        let lost = if theirs { spent.neighbour.min(elapsed) } else { 0 };
        let saved = i128::from(elapsed / PART) - i128::from(lost);
        let sum = i128::from(self.saved).saturating_add(saved).clamp(LEAST.into(), MOST.into());
        self.saved = i64::try_from(sum).unwrap_or(LEAST);
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.saved < 0
    }
}
