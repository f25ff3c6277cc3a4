//! A strict tenant that has been without a node manager for long: it keeps what it holds, and gets nothing beyond that
//! (faults A.3, `stale_after`). A manager that ticks again ends it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_protocol::units::{Bytes, Nanos};

use super::gpu::Gpu;
use crate::clock;
use crate::say::Once;

/// After so long where the mark of a strict tenant does not say.
const DEFAULT: Nanos = Nanos::from_secs(600);

/// After how long, in nanoseconds; 0: the process's tenant is not strict.
static AFTER: AtomicU64 = AtomicU64::new(0);

/// No ceiling is set.
const NONE: u64 = u64::MAX;

/// What may be held at most, on one GPU, while no manager is there.
pub struct Ceiling(AtomicU64);

impl Default for Ceiling {
    fn default() -> Self {
        Self(AtomicU64::new(NONE))
    }
}

/// The process is let in as one of a strict tenant, whose mark says after how many seconds; or of another one.
pub fn expect(mark: Option<&Path>) {
    let after = mark.map_or(Nanos(0), |mark| {
        let text = std::fs::read_to_string(mark).unwrap_or_default();
        text.trim().parse().ok().filter(|seconds| *seconds > 0).map_or(DEFAULT, Nanos::from_secs)
    });
    AFTER.store(after.0, Ordering::Relaxed); // before there is a client whose threads could read it
}

impl Gpu {
    /// What the tenant may hold here: what the manager has granted, and of a strict tenant that has had none for long, what it
    /// held when that was noticed.
    pub fn memory_limit(&self) -> Bytes {
        let granted = self.grant.read().memory_limit;
        match Nanos(AFTER.load(Ordering::Relaxed)) {
            Nanos(0) => granted,
            after => granted.min(self.ceiling(after)),
        }
    }

    #[cold]
    fn ceiling(&self, after: Nanos) -> Bytes {
        let Ceiling(ceiling) = &self.ceiling;
        if self.gate.silence(self.pages(), clock::now()) < after {
            ceiling.store(NONE, Ordering::Relaxed);
            return Bytes(NONE);
        }
        // Relaxed: of two threads that notice at once one sets it; what either of them holds is within the limit.
        let held = self.usage.held();
        let set = ceiling.compare_exchange(NONE, held.0, Ordering::Relaxed, Ordering::Relaxed);
        SAID.say(|| {
            format!(
                "no node manager for {after} (strict mode): {held} are held, and nothing beyond that is allocated. help: start \
                 `weir node` again"
            )
        });
        Bytes(set.err().unwrap_or(held.0))
    }
}

static SAID: Once = Once::new();
