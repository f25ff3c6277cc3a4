//! The usage page: what each process of a tenant holds and does on one GPU.
//!
//! One slot per process, each word of it written by that process alone. Memory is the tenant's in common: a
//! process announces what it wants, sums everybody's words, and takes it back if the sum is over the limit.
//! A dead process's slot is folded into the tenant's totals and zeroed by the manager.

use serde::{Deserialize, Serialize};
#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use super::copy::Copies;
use super::graphs::Graphs;
use super::header::{Header, PageKind};
use super::share::{SHARES, Share};
use super::stall::Stalls;
use super::told::Told;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, relax};
use crate::units::Bytes;

/// Processes of one tenant that may use one GPU at the same time.
pub const PROCESS_SLOTS: usize = if cfg!(loom) { 2 } else { 32 };

/// Counter lines of a process: threads beyond the last share it.
pub const LANES: usize = if cfg!(loom) { 1 } else { 8 };

/// The launch calls that a lane counts, by exported symbol. An index into this table is an index into
/// [`Lane::calls`].
pub const COUNTED_LAUNCHES: [&str; 16] = [
    "cuLaunchKernel",
    "cuLaunchKernel_ptsz",
    "cuLaunchKernelEx",
    "cuLaunchKernelEx_ptsz",
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernel_ptsz",
    "cuLaunchCooperativeKernelMultiDevice",
    "cuGraphLaunch",
    "cuGraphLaunch_ptsz",
    "cuLaunch",
    "cuLaunchGrid",
    "cuLaunchGridAsync",
    "",
    "",
    "",
    "",
];

/// The memory calls that a process counts, by exported symbol. An index into this table is an index into
/// [`ProcessSlot::memory_calls`].
pub const COUNTED_MEMORY_CALLS: [&str; 22] = [
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAllocPitch_v2",
    "cuMemAllocManaged",
    "cuMemAllocAsync",
    "cuMemAllocAsync_ptsz",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz",
    "cuMemFreeAsync",
    "cuMemFreeAsync_ptsz",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
    "cuMemMap",
    "cuMemUnmap",
    "cuArrayCreate_v2",
    "cuArray3DCreate_v2",
    "cuArrayDestroy",
    "cuMipmappedArrayCreate",
    "cuMipmappedArrayDestroy",
    "cuMemGetInfo_v2",
    "cuDeviceTotalMem_v2",
];

/// What kind of memory a ledger entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum MemoryKind {
    /// `cuMemAlloc`, pitched too.
    Plain,
    /// `cuMemAllocManaged`.
    Managed,
    /// Stream-ordered allocations and the pools behind them.
    Pool,
    /// `cuMemCreate`.
    Virtual,
    /// Arrays and mipmapped arrays.
    Array,
    /// What a context costs by itself.
    Context,
    /// Memory nodes of graphs.
    Graph,
}

impl MemoryKind {
    /// Every kind, in the order of the words on the page.
    pub const ALL: [Self; 7] =
        [Self::Plain, Self::Managed, Self::Pool, Self::Virtual, Self::Array, Self::Context, Self::Graph];
}

/// How a process stands to its budget. Everything but [`Self::Enforced`] is shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum ProcessState {
    /// Registered; no context on this GPU yet.
    Starting = 0,
    /// Budgets hold.
    Enforced = 1,
    /// The manager's epoch stands still: fallback rate, last limits.
    Stale = 2,
    /// A fault of ours let at least one call pass unenforced.
    Degraded = 3,
    /// It is no client of MPS, by which tenants share the GPU: it has no partition, its gate alone holds it.
    BesideMps = 4,
}

impl ProcessState {
    /// From a word that a tenant wrote: unknown values read as [`Self::Degraded`].
    pub fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Starting,
            1 => Self::Enforced,
            2 => Self::Stale,
            4 => Self::BesideMps,
            _ => Self::Degraded,
        }
    }
}

/// How a process knows what its contexts cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum ContextSource {
    /// It has no context yet.
    None = 0,
    /// NVML's figure for the process.
    Process = 1,
    /// By how much the card's used memory rose, within bounds: a neighbour's allocation may be in it.
    Difference = 2,
    /// What the operator has configured.
    Configured = 3,
    /// Nobody can tell: contexts are not charged.
    Unknown = 4,
}

