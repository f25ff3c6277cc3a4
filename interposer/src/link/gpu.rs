//! One GPU of the tenant, as this process sees it.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rustix::thread::futex;
use weir_core::flight::Neighbours;
use weir_core::gate::{Gate, Pages};
use weir_core::hold::Holder;
use weir_core::ledger;
use weir_core::lock::Lock;
use weir_core::piece::Pieces;
use weir_core::pool::{Change, Pool};
use weir_core::progress::Progress;
use weir_core::stall::Stalls;
use weir_protocol::mapping::Mapped;
use weir_protocol::message::GpuGrant;
use weir_protocol::pages::{
    ActivityPage, BucketPage, GrantPage, LANES, MemoryKind, NO_BOARD, ProcessSlot, ProcessState, UsagePage,
};
use weir_protocol::units::{Bytes, Nanos};

use super::betters::Betters;
use super::board::Board;
use super::busy::Busy;
use super::context::Contexts;
use super::local::Former;
use super::overlap::Overlap;
use super::page::Page;
use super::run::Run;
use super::solo::Solos;
use super::stale::Ceiling;
use super::standing::Standing;
use crate::hooks::{ContextMemory, Utilization};

/// The lane that all further threads share.
pub const SHARED_LANE: usize = LANES - 1;

/// One GPU: its pages, its gate, and the contexts that the process has on it.
pub struct Gpu {
    /// Position among the tenant's GPUs.
    pub index: usize,
    /// The driver's identity of the device.
    pub uuid: [u8; 16],
    /// Whether tenants are to share it by MPS.
    pub by_mps: bool,
    /// Whether launches may wait in their streams.
    pub in_stream: bool,
    /// What a switch from one context to another takes.
    pub switch: Nanos,
    /// Those that do.
    pub pieces: Pieces,
    /// What the manager grants.
    pub grant: Page<GrantPage>,
    /// The tenant's bucket.
    pub bucket: Page<BucketPage>,
    /// Everybody's usage.
    pub usage: Page<UsagePage>,
    /// Which of the tenant's processes have work here now.
    pub activity: Page<ActivityPage>,
    /// The same of this process, in its own memory.
    pub(super) busy: Busy,
    /// Whether tenants' kernels run at once.
    pub overlap: Overlap,
    /// How far the tenant's work has come.
    pub progress: Lock<Progress>,
    /// The neighbours.
    pub board: Board,
    /// Those of them to whom the tenant gives way.
    pub betters: Betters,
    /// What each lane's thread launches to.
    pub runs: [Run; LANES],
    /// The gate.
    pub gate: Gate,
    /// Whether it passes without turns.
    pub(super) standing: Standing,
    /// When its bursts begin.
    pub holder: Holder,
    /// How much a turn may take beyond its length.
    pub(super) room: AtomicU64,
    /// Turns with the tenant's other processes.
    pub(super) solos: Solos,
    /// The primary context, while it has users; 0 otherwise.
    pub primary: AtomicU64,
    /// Where this process's time goes here.
    pub stalls: Lock<Stalls>,
    /// What NVML's view of its utilisation goes by.
    pub utilization: Utilization,
    /// What its contexts cost.
    pub context_memory: ContextMemory,
    /// What the driver keeps for the device's graphs.
    pub graph_memory: Pool,
    /// The driver's number of the device; -1 before it was first seen.
    pub device: AtomicI32,
    /// The contexts that the process has here.
    pub(super) contexts: Contexts,
    pub(super) ceiling: Ceiling,
    slot: AtomicUsize,
    lanes: AtomicU32,
    acked: AtomicU32,
}

/// The tenant's pages on one GPU, mapped.
pub struct TenantPages {
    /// What the manager grants.
    pub grant: Mapped<GrantPage>,
    /// The tenant's bucket.
    pub bucket: Mapped<BucketPage>,
    /// Everybody's usage.
    pub usage: Mapped<UsagePage>,
    /// Everybody's activity.
    pub activity: Mapped<ActivityPage>,
}

