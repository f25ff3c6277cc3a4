//! A process's slot on the usage page: what it holds and does on one GPU. Each word is written by that process alone, but for
//! the few that say so.

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use super::calls::COUNTED_LAUNCHES;
use super::copy::Copies;
use super::graphs::Graphs;
use super::share::{SHARES, Share};
use super::stall::Stalls;
use super::turn::Turn;
use super::words::MemoryKind;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::Bytes;

/// Counter lines of a process: threads beyond the last share it.
pub const LANES: usize = if cfg!(loom) { 1 } else { 8 };

/// Counters of one thread (the last lane: of all further threads). All only grow. What a launch counts stands in the first
/// two of the three lines, so that two threads' busy lines never lie side by side, where a processor fetches both.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Lane {
    /// Tokens charged, in nanoseconds of SM time.
    pub charged_ns: AtomicU64,
    /// Launches that had to wait.
    pub throttled: AtomicU64,
    /// Time spent waiting at the gate, in nanoseconds.
    pub waited_ns: AtomicU64,
    /// Launches into a stream that was capturing: free then, paid by the graph launch.
    pub captured: AtomicU64,
    /// Launches let through by the liveness rule.
    pub forced: AtomicU64,
    /// Token slices drawn.
    pub slices: AtomicU64,
    /// Launches measured each by itself.
    pub bracketed: AtomicU64,
    /// Launches let through because other ranks had gone ahead and may spin for them.
    pub caught_up: AtomicU64,
    /// Calls by [`COUNTED_LAUNCHES`]; the older ones, which few programs call, come last.
    pub calls: [AtomicU64; COUNTED_LAUNCHES.len()],
    /// Launches and copies that went at once, since to wait there could stop what they wait for.
    pub excused: AtomicU64,
}