impl ContextSource {
    /// From a word that a tenant wrote: unknown values read as [`Self::Unknown`].
    pub fn from_word(word: u32) -> Self {
        match word {
            0 => Self::None,
            1 => Self::Process,
            2 => Self::Difference,
            3 => Self::Configured,
            _ => Self::Unknown,
        }
    }
}

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
    /// Times that a launch or a copy of its has asked at the gate and been told to wait: moves while one waits.
    pub put_off: AtomicU64,
    /// [`ProcessState`] as a number.
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
    /// [`ContextSource`] as a number.
    pub context_source: AtomicU32,
    /// The process's number in the manager's own namespace, which is NVML's; 0 before it registered. The manager writes.
    pub pid: AtomicU32,
    /// Calls that it wanted to make while it was parked.
    pub knocks: AtomicU32,
    /// Time until the GPU had switched to this process's work from a neighbour's, in nanoseconds: not part of any charge.
    pub switch_ns: AtomicU64,
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
    /// Memory that crosses processes.
    pub shares: [Share; SHARES],
    /// Launch counters.
    pub lanes: [Lane; LANES],
}

/// One slot per process.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct UsagePage {
    header: Header,
    /// Grows with each [`Share`] that a living process leaves to whoever else has the memory open.
    pub left: AtomicU64,
    stirs: AtomicU64,
    _reserved: [u64; 4],
    /// The processes; the manager says in its welcome which slot is whose.
    pub slots: [ProcessSlot; PROCESS_SLOTS],
    /// Latencies that the processes have told, on the page of the tenant's first GPU. All of them add to it, and it stays when
    /// they end: a request that was served was served.
    pub told: Told,
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Lane>() == 192 && COUNTED_MEMORY_CALLS.len() <= 24);
    assert!(offset_of!(ProcessSlot, lanes).is_multiple_of(64) && size_of::<ProcessSlot>().is_multiple_of(64));
    assert!(
        offset_of!(ProcessSlot, put_off) / 64 == offset_of!(ProcessSlot, completed_ns) / 64,
        "see `Pulse`"
    );
    assert!(offset_of!(UsagePage, slots) == 64);
    assert!(size_of::<UsagePage>() <= 96 << 10, "64 tenants with a page each must stay well under 16 MiB");
};

/// Rounds in which a reservation waits for others to decide theirs before it takes "no" for an answer.
const RESERVE_TRIES: usize = if cfg!(loom) { 2 } else { 1_000 };

impl UsagePage {
    /// Marks a zeroed page as ready.
    pub fn init(&self) {
        self.header.publish(PageKind::Usage, size_of::<Self>());
    }

    /// The header, to be checked when the page is opened.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Memory that all processes hold.
    pub fn held(&self) -> Bytes {
        // SeqCst here and below: see the fence in `reserve`.
        let sum =
            |total: u64, slot: &ProcessSlot| total.saturating_add(slot.held_bytes.load(Ordering::SeqCst));
        Bytes(self.slots.iter().fold(0, sum))
    }

    /// A process of the tenant that is taken for asleep begins work on one of its GPUs, or waits at its gate there. Said on
    /// the page of the tenant's first GPU: all that a tick looks at of a tenant that sleeps ([`Bell`](super::Bell)).
    pub fn stir(&self) {
        // Release: whoever sees it sees what the process had shown before.
        self.stirs.fetch_add(1, Ordering::Release);
    }

    /// How often one has.
    pub fn stirs(&self) -> u64 {
        self.stirs.load(Ordering::Acquire)
    }

    fn held_or_wanted(&self) -> Bytes {
        let sum = |total: u64, slot: &ProcessSlot| {
            // The announcement first: `reserve` raises `held` before it withdraws the announcement, so this
            // order can count bytes twice for a moment, and never miss them.
            let tentative = slot.tentative_bytes.load(Ordering::SeqCst);
            total.saturating_add(tentative).saturating_add(slot.held_bytes.load(Ordering::SeqCst))
        };
        Bytes(self.slots.iter().fold(0, sum))
    }

    /// Takes `want` for the process in `slot` if the tenant then stays within `limit`, and says so. The caller
    /// gives it back with [`ProcessSlot::release`] if the driver refuses. Two processes never both get the last
    /// bytes; that both are turned away where one would fit is made unlikely by trying again.
    pub fn reserve(&self, slot: usize, want: Bytes, limit: Bytes) -> bool {
        let Some(own) = self.slots.get(slot) else { return false };
        for _ in 0..RESERVE_TRIES {
            own.tentative_bytes.fetch_add(want.0, Ordering::SeqCst);
            // Of two processes that announce at once, at least one sees the other: both fences stand in one total
            // order, and whoever's comes second reads behind the other's announcement.
            fence(Ordering::SeqCst);
            let fits = self.held_or_wanted() <= limit;
            if fits {
                own.held_bytes.fetch_add(want.0, Ordering::SeqCst);
            }
            own.tentative_bytes.fetch_sub(want.0, Ordering::SeqCst);
            if fits {
                // Relaxed: for people to read.
                own.peak_bytes.fetch_max(own.held_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
                return true;
            }
            if self.held().0.saturating_add(want.0) > limit.0 {
                return false; // over the limit by what is held, not by what others merely announce
            }
            relax();
        }
        false
    }
}

impl ProcessSlot {
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