impl Gpu {
    /// A GPU whose pages have been mapped; `slot` was checked to lie on the usage page.
    pub fn new(index: usize, granted: &GpuGrant, slot: usize, pages: TenantPages) -> Self {
        let TenantPages { grant, bucket, usage, activity } = pages;
        let utilization = Utilization::start(&usage.slots);
        Self {
            index,
            uuid: granted.uuid,
            by_mps: granted.mps,
            in_stream: granted.in_stream,
            switch: granted.switch,
            pieces: Pieces::default(),
            grant: Page::new(grant),
            bucket: Page::new(bucket),
            usage: Page::new(usage),
            activity: Page::new(activity),
            busy: Busy::default(),
            overlap: Overlap::default(),
            progress: Lock::default(),
            board: Board::default(),
            betters: Betters::default(),
            runs: Default::default(),
            gate: Gate::default(),
            standing: Standing::default(),
            holder: Holder::default(),
            room: AtomicU64::new(0),
            solos: Solos::default(),
            primary: AtomicU64::new(0),
            stalls: Lock::default(),
            utilization,
            context_memory: ContextMemory::default(),
            graph_memory: Pool::new(0, index),
            device: AtomicI32::new(-1),
            slot: AtomicUsize::new(slot),
            lanes: AtomicU32::new(0),
            acked: AtomicU32::new(0),
            contexts: Contexts::default(),
            ceiling: Ceiling::default(),
        }
    }

    /// This process's slot.
    pub fn slot(&self) -> &ProcessSlot {
        let usage: &UsagePage = &self.usage; // first: see `move_to`
        // In range since `new`; the first slot stands in so that nothing here can panic.
        usage.slots.get(self.slot_index()).unwrap_or(&usage.slots[0])
    }

    /// This process's slot number.
    pub fn slot_index(&self) -> usize {
        self.slot.load(Ordering::Relaxed)
    }

    /// Pages that a manager has come with take the place of the process's own, and its slot there, which nobody has written
    /// yet, goes on from what it had.
    pub(super) fn move_to(&self, slot: usize, pages: TenantPages) -> Former {
        let mut former = Former::new(self.usage.current(), [self.slot_index(), slot]);
        if let Some(new) = pages.usage.slots.get(slot) {
            new.continue_from(self.slot());
            former.charge(new);
        }
        // The slot before the pages, and readers take the page first: none finds a page of the tenant's with another
        // process's slot. The grant last: its generation makes every thread look for its lane (`Counters`).
        self.slot.store(slot, Ordering::Relaxed);
        self.activity.exchange(pages.activity);
        self.usage.exchange(pages.usage);
        self.bucket.exchange(pages.bucket);
        self.acked.store(0, Ordering::Relaxed);
        self.grant.exchange(pages.grant);
        former.charge(self.slot());
        if self.is_busy() {
            self.begin(); // as it was on the page before
        }
        self.mark_if_over(|| "memory that was held before there was a node manager".to_owned());
        former
    }

