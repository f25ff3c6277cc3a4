//! What an attached process knows: its tenant, its GPUs, its prices, its ledger.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU8, Ordering};

use weir_abi::types::*;
use weir_core::ledger::{Entry, Ledger, Owner};
use weir_core::lock::Lock;
use weir_core::price::Book;
use weir_protocol::message::{Class, FailMode, Welcome};
use weir_protocol::units::Bytes;

use super::attach::pages_of;
use super::connection::Connection;
use super::gpu::Gpu;
use super::helper;
use super::local::Former;
use crate::driver;
use crate::hooks::{
    self, GraphMemory, GraphPrices, Pools, Shares, Splits, StreamWaits, Tiles, VirtualMemory,
};

/// Streams of this process that capture now. At zero, launches skip the question.
pub static CAPTURES: AtomicI64 = AtomicI64::new(0);

/// Held while a capture begins, and while marks are put into streams of other threads.
pub static CAPTURE_TURN: Lock<()> = Lock::new(());

/// The client; null before it attached, and in a forked child until that has attached for itself.
static CLIENT: AtomicPtr<Client> = AtomicPtr::new(std::ptr::null_mut());

/// Device handles that are small numbers, as the driver's are, find their GPU without asking the driver.
const KNOWN_DEVICES: usize = 64;

/// An attached process. Lives as long as the process does.
pub struct Client {
    /// The tenant's name, for messages.
    pub tenant: String,
    /// The tenant's class.
    pub class: Class,
    /// Whether `weir run` itself is the manager: then nobody can change the budget.
    pub standalone: bool,
    /// Whether plain allocations beyond the limit become managed memory.
    pub oversubscribe: bool,
    /// What a context costs, as the operator has configured it; 0: it is to be measured.
    pub context_memory: Bytes,
    /// The metric by which the program is to tell its latencies.
    pub latency_metric: Option<String>,
    /// The GPUs granted.
    pub gpus: Vec<Gpu>,
    /// What launches cost.
    pub book: Book,
    /// What handles hold.
    pub ledger: Ledger,
    /// Reference counts of virtual memory.
    pub virtual_memory: VirtualMemory,
    /// What of it is mapped to sparse arrays.
    pub tiles: Tiles,
    /// Memory that crosses processes.
    pub shares: Shares,
    /// Memory pools.
    pub pools: Pools,
    /// Prices of graphs, node by node.
    pub graphs: GraphPrices,
    /// Graphs that go out in segments.
    pub splits: Splits,
    /// What graphs with memory nodes need.
    pub graph_memory: GraphMemory,
    /// Waits for words that streams have not come past.
    pub stream_waits: StreamWaits,
    devices: [AtomicU8; KNOWN_DEVICES], // 0: not asked yet, 1: not granted, else index + 2
    home: AtomicU8,
    helped: AtomicBool,        // its helper was started
    former: Lock<Vec<Former>>, // for each GPU, of a process that was on its own
    connection: Lock<Connection>,
    pages: Lock<Vec<OwnedFd>>,
}

/// The pages are the tenant's.
const TENANTS: u8 = 0;

/// The pages are the process's own: no manager has let it in.
const OWN: u8 = 1;

/// The pages are the tenant's, and were the process's own.
const MOVED: u8 = 2;

/// What came with the welcome and is only kept.
pub struct Papers {
    /// The connection to the manager.
    pub connection: Connection,
    /// The descriptors of the pages. A manager that takes over from one that died finds them here; to find what is mapped
    /// and has no descriptor takes privileges that not every manager has.
    pub pages: Vec<OwnedFd>,
}