    /// Zeroes the slot for its next owner. The manager calls this once the process is dead.
    pub fn clear(&self) {
        self.tentative_bytes.store(0, Ordering::SeqCst);
        self.held_bytes.store(0, Ordering::SeqCst);
        let words = [
            &self.peak_bytes,
            &self.refused,
            &self.put_off,
            &self.submitted_ns,
            &self.completed_ns,
            &self.faults,
            &self.corrected_ns,
            &self.measured_ns,
            &self.switch_ns,
            &self.shared_bytes,
            &self.collectives,
            &self.resumed_at_ns,
        ];
        let lanes = self.lanes.iter().flat_map(Lane::words);
        // Relaxed: the next owner learns of its slot over the socket, which orders these stores before it.
        for word in words.into_iter().chain(&self.by_kind).chain(&self.memory_calls).chain(lanes) {
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
        self.shares.iter().for_each(Share::clear);
        self.graphs.clear();
        self.copies.clear();
        self.stalls.clear();
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
        ];
        self.calls.iter().chain(rest)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page() -> Box<UsagePage> {
        Box::new(zerocopy::FromZeros::new_zeroed())
    }

    #[test]
    fn the_limit_binds_the_tenant_across_its_processes() {
        let page = page();
        assert!(page.reserve(0, Bytes(60), Bytes(100)));
        assert!(!page.reserve(1, Bytes(41), Bytes(100)));
        assert!(page.reserve(1, Bytes(40), Bytes(100)));
        page.slots[0].release(Bytes(60));
        assert!(page.reserve(1, Bytes(60), Bytes(100)));
        assert_eq!(page.held(), Bytes(100));
    }

    #[test]
    fn a_slot_that_does_not_exist_gets_nothing() {
        assert!(!page().reserve(PROCESS_SLOTS, Bytes(1), Bytes(100)));
    }

    #[test]
    fn a_cleared_slot_holds_nothing() {
        let page = page();
        assert!(page.reserve(3, Bytes(60), Bytes(100)));
        page.slots[3].lanes[2].calls[0].store(7, Ordering::Relaxed);
        page.slots[3].clear();
        assert_eq!(page.held(), Bytes(0));
        assert_eq!(page.slots[3].lanes[2].calls[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn whoever_knocks_launches_or_asks_for_memory_has_called() {
        let page = page();
        let slot = &page.slots[0];
        let launch = &slot.lanes[LANES - 1].calls[0];
        let calls: [&dyn Fn(); 3] = [&|| slot.knock(), &|| launch.store(1, Ordering::Relaxed), &|| {
            slot.memory_calls[0].store(1, Ordering::Relaxed)
        }];
        for call in calls {
            let before = slot.calls();
            call();
            assert_ne!(slot.calls(), before);
        }
        slot.clear();
        assert_eq!(slot.calls(), 0, "the next one has not called yet");
    }

    proptest! {
        #[test]
        fn no_sequence_of_reservations_passes_the_limit(steps in prop::collection::vec((0usize..4, 0u64..50), 0..200)) {
            let page = page();
            let mut held = [0u64; 4];
            for (slot, bytes) in steps {
                if bytes % 3 == 0 && held[slot] > 0 {
                    page.slots[slot].release(Bytes(held[slot]));
                    held[slot] = 0;
                } else if page.reserve(slot, Bytes(bytes), Bytes(100)) {
                    held[slot] += bytes;
                } else {
                    prop_assert!(held.iter().sum::<u64>() + bytes > 100, "refused although it fits");
                }
                prop_assert_eq!(page.held(), Bytes(held.iter().sum()));
                prop_assert!(page.held() <= Bytes(100));
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    #[test]
    fn two_processes_never_both_get_the_last_bytes() {
        loom::model(|| {
            let page = loom::sync::Arc::new(UsagePage::default());
            let other = {
                let page = page.clone();
                loom::thread::spawn(move || page.reserve(1, Bytes(60), Bytes(100)))
            };
            let mine = page.reserve(0, Bytes(60), Bytes(100));
            let theirs = other.join().unwrap();
            assert!(!(mine && theirs), "120 of 100 bytes are held");
            assert!(page.held() <= Bytes(100));
        });
    }
}
