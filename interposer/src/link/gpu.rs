//! One GPU of the tenant, as this process sees it.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use weir_abi::types::*;
use weir_core::flight::Flight;
use weir_core::gate::{Gate, Pages};
use weir_core::ledger;
use weir_core::lock::Lock;
use weir_core::pool::{Change, Pool};
use weir_protocol::mapping::Mapped;
use weir_protocol::pages::{
    BucketPage, GrantPage, LANES, Lane, MemoryKind, ProcessSlot, ProcessState, UsagePage,
};
use weir_protocol::units::Bytes;

use crate::driver;
use crate::hooks::{ContextMemory, Utilization};

/// Events of a context for marks; each stands for an eighth of the in-flight cap or more.
const MARK_EVENTS: usize = 64;

/// Event pairs of a context for samples under way.
const SAMPLE_PAIRS: usize = 8;

/// One GPU: its pages, its gate, and the contexts that the process has on it.
pub struct Gpu {
    /// Position among the tenant's GPUs.
    pub index: usize,
    /// The driver's identity of the device.
    pub uuid: [u8; 16],
    /// What the manager grants.
    pub grant: Mapped<GrantPage>,
    /// The tenant's bucket.
    pub bucket: Mapped<BucketPage>,
    /// Everybody's usage.
    pub usage: Mapped<UsagePage>,
    /// The gate.
    pub gate: Gate,
    /// The primary context, while it has users; 0 otherwise.
    pub primary: AtomicU64,
    /// What NVML's view of its utilisation goes by.
    pub utilization: Utilization,
    /// What its contexts cost.
    pub context_memory: ContextMemory,
    /// What the driver keeps for the device's graphs.
    pub graph_memory: Pool,
    /// The driver's number of the device; -1 before it was first seen.
    pub device: AtomicI32,
    slot: usize,
    lanes: AtomicU32,
    acked: AtomicU32,
    contexts: Lock<Vec<&'static Context>>,
}

/// A context of this process: events belong to a context, so marks and samples do too.
pub struct Context {
    /// The driver's handle.
    pub handle: u64,
    /// What is in flight in its streams.
    pub flight: Flight,
    /// Event pairs that time samples.
    pub samples: Lock<SampleEvents>,
    /// When the next launch of a known signature may be timed.
    pub sample_at_ns: AtomicU64,
}

/// Pairs of timing events, spare and under way.
#[derive(Default)]
pub struct SampleEvents {
    /// Pairs ready for use.
    pub spare: Vec<(CUevent, CUevent)>,
    /// Pairs whose second event has not been reached, with the estimate that waits for them.
    pub under_way: Vec<(CUevent, CUevent, &'static weir_core::price::Estimate)>,
}

// SAFETY: event handles are the driver's and may be used from any thread.
unsafe impl Send for SampleEvents {}

impl Gpu {
    /// A GPU whose pages have been mapped; `slot` was checked to lie on the usage page.
    pub fn new(
        index: usize,
        uuid: [u8; 16],
        slot: usize,
        pages: (Mapped<GrantPage>, Mapped<BucketPage>, Mapped<UsagePage>),
    ) -> Self {
        let (grant, bucket, usage) = pages;
        let (gate, contexts) = (Gate::default(), Lock::default());
        let (lanes, acked) = (AtomicU32::new(0), AtomicU32::new(0));
        let (primary, device) = (AtomicU64::new(0), AtomicI32::new(-1));
        let (context_memory, graph_memory) = (ContextMemory::default(), Pool::new(0, index));
        Self {
            index,
            uuid,
            grant,
            bucket,
            usage,
            gate,
            primary,
            utilization: Utilization::start(),
            context_memory,
            graph_memory,
            device,
            slot,
            lanes,
            acked,
            contexts,
        }
    }

    /// This process's slot.
    pub fn slot(&self) -> &ProcessSlot {
        // In range since `new`; the first slot stands in so that nothing here can panic.
        self.usage.slots.get(self.slot).unwrap_or(&self.usage.slots[0])
    }

    /// This process's slot number.
    pub fn slot_index(&self) -> usize {
        self.slot
    }

    /// The pages as the gate wants them.
    pub fn pages(&self) -> Pages<'_> {
        Pages { grant: &self.grant, bucket: &self.bucket, usage: &self.usage, slot: self.slot() }
    }

