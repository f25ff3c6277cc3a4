//! One GPU of the tenant, as this process sees it.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering, fence};

use rustix::thread::futex;
use weir_abi::types::*;
use weir_core::admission::Progress;
use weir_core::flight::Flight;
use weir_core::gate::{Gate, Pages, in_flight};
use weir_core::hold::Holder;
use weir_core::ledger;
use weir_core::lock::Lock;
use weir_core::pool::{Change, Pool};
use weir_core::stall::Stalls;
use weir_protocol::mapping::Mapped;
use weir_protocol::message::GpuGrant;
use weir_protocol::pages::{
    ActivityPage, BucketPage, GrantPage, LANES, Lane, MemoryKind, NO_BOARD, ProcessSlot, ProcessState,
    UsagePage, Wants,
};
use weir_protocol::units::{Bytes, Nanos};

use super::betters::Betters;
use super::board::Board;
use super::overlap::Overlap;
use super::run::Run;
use super::words;
use crate::clock;
use crate::driver;
use crate::hooks::{ContextMemory, Utilization};

/// Events of a context for marks: with one in a millisecond a program may run ahead so many milliseconds.
const MARK_EVENTS: usize = 128;

/// Of a queue this short events alone would tell too late that it is empty.
const SHORT: Nanos = Nanos::from_millis(1);

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
    /// What the manager grants.
    pub grant: Mapped<GrantPage>,
    /// The tenant's bucket.
    pub bucket: Mapped<BucketPage>,
    /// Everybody's usage.
    pub usage: Mapped<UsagePage>,
    /// Which of the tenant's processes have work here now.
    pub activity: Mapped<ActivityPage>,
    /// The same of this process, in its own memory.
    busy: AtomicBool,
    /// Whether launches that follow others go on without a look at the board: for the launch path.
    flows: AtomicBool,
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
    /// When its bursts begin.
    pub holder: Holder,
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
    slot: usize,
    lanes: AtomicU32,
    acked: AtomicU32,
    contexts: Lock<Vec<&'static Context>>,
    greens: Lock<Vec<(u64, u64)>>, // green contexts: the handle, and that of the context that stands for it
}

