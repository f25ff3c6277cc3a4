//! Gangs: ranks of one tenant whose kernels wait for each other on the GPUs (tensor parallel, data parallel).
//!
//! A collective runs until each rank has launched its own, so a rank that the gate holds back makes the others spin: they
//! burn their GPUs' time, and are charged for it. Three rules keep ranks together (gpu-truths, rule 9):
//!
//! * a rank that is *behind* another one, by collectives launched, is not held back: what it launches passes as debt until
//!   it has caught up;
//! * a rank that is *not* behind begins nothing new while any GPU of the gang is in debt: the gang goes at the pace of its
//!   slowest GPU. The turns themselves stay one for each GPU (`docs/time.md` says what became of taking them on all at once);
//! * a rank that waits for its turn joins one that has begun its own, so that turns begin together.
//!
//! A rank is one process on one GPU; a process is none before it has looked up a collective. Two ranks are held to belong
//! together while their counts lie within [`WINDOW`]: nobody tells us who is in a communicator. Ranks that are taken for a
//! gang and are none (replicas) keep pace with each other then, and no limit suffers: what passes as debt is charged,
//! [`MOST_DEBT`] bounds it, and nobody runs ahead before it is paid off. Ranks of one gang that launch unequal numbers of
//! collectives (stages of a pipeline) drift out of the window: for them only the standstill rule is left.
//!
//! How long a rank spins for another one is not known: from outside, a collective's own time and its waiting are one
//! kernel. So it is charged as what it is, time on SMs, and there is no counter of it.

mod names;

pub use names::is_collective;

use weir_protocol::units::{Nanos, Tokens};

/// Ranks whose counts of collectives lie further apart do not wait for each other. Ranks that do are apart by what one of
/// them has queued while the other was not looking: the collectives of a few steps of a model.
pub const WINDOW: u64 = 64;

/// Most debt in which a rank may catch up, in capacities of its bucket: what accrues in a tenth of a second, if the bucket
/// holds 20 ms.
pub const MOST_DEBT: i64 = 5;

/// A rank that waits looks so often whether another one has gone ahead.
pub const LOOK: Nanos = Nanos::from_millis(1);

/// What the gang makes of one launch of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Others are ahead and may spin for it: it passes as debt.
    CatchUp,
    /// A GPU of the gang is in debt, for so long.
    Wait(Nanos),
    /// Another rank has begun its turn: any balance above zero will do.
    Join,
    /// The gate decides, as about any launch.
    Gate,
}

/// Another process or GPU of the tenant.
#[derive(Clone, Copy, Debug)]
pub struct Other {
    /// Number of the GPU.
    pub gpu: usize,
    /// Collectives it has launched.
    pub collectives: u64,
    /// When it last went on after it had waited.
    pub resumed_at: Nanos,
}

/// Decides about a launch, which `arrived` at the gate then, of the rank that has launched `own` collectives. `debt` says
/// how long it takes until a GPU's bucket is out of debt, if it is in debt.
pub fn turn(
    own: u64,
    arrived: Nanos,
    others: impl Iterator<Item = Other>,
    mut debt: impl FnMut(usize) -> Option<Nanos>,
) -> Turn {
    let (mut longest, mut begun) = (None, false);
    for other in others.filter(|other| other.collectives > 0 && own.abs_diff(other.collectives) <= WINDOW) {
        if other.collectives > own {
            return Turn::CatchUp;
        }
        longest = longest.max(debt(other.gpu));
        begun |= other.resumed_at >= arrived;
    }
    match longest {
        Some(wait) => Turn::Wait(wait),
        None if begun => Turn::Join,
        None => Turn::Gate,
    }
}

/// Whether a rank may catch up at this balance.
pub fn may_owe(balance: Tokens, capacity: Tokens) -> bool {
    balance.0 > capacity.0.saturating_mul(-MOST_DEBT)
}

#[cfg(test)]
mod tests;