    /// A counter lane for a new thread: its own, or the last one, shared.
    pub fn next_lane(&'static self) -> (&'static Lane, bool) {
        // Relaxed: a ticket, nothing else.
        let ticket = self.lanes.fetch_add(1, Ordering::Relaxed) as usize;
        let shared = ticket >= LANES - 1;
        let lanes = &self.slot().lanes;
        (lanes.get(ticket).unwrap_or(&lanes[LANES - 1]), shared)
    }

    /// Threads that have launched here so far.
    pub fn threads(&self) -> u32 {
        self.lanes.load(Ordering::Relaxed)
    }

    /// Tells the manager, once for each grant, that a launch went out under it.
    pub fn acknowledge(&self, generation: u32) {
        if self.acked.swap(generation, Ordering::Relaxed) == generation {
            return;
        }
        let word = &self.slot().acked_generation;
        word.store(generation, Ordering::Release);
        let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), 1);
        self.show_state();
    }

    /// Shows on the page, and once on stderr, how this process stands to its budget.
    pub fn show_state(&self) {
        let state = if self.slot().faults.load(Ordering::Relaxed) > 0 {
            ProcessState::Degraded
        } else if self.gate.is_stale() {
            SILENT.say(|| {
                "the node manager has been silent for 1 s: the requested share holds, lent time is given back, \
                 memory limits stay. help: start `weir node` again"
                    .into()
            });
            ProcessState::Stale
        } else {
            ProcessState::Enforced
        };
        self.slot().state.store(state as u32, Ordering::Relaxed);
    }

    /// The tenant's memory on this GPU: (held, limit).
    pub fn memory(&self) -> (Bytes, Bytes) {
        (self.usage.held(), self.grant.read().memory_limit)
    }

    /// Charges what is held already. Beyond the limit it marks the process as overcommitted.
    pub fn book(&self, kind: MemoryKind, bytes: Bytes) {
        ledger::book(self.slot(), kind, bytes);
        let (held, limit) = self.memory();
        if held > limit {
            self.slot().overcommitted.store(1, Ordering::Relaxed);
            OVERCOMMITTED.say(|| {
                format!(
                    "memory that could not be refused ({bytes}, {kind:?}) put the tenant over its limit: {held} of {limit} \
                     are held, and nothing new is allocated. help: give it a larger --memory"
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

    /// The context with this handle; made known on first sight. Its handle is current on the calling thread.
    pub fn context(&self, handle: u64) -> &'static Context {
        let mut contexts = self.contexts.lock();
        if let Some(known) = contexts.iter().find(|context| context.handle == handle) {
            return known;
        }
        // Leaked on purpose: threads keep it at hand. A program makes a handful of contexts in its life.
        let context: &'static Context = Box::leak(Box::new(Context::with_events(handle)));
        contexts.push(context);
        context
    }

    /// Every context that the process has here.
    pub fn for_each_context(&self, visit: impl FnMut(&&'static Context)) {
        self.contexts.lock().iter().for_each(visit);
    }

    /// Forgets a context that is gone: nothing of it is in flight any more.
    pub fn forget_context(&self, handle: u64) {
        let mut contexts = self.contexts.lock();
        if let Some(at) = contexts.iter().position(|context| context.handle == handle) {
            let context = contexts.swap_remove(at);
            context.close(self.slot());
        }
    }
}

/// Said when the ledger had to take what the limit did not allow.
static OVERCOMMITTED: crate::say::Once = crate::say::Once::new();

/// Said when the manager's epoch stands still.
static SILENT: crate::say::Once = crate::say::Once::new();

impl Context {
    /// Lets go of events that died with the driver's context. Other threads may still hold the context at hand; they
    /// find nothing in it that they could use.
    fn close(&self, slot: &ProcessSlot) {
        self.flight.reset(slot);
        *self.samples.lock() = SampleEvents::default();
    }

    fn with_events(handle: u64) -> Self {
        let context = Self {
            handle,
            flight: Flight::default(),
            samples: Lock::default(),
            sample_at_ns: AtomicU64::new(0),
        };
        let _relaxed = driver::Relaxed::enter();
        let create = |flags| {
            let mut event: CUevent = std::ptr::null_mut();
            (driver::event_create(&raw mut event, flags) == CUDA_SUCCESS).then_some(event)
        };
        let marks = (0..MARK_EVENTS).map_while(|_| create(CU_EVENT_DISABLE_TIMING));
        context.flight.add_events(marks.map(|event| event.addr() as u64));
        let mut samples = context.samples.lock();
        samples.spare = (0..SAMPLE_PAIRS).map_while(|_| Some((create(0)?, create(0)?))).collect();
        samples.under_way.reserve(SAMPLE_PAIRS);
        drop(samples);
        context
    }
}