impl Lane {
    /// Calls by all launch symbols.
    pub fn launched(&self) -> u64 {
        // Relaxed: sums that only grow.
        self.calls.iter().map(|calls| calls.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// Memory that has been moved from one slot to another so far, in bytes.
#[derive(Debug, Default)]
pub struct Moved {
    held: u64,
    shared: u64,
    by_kind: [u64; MemoryKind::ALL.len()],
}

/// One process of the tenant.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct ProcessSlot {
    /// Memory held, in bytes: charged and confirmed by the driver, or about to be.
    pub held_bytes: AtomicU64,
    /// Memory announced and not yet decided upon.
    pub tentative_bytes: AtomicU64,
    /// Most memory ever held at once.
    pub peak_bytes: AtomicU64,
    /// Allocations refused for the limit.
    pub refused: AtomicU64,
    /// Memory held by [`MemoryKind`]; their sum is `held_bytes` whenever no call is under way.
    pub by_kind: [AtomicU64; MemoryKind::ALL.len()],
    /// Moves each time that a launch or a copy of its asks at the gate and is told to wait; odd while one waits.
    pub put_off: AtomicU64,
    /// [`ProcessState`](super::ProcessState) as a number.
    pub state: AtomicU32,
    /// The grant under which the last launch was admitted; the manager sleeps on this word after a resize.
    pub acked_generation: AtomicU32,
    /// Predicted work handed to the driver so far, in nanoseconds.
    pub submitted_ns: AtomicU64,
    /// Predicted work known to be done, in nanoseconds.
    pub completed_ns: AtomicU64,
    /// Panics of ours that were caught.
    pub faults: AtomicU64,
    /// What measuring changed in what launches had been charged, in nanoseconds: a signed number that wraps.
    pub corrected_ns: AtomicU64,
    /// What measured work took, in nanoseconds.
    pub measured_ns: AtomicU64,
    /// Memory of other processes that this one has open, in bytes: charged to its owner, not part of `held_bytes`.
    pub shared_bytes: AtomicU64,
    /// 1 once memory was booked beyond the limit, because it could not be refused: a first context, growth that nobody
    /// foretold. Holds while the tenant holds more than its limit.
    pub overcommitted: AtomicU32,
    /// [`ContextSource`](super::ContextSource) as a number.
    pub context_source: AtomicU32,
    /// The process's number in the manager's own namespace, which is NVML's; 0 before it registered. The manager writes.
    pub pid: AtomicU32,
    /// Calls that it wanted to make while it was parked.
    pub knocks: AtomicU32,
    /// Collectives launched: kernels that run until other ranks have launched theirs, and graphs with such kernels.
    pub collectives: AtomicU64,
    /// When a rank last went on after it had waited, in nanoseconds; 0: it is none, or never waited.
    pub resumed_at_ns: AtomicU64,
    /// Calls by [`COUNTED_MEMORY_CALLS`].
    pub memory_calls: [AtomicU64; 24],
    /// What became of its executable graphs.
    pub graphs: Graphs,
    /// What it has copied.
    pub copies: Copies,
    /// Where its time went.
    pub stalls: Stalls,
    /// How the process stands to its turn among the tenant's, while they take turns ([`UsagePage::solo_until`](super::UsagePage::solo_until)).
    pub turn: Turn,
    /// Memory that crosses processes.
    pub shares: [Share; SHARES],
    /// So that the lanes begin with a cache line.
    _spare: AtomicU64,
    /// Launch counters.
    pub lanes: [Lane; LANES],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::{offset_of, size_of};

    use super::calls::COUNTED_MEMORY_CALLS;
    assert!(size_of::<Lane>() == 192 && COUNTED_MEMORY_CALLS.len() <= 24);
    assert!(offset_of!(ProcessSlot, lanes).is_multiple_of(64) && size_of::<ProcessSlot>().is_multiple_of(64));
    assert!(
        offset_of!(ProcessSlot, put_off) / 64 == offset_of!(ProcessSlot, completed_ns) / 64,
        "one line of a process tells whether it works"
    );
};

impl ProcessSlot {
    /// Whether a launch of the process waits at the gate.
    pub fn waits(&self) -> bool {
        self.put_off.load(Ordering::Relaxed) % 2 == 1 // a hint: nothing is ordered by it
    }

    /// A call is about to be made while the tenant is parked: it waits in the driver until the manager, which looks at this
    /// word in each tick, has brought the tenant's memory back.
    pub fn knock(&self) {
        // Release: stands before the call that follows.
        self.knocks.fetch_add(1, Ordering::Release);
    }

    /// A sum of what only grows when the process calls: if it has moved, the process wants to go on. Besides the knocks these
    /// are calls that are counted before they are made, since one may have looked just before the tenant was parked.
    pub fn calls(&self) -> u64 {
        let knocks = u64::from(self.knocks.load(Ordering::Acquire));
        // Relaxed: the tenant writes them, so the sum wraps.
        let launches = self.lanes.iter().flat_map(|lane| &lane.calls);
        let counted = launches.chain(&self.memory_calls).map(|calls| calls.load(Ordering::Relaxed));
        counted.fold(knocks, u64::wrapping_add)
    }

    /// Takes `bytes` without asking: they are held already, whatever the limit.
    pub fn book(&self, bytes: Bytes) {
        // SeqCst: see `UsagePage::held`.
        let held = self.held_bytes.fetch_add(bytes.0, Ordering::SeqCst).saturating_add(bytes.0);
        // Relaxed: for people to read.
        self.peak_bytes.fetch_max(held, Ordering::Relaxed);
    }

    /// Gives `bytes` back.
    pub fn release(&self, bytes: Bytes) {
        // SeqCst: see `UsagePage::held`.
        self.held_bytes.fetch_sub(bytes.0, Ordering::SeqCst);
    }

    /// Continues where the process stood on `old`, its slot on pages of its own: for a slot that was zeroed and is written by
    /// nobody yet. Memory comes with [`Self::move_memory`].
    pub fn continue_from(&self, old: &Self) {
        // Relaxed: counters, each whole by itself. What another thread counts there meanwhile may be missing here.
        for (new, old) in self.counters().zip(old.counters()) {
            new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.context_source.store(old.context_source.load(Ordering::Relaxed), Ordering::Relaxed);
        for (new, old) in self.shares.iter().zip(&old.shares) {
            if let Some((state, shared)) = old.read() {
                new.put(state, &shared);
            }
        }
    }

    /// Charges here what is charged on `old` and has not been `moved` yet. A thread in the middle of a call may change the old
    /// words once more: then it is called again.
    pub fn move_memory(&self, old: &Self, moved: &mut Moved) {
        let rest = |word: &AtomicU64, moved: &mut u64| {
            let now = word.load(Ordering::SeqCst);
            now.wrapping_sub(std::mem::replace(moved, now)) // a smaller sum wraps, and so does the addition
        };
        self.held_bytes.fetch_add(rest(&old.held_bytes, &mut moved.held), Ordering::SeqCst);
        self.shared_bytes.fetch_add(rest(&old.shared_bytes, &mut moved.shared), Ordering::Relaxed);
        for ((new, old), moved) in self.by_kind.iter().zip(&old.by_kind).zip(&mut moved.by_kind) {
            new.fetch_add(rest(old, moved), Ordering::Relaxed);
        }
    }

    /// All that is counted, memory apart.
    fn counters(&self) -> impl Iterator<Item = &AtomicU64> {
        let own = [
            &self.peak_bytes,
            &self.refused,
            &self.put_off,
            &self.submitted_ns,
            &self.completed_ns,
            &self.faults,
            &self.corrected_ns,
            &self.measured_ns,
            &self.collectives,
            &self.resumed_at_ns,
        ];
        let lanes = self.lanes.iter().flat_map(Lane::words);
        let parts = self.graphs.words().chain(self.copies.words()).chain(self.stalls.words());
        own.into_iter().chain(&self.memory_calls).chain(lanes).chain(parts)
    }

    /// Zeroes the slot for its next owner. The manager calls this once the process is dead.
    pub fn clear(&self) {
        self.tentative_bytes.store(0, Ordering::SeqCst);
        self.held_bytes.store(0, Ordering::SeqCst);
        // Relaxed: the next owner learns of its slot over the socket, which orders these stores before it.
        for word in self.counters().chain(&self.by_kind).chain([&self.shared_bytes]) {
            word.store(0, Ordering::Relaxed);
        }
        let halves = [
            &self.state,
            &self.acked_generation,
            &self.overcommitted,
            &self.context_source,
            &self.pid,
            &self.knocks,
        ];
        for word in halves {
            word.store(0, Ordering::Relaxed);
        }
        self.turn.clear();
        self.shares.iter().for_each(Share::clear);
    }
}

impl Lane {
    fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        let rest = [
            &self.charged_ns,
            &self.throttled,
            &self.waited_ns,
            &self.captured,
            &self.forced,
            &self.slices,
            &self.bracketed,
            &self.caught_up,
            &self.excused,
        ];
        self.calls.iter().chain(rest)
    }
}