    /// The pages as the gate wants them.
    pub fn pages(&self) -> Pages<'_> {
        Pages { grant: &self.grant, bucket: &self.bucket, usage: &self.usage, slot: self.slot() }
    }

    /// The number of a counter lane for a new thread: its own, or the last one, shared.
    pub fn next_lane(&self) -> usize {
        // Relaxed: a ticket, nothing else.
        (self.lanes.fetch_add(1, Ordering::Relaxed) as usize).min(SHARED_LANE)
    }

    /// Books everything that has been launched as in flight, on whatever thread.
    pub fn book_runs(&self) {
        let slot = self.slot();
        self.runs.iter().zip(&slot.lanes).for_each(|(run, lane)| run.book(lane, slot));
    }

    /// Whether more was copied than the budget of bandwidth allows.
    pub fn owes_copies(&self) -> bool {
        self.bucket.copies() <= 0 && self.grant.read().copy_limit.is_limited()
    }

    /// Threads that have launched here so far.
    pub fn threads(&self) -> u32 {
        self.lanes.load(Ordering::Relaxed)
    }

    /// The grant under which this process has launched last; 0 before the first launch.
    pub fn launched_under(&self) -> u32 {
        self.acked.load(Ordering::Relaxed)
    }

    /// Tells the manager, once for each grant, that a launch went out under it, and shows whether it is silent: who has
    /// all the tokens that it wants never comes to the gate's waiting.
    pub fn acknowledge(&self, generation: u32) {
        // Looked at first: each token slice comes by here, a new grant seldom.
        let known = self.acked.load(Ordering::Relaxed) == generation
            || self.acked.swap(generation, Ordering::Relaxed) == generation;
        if !known {
            let word = &self.slot().acked_generation;
            word.store(generation, Ordering::Release);
            let _ = futex::wake(word, futex::Flags::empty(), 1);
        }
        let shown_stale = self.slot().state.load(Ordering::Relaxed) == ProcessState::Stale as u32;
        if !known || shown_stale != self.gate.is_stale() {
            self.show_state();
        }
    }

    /// Shows on the page, and once on stderr, how this process stands to its budget.
    pub fn show_state(&self) {
        if self.grant.board() == NO_BOARD {
            SWITCHED_OFF.say(|| {
                "the operator has switched Weir off: shares and turns are NOT enforced, memory limits hold. \
                 help: `weir on` brings them back"
                    .into()
            });
        }
        let alone = super::Client::get().is_some_and(super::Client::look_for_manager);
        let state = if alone || self.slot().faults.load(Ordering::Relaxed) > 0 {
            ProcessState::Degraded
        } else if self.gate.is_stale() {
            SILENT.say(|| {
                "the node manager has been silent for 1 s: the requested share holds, lent time is given back, \
                 memory limits stay. help: start `weir node` again"
                    .into()
            });
            if let Some(client) = super::Client::get() {
                client.take_notices(); // there may be another one that has not found these pages
            }
            ProcessState::Stale
        } else if self.is_beside_mps() {
            ProcessState::BesideMps
        } else {
            ProcessState::Enforced
        };
        self.slot().state.store(state as u32, Ordering::Relaxed);
    }

    /// What the neighbours on this GPU have been up to, the tenant's other processes among them.
    pub fn neighbours(&self) -> Neighbours {
        let (own, board) = (Some(self.slot_index()), self.grant.board());
        let both = |siblings: u64, others: u64| siblings.wrapping_add(others);
        let siblings = self.activity.quiet(own);
        Neighbours {
            siblings,
            quiet: siblings.zip(self.board.quiet(board)).map(|(a, b)| both(a, b)),
            ended: self.board.ended(board).map(|others| both(self.activity.ended(own), others)),
            pass: self.passes() || self.board.any_passes(board),
        }
    }

    /// Whether another process's time slice may be under way, where they are in turns.
    pub fn may_wait_for_a_slice(&self) -> bool {
        !self.board.is_empty(self.grant.board()) || self.neighbours().quiet.is_none()
    }

    /// The tenant's memory on this GPU: (held, limit).
    pub fn memory(&self) -> (Bytes, Bytes) {
        (self.usage.held(), self.memory_limit())
    }

    /// Charges what is held already. Beyond the limit it marks the process as overcommitted.
    pub fn book(&self, kind: MemoryKind, bytes: Bytes) {
        ledger::book(self.slot(), kind, bytes);
        self.mark_if_over(|| format!("memory that could not be refused ({bytes}, {kind:?})"));
    }

    /// Marks the process as overcommitted if its tenant holds more than its limit, and says what has led there.
    fn mark_if_over(&self, why: impl FnOnce() -> String) {
        let (held, limit) = (self.usage.held(), self.grant.read().memory_limit);
        if held > limit {
            self.slot().overcommitted.store(1, Ordering::Relaxed);
            OVERCOMMITTED.say(|| {
                let why = why();
                format!(
                    "{why} put the tenant over its limit: {held} of {limit} are held, and nothing new is allocated. \
                     help: give it a larger --memory"
                )
            });
        }
    }

    /// Brings the page up to a change of what a pool is charged.
    pub fn change(&self, kind: MemoryKind, change: Change) {
        if change.more > 0 {
            self.book(kind, Bytes(change.more));
        } else if change.less > 0 {
            self.give_back(kind, Bytes(change.less));
        }
    }

    /// Gives back what a freed handle held.
    pub fn give_back(&self, kind: MemoryKind, bytes: Bytes) {
        ledger::give_back(self.slot(), kind, bytes);
    }
}

/// Said when the ledger had to take what the limit did not allow.
static OVERCOMMITTED: crate::say::Once = crate::say::Once::new();

/// Said when a launch goes out while nothing is enforced in time.
static SWITCHED_OFF: crate::say::Once = crate::say::Once::new();

/// Said when the manager's epoch stands still.
static SILENT: crate::say::Once = crate::say::Once::new();

/// A GPU whose pages nobody else has.
#[cfg(test)]
pub fn a_gpu() -> &'static Gpu {
    use weir_protocol::message::SWITCH;
    use weir_protocol::pages::Grant;

    let (_, grant) = Mapped::<GrantPage>::create("test").unwrap();
    let (_, bucket) = Mapped::<BucketPage>::create("test").unwrap();
    let (_, usage) = Mapped::<UsagePage>::create("test").unwrap();
    let (_, activity) = Mapped::<ActivityPage>::create("test").unwrap();
    grant.init(&Grant::default());
    bucket.init();
    usage.init();
    activity.init(1);
    let granted =
        GpuGrant { uuid: [0; 16], memory_total: Bytes(0), mps: false, in_stream: false, switch: SWITCH };
    Box::leak(Box::new(Gpu::new(0, &granted, 0, TenantPages { grant, bucket, usage, activity })))
}