/// A context of this process: events belong to a context, so marks do too.
pub struct Context {
    /// The driver's handle.
    pub handle: u64,
    /// That of the primary context that a green one is a part of; else its own. Memory is that one's.
    pub root: u64,
    /// What is in flight in its streams.
    pub flight: Flight,
    /// When the next launch of a signature that was never measured may be bounded.
    pub bound_at_ns: AtomicU64,
    closed: AtomicBool,
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
        Self {
            index,
            uuid: granted.uuid,
            by_mps: granted.mps,
            grant,
            bucket,
            usage,
            activity,
            busy: AtomicBool::new(false),
            flows: AtomicBool::new(false),
            overlap: Overlap::default(),
            progress: Lock::default(),
            board: Board::default(),
            betters: Betters::default(),
            runs: Default::default(),
            gate: Gate::default(),
            holder: Holder::default(),
            primary: AtomicU64::new(0),
            stalls: Lock::default(),
            utilization: Utilization::start(),
            context_memory: ContextMemory::default(),
            graph_memory: Pool::new(0, index),
            device: AtomicI32::new(-1),
            slot,
            lanes: AtomicU32::new(0),
            acked: AtomicU32::new(0),
            contexts: Lock::default(),
            greens: Lock::default(),
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

    /// Whether this process has said that it has work here.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether this process has work here and may add to it without asking whose turn it is, or who else has work.
    #[inline]
    pub fn flows(&self) -> bool {
        self.flows.load(Ordering::Relaxed) && self.betters.are_calm()
    }

    /// The next launch shall ask whose turn it is.
    pub fn stop_flowing(&self) {
        self.flows.store(false, Ordering::Relaxed);
    }

    /// This process is about to have work here. The manager is told, if it wants to be.
    pub fn begin(&self) {
        if self.activity.begin(self.slot, clock::now) {
            self.tell(self.grant.bell.wants());
        }
        self.busy.store(true, Ordering::Relaxed);
        self.flows.store(true, Ordering::Relaxed);
    }

    /// What was about to be work here is counted now. Another thread may have looked in between, and found nothing in flight:
    /// then it begins anew, and the next launch asks whose turn it is.
    pub fn has_begun(&self) {
        fence(Ordering::SeqCst); // either this finds what the other thread has ended, or that one finds the count
        if !self.activity.is_busy(self.slot) {
            self.begin();
            self.stop_flowing();
        }
    }

    /// A launch or a copy waits here. The manager is told, if it takes the tenant for asleep.
    pub fn waits(&self) {
        self.tell(Wants { ring: false, ..self.grant.bell.wants() });
    }

    fn tell(&self, wants: Wants) {
        if wants == Wants::NOTHING {
            return;
        }
        let Some(client) = super::Client::get() else { return };
        if wants.stir
            && let Some(first) = client.gpus.first()
        {
            first.usage.stir();
        }
        if wants.ring {
            client.ring();
        }
    }

    /// Says that this process has no work here, if that is so.
    pub fn end_if_idle(&self) {
        if self.is_busy() && self.is_idle() {
            self.flows.store(false, Ordering::Relaxed);
            self.busy.store(false, Ordering::Relaxed);
            self.activity.end(self.slot);
            self.burst_ended();
            // A launch on another thread may have found it as it was. Then it is counted by now, or finds this (`has_begun`);
            // but for one on the short way, which was interrupted between its look and its count: the next one shows.
            fence(Ordering::SeqCst);
            if !self.is_idle() {
                return self.begin();
            }
            if self.activity.quiet(None).is_some() {
                self.activity.turn.forfeit();
                self.end_turn(); // drained: whoever waits may go
                self.wake_others();
            }
        }
    }

    /// Those who give way to the tenant sleep until it has no work any more.
    fn wake_others(&self) {
        if self.board.has_others(self.grant.board()) {
            let _ = futex::wake(self.activity.futex_word(), futex::Flags::empty(), i32::MAX.unsigned_abs());
        }
    }

    fn is_idle(&self) -> bool {
        self.book_runs();
        let slot = self.slot();
        // Relaxed: each word is looked at again at the next launch.
        let booked = |(run, lane): (&Run, &Lane)| run.booked() >= lane.charged_ns.load(Ordering::Relaxed);
        self.runs.iter().zip(&slot.lanes).all(booked) && in_flight(slot) == Nanos(0)
    }

    /// Whether more was copied than the budget of bandwidth allows.
    pub fn owes_copies(&self) -> bool {
        self.bucket.copies() <= 0 && self.grant.read().copy_limit.is_limited()
    }

    /// Threads that have launched here so far.
    pub fn threads(&self) -> u32 {
        self.lanes.load(Ordering::Relaxed)
    }

    /// Launches of this process so far, by all its threads.
    pub fn launched(&self) -> u64 {
        let calls = self.slot().lanes.iter().flat_map(|lane| &lane.calls);
        // Relaxed: sums that only grow.
        calls.map(|calls| calls.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Tells the manager, once for each grant, that a launch went out under it, and shows whether it is silent: who has
    /// all the tokens that it wants never comes to the gate's waiting.
    pub fn acknowledge(&self, generation: u32) {
        let known = self.acked.swap(generation, Ordering::Relaxed) == generation;
        if !known {
            let word = &self.slot().acked_generation;
            word.store(generation, Ordering::Release);
            let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), 1);
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
        let state = if self.slot().faults.load(Ordering::Relaxed) > 0 {
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

    /// What the neighbours on this GPU have been up to (see [`weir_core::flight::Driver::neighbours`]).
    pub fn neighbours(&self) -> Option<u64> {
        let siblings = self.activity.quiet(Some(self.slot))?;
        Some(siblings.wrapping_add(self.board.quiet(self.grant.board())?))
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
        self.ask_mode();
        // Leaked on purpose: threads keep it at hand. A program makes a handful of contexts in its life.
        let green = self.greens.lock().iter().any(|(_, context)| *context == handle);
        let root = if green { self.primary.load(Ordering::Relaxed) } else { handle };
        let context: &'static Context = Box::leak(Box::new(Context::with_events(handle, root)));
        if self.grant.read().in_flight_cap <= SHORT {
            words::give(&context.flight);
        }
        contexts.push(context);
        context
    }

    /// The context with this handle, if it is known.
    pub fn find_context(&self, handle: u64) -> Option<&'static Context> {
        self.contexts.lock().iter().find(|context| context.handle == handle).copied()
    }

    /// A green context is there; `context` stands for it.
    pub fn add_green(&self, green: u64, context: u64) {
        self.greens.lock().push((green, context));
    }

    /// A green context is gone; says whether it was one of this GPU.
    pub fn forget_green(&self, green: u64) -> bool {
        let mut greens = self.greens.lock();
        let Some(at) = greens.iter().position(|(known, _)| *known == green) else { return false };
        let (_, context) = greens.swap_remove(at);
        drop(greens);
        self.forget_context(context);
        true
    }

    /// The green contexts that are parts of the context with this handle.
    pub fn parts_of(&self, handle: u64) -> Vec<&'static Context> {
        let part = |context: &&'static Context| context.root == handle && context.handle != handle;
        self.contexts.lock().iter().copied().filter(part).collect()
    }

    /// Every context that the process has here.
    pub fn for_each_context(&self, visit: impl FnMut(&&'static Context)) {
        self.contexts.lock().iter().for_each(visit);
    }

    /// Forgets a context that is gone: nothing of it is in flight any more, whichever thread had launched it.
    pub fn forget_context(&self, handle: u64) {
        self.book_runs();
        let mut contexts = self.contexts.lock();
        if let Some(at) = contexts.iter().position(|context| context.handle == handle) {
            let context = contexts.swap_remove(at);
            context.close(self.slot());
        }
    }
}

/// Said when the ledger had to take what the limit did not allow.
static OVERCOMMITTED: crate::say::Once = crate::say::Once::new();

/// Said when a launch goes out while nothing is enforced in time.
static SWITCHED_OFF: crate::say::Once = crate::say::Once::new();

/// Said when the manager's epoch stands still.
static SILENT: crate::say::Once = crate::say::Once::new();

impl Context {
    /// Lets go of events that died with the driver's context. Other threads may still hold the context at hand; they
    /// find nothing in it that they could use.
    fn close(&self, slot: &ProcessSlot) {
        self.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // either we find what another thread books, or it finds this
        self.flight.reset(slot);
    }

    /// Counts `ns` of predicted work on `stream`. If the context is gone by now, nobody will see its end.
    pub fn submitted(&self, stream: u64, ns: u64, slot: &ProcessSlot) {
        self.flight.submitted(stream, ns, slot);
        fence(Ordering::SeqCst); // as above
        if self.closed.load(Ordering::Relaxed) {
            self.flight.reset(slot);
        }
    }

    fn with_events(handle: u64, root: u64) -> Self {
        let context = Self {
            handle,
            root,
            flight: Flight::default(),
            bound_at_ns: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        };
        let _relaxed = driver::Relaxed::enter();
        let create = || {
            let mut event: CUevent = std::ptr::null_mut();
            (driver::event_create(&raw mut event, 0) == CUDA_SUCCESS).then_some(event)
        };
        let marks = (0..MARK_EVENTS).map_while(|_| create());
        context.flight.add_events(marks.map(|event| event.addr() as u64));
        context
    }
}

/// A GPU whose pages nobody else has.
#[cfg(test)]
pub fn a_gpu() -> &'static Gpu {
    use weir_protocol::pages::Grant;

    let (_, grant) = Mapped::<GrantPage>::create("test").unwrap();
    let (_, bucket) = Mapped::<BucketPage>::create("test").unwrap();
    let (_, usage) = Mapped::<UsagePage>::create("test").unwrap();
    let (_, activity) = Mapped::<ActivityPage>::create("test").unwrap();
    grant.init(&Grant::default());
    bucket.init();
    usage.init();
    activity.init(1);
    let granted = GpuGrant { uuid: [0; 16], memory_total: Bytes(0), mps: false };
    Box::leak(Box::new(Gpu::new(0, &granted, 0, TenantPages { grant, bucket, usage, activity })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_shows_on_the_board_although_another_thread_found_nothing_in_flight_before_it_was_counted() {
        let gpu = a_gpu();
        gpu.begin();
        gpu.end_if_idle(); // the other thread
        assert!(gpu.activity.quiet(None).is_some());
        gpu.slot().lanes[0].charged_ns.store(100, Ordering::Relaxed);
        gpu.has_begun();
        assert!(gpu.activity.quiet(None).is_none() && gpu.is_busy());
        assert!(!gpu.flows(), "the turn may be another tenant's by now");
    }

    #[test]
    fn work_that_is_counted_when_another_thread_looks_does_not_end() {
        let gpu = a_gpu();
        gpu.begin();
        gpu.slot().lanes[0].charged_ns.store(100, Ordering::Relaxed);
        gpu.has_begun();
        gpu.end_if_idle();
        assert!(gpu.activity.quiet(None).is_none() && gpu.flows());
    }
}