impl Client {
    /// Of the parts that the welcome brought.
    pub fn new(welcome: Welcome, gpus: Vec<Gpu>, papers: Papers) -> Self {
        Self {
            tenant: welcome.tenant,
            class: welcome.class,
            standalone: welcome.mode == FailMode::Standalone,
            oversubscribe: welcome.oversubscribe,
            context_memory: welcome.context_memory,
            latency_metric: welcome.latency_metric,
            gpus,
            book: Book::new(welcome.prices),
            ledger: Ledger::default(),
            virtual_memory: VirtualMemory::default(),
            tiles: Tiles::default(),
            shares: Shares::default(),
            pools: Pools::default(),
            graphs: GraphPrices::default(),
            splits: Splits::default(),
            graph_memory: GraphMemory::default(),
            stream_waits: StreamWaits::default(),
            devices: [const { AtomicU8::new(0) }; KNOWN_DEVICES],
            home: AtomicU8::new(TENANTS),
            helped: AtomicBool::new(false),
            former: Lock::default(),
            connection: Lock::new(papers.connection),
            pages: Lock::new(papers.pages),
        }
    }

    /// The same, on pages that nobody else knows.
    pub fn on_its_own(self) -> Self {
        Self { home: AtomicU8::new(OWN), ..self }
    }

    /// The client of this process, if it is attached.
    #[inline]
    pub fn get() -> Option<&'static Self> {
        // Acquire: pairs with the release in `install`.
        let client = CLIENT.load(Ordering::Acquire);
        // SAFETY: null, or leaked by `install` and never freed.
        unsafe { client.as_ref() }
    }

    /// Makes this the client of the process.
    pub fn install(self) {
        let client = Box::into_raw(Box::new(self));
        CLIENT.store(client, Ordering::Release);
        // SAFETY: the handler below touches atomics and this thread's cells only, which is allowed after fork.
        unsafe { __register_atfork(None, None, Some(in_forked_child), std::ptr::null_mut()) };
    }

    /// The GPU behind a device handle; `None` if it was not granted.
    pub fn gpu_of_device(&self, device: CUdevice) -> Option<&Gpu> {
        let known = usize::try_from(device).ok().and_then(|at| self.devices.get(at));
        // Relaxed: whoever finds zero asks the driver and comes to the same answer.
        match known.map_or(0, |word| word.load(Ordering::Relaxed)) {
            0 => {}
            1 => return None,
            index => return self.gpus.get(usize::from(index) - 2),
        }
        let uuid = uuid_of(device)?;
        let gpu = self.gpus.iter().find(|gpu| gpu.uuid == uuid);
        let index = gpu.and_then(|gpu| u8::try_from(gpu.index + 2).ok()).unwrap_or(1);
        if let Some(word) = known {
            word.store(index, Ordering::Relaxed);
        }
        if let Some(gpu) = gpu {
            gpu.device.store(device, Ordering::Relaxed);
        }
        gpu
    }

    /// The GPU with this identity, as NVML spells it.
    pub fn gpu_of_uuid(&self, uuid: [u8; 16]) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == uuid)
    }

    /// Tells the manager, if the tenant is parked, that a call is about to be made: it waits in the driver until the tenant's
    /// memory is back. Every hook comes here before it calls the driver; the launch path only with a new grant, and a park
    /// is one.
    #[inline]
    pub fn knock(&self) {
        if let Some(gpu) = self.gpus.first()
            && gpu.grant.is_parked()
        {
            gpu.slot().knock();
        }
    }

    /// Takes in what the manager has said meanwhile.
    pub fn take_notices(&self) {
        let Some(mut connection) = self.connection.try_lock() else { return };
        loop {
            let notice = connection.notice();
            if let Some((welcome, pages)) = connection.take_welcome() {
                self.move_in(&mut connection, &welcome, pages);
            }
            let Some((notice, pages)) = notice else { return };
            if let Some(gpu) = self.gpus.get(notice.gpu as usize) {
                gpu.betters.replace(gpu.board.replace(&notice, &pages, gpu.overlaps()));
                helper::wake();
            }
        }
    }

    /// Of a process that keeps limits of its own: looks whether a manager lets it in. Says whether none has yet.
    pub fn look_for_manager(&self) -> bool {
        // Relaxed: which of two threads finds a manager makes no difference, and each looks again.
        match self.home.load(Ordering::Relaxed) {
            TENANTS => return false,
            OWN => self.take_notices(),
            _ => {
                let mut former = self.former.lock();
                self.gpus.iter().zip(former.iter_mut()).for_each(|(gpu, former)| former.charge(gpu.slot()));
            }
        }
        self.home.load(Ordering::Relaxed) == OWN
    }

    /// A manager has let the process in: from here on the tenant's limits hold, for all of its processes together.
    fn move_in(&self, connection: &mut Connection, welcome: &Welcome, fds: Vec<OwnedFd>) {
        let same = welcome.class == self.class && welcome.oversubscribe == self.oversubscribe;
        let granted = welcome.gpus.iter().map(|gpu| gpu.uuid);
        let fits = same && granted.eq(self.gpus.iter().map(|gpu| gpu.uuid)) && !connection.has_ended();
        let Some(pages) = pages_of(welcome, &fds).ok().filter(|_| fits) else { return connection.give_up() };
        let slot = welcome.slot as usize;
        let former = self.gpus.iter().zip(pages).map(|(gpu, pages)| gpu.move_to(slot, pages)).collect();
        *self.former.lock() = former;
        connection.settle(welcome.slot);
        self.pages.lock().extend(fds);
        self.home.store(MOVED, Ordering::Relaxed);
        self.gpus.iter().for_each(Gpu::show_state);
        LET_IN.say(|| {
            let (pid, tenant) = (std::process::id(), &self.tenant);
            format!("process {pid} has a node manager now: the limits of tenant `{tenant}` hold for all of its processes together")
        });
    }

    /// Starts the helper, unless it was.
    pub fn start_helper(&'static self) {
        if !self.helped.swap(true, Ordering::Relaxed) {
            helper::start(self);
        }
    }

    /// Tells the manager that this process begins work. If another thread is at the connection, the next tick will show it.
    pub fn ring(&self) {
        if let Some(connection) = self.connection.try_lock() {
            connection.ring();
        }
    }

    /// Remembers what a handle holds; what it held before, the driver must have let go.
    pub fn remember(&self, handle: u64, entry: Entry) {
        if let Some(before) = self.ledger.insert(handle, entry) {
            self.give_back(handle, before);
        }
    }

    /// Gives back what an entry of the ledger held.
    pub fn give_back(&self, handle: u64, entry: Entry) {
        let Some(gpu) = self.gpus.get(entry.gpu) else { return };
        self.shares.take_back(gpu, handle);
        match entry.owner {
            Owner::Pool(pool) => hooks::piece_freed(self, gpu, pool, handle, entry.bytes),
            Owner::Context(_) => gpu.give_back(entry.kind, entry.bytes),
        }
    }

    /// Counts a fault of our own and shows the process as degraded.
    pub fn count_fault(&self) {
        for gpu in &self.gpus {
            gpu.slot().faults.fetch_add(1, Ordering::Relaxed);
            gpu.show_state();
        }
        FAULT.say(|| {
            format!(
                "a fault in libweir.so: one call of tenant `{}` passed unenforced, the process is shown as degraded. \
                 help: please report it, with the program that was running",
                self.tenant
            )
        });
    }
}

/// Said when a process that kept limits of its own has found a manager.
static LET_IN: crate::say::Once = crate::say::Once::new();

/// Said at the first panic of ours that was caught.
static FAULT: crate::say::Once = crate::say::Once::new();

fn uuid_of(device: CUdevice) -> Option<[u8; 16]> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    let mut result = driver::device_uuid(&raw mut uuid, device);
    if result != CUDA_SUCCESS {
        result = driver::device_uuid_v1(&raw mut uuid, device);
    }
    (result == CUDA_SUCCESS).then_some(uuid.bytes)
}

unsafe extern "C" {
    /// What `pthread_atfork` calls, with the library whose handlers these are (none: they stay). Every glibc has it in
    /// libc.so.6, where `pthread_atfork` itself is not.
    fn __register_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
        library: *mut std::ffi::c_void,
    ) -> std::ffi::c_int;
}

/// CUDA does not work in a forked child, and the parent's slot is not the child's to write.
unsafe extern "C" fn in_forked_child() {
    CLIENT.store(std::ptr::null_mut(), Ordering::Release);
    crate::hooks::forget_captures();
    CAPTURE_TURN.open_in_forked_child();
    crate::thread::start_afresh();
}
