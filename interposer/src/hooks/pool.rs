//! Memory pools: charged by what they reserve. How, is told in `weir_core::pool`; here stand the calls.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::ledger::{Entry, HandleHasher, Owner};
use weir_core::lock::Lock;
use weir_core::pool::{Change, Pool};
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::memory;
use crate::driver::{self, Stream};
use crate::guard::guard;
use crate::link::{Client, Gpu};
use crate::thread;

/// The pools of this process.
#[derive(Default)]
pub struct Pools {
    by_handle: Lock<HashMap<u64, &'static Pool, BuildHasherDefault<HandleHasher>>>,
    latest: AtomicPtr<Pool>, // programs have one pool, or one at a time
    may_shrink: AtomicBool,
}

/// Which pool a call takes from.
pub enum From {
    /// The one that the device serves allocations from.
    Current,
    /// The one that the call names.
    Named(CUmemoryPool),
}

/// What an allocation is charged to.
struct Taken {
    pool: &'static Pool,
    growth: u64,
}

/// Allocates in stream order. In a stream that captures, the call makes a node of a graph: the graph is charged.
pub fn allocate(
    counted: usize,
    bytes: usize,
    from: From,
    stream: Stream,
    out: *mut CUdeviceptr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let bytes = bytes as u64;
    guard(
        |client| {
            // The pool is that of the stream's device, whatever context is current.
            let current = thread::with(|thread| thread.find_for(client, stream));
            let Some(current) = current else { return Ok(None) };
            memory::count(current.gpu, counted);
            if memory::captures(stream) {
                return Ok(None);
            }
            let Some(pool) = client.pools.find(client, current.gpu, &from) else { return Ok(None) };
            let growth = pool.begin(bytes);
            if let Err(refusal) = reserve_growth(client, pool, growth) {
                pool.abandon(bytes, growth);
                return Err(refusal);
            }
            Ok(Some(Taken { pool, growth }))
        },
        call,
        |client, taken, result| {
            let Some(Taken { pool, growth }) = taken else { return };
            if result != CUDA_SUCCESS || out.is_null() {
                give_back_growth(client, pool, growth);
                return pool.abandon(bytes, growth);
            }
            // SAFETY: the driver has just written it.
            let address = unsafe { *out };
            if growth > 0 || !pool.had(address, bytes) {
                apply(client, pool, pool.settle(bytes, growth, || reserved(pool)));
            }
            let (bytes, kind, gpu) = (Bytes(bytes), MemoryKind::Pool, pool.gpu); // perhaps not the stream's
            client.remember(address, Entry { bytes, kind, gpu, owner: Owner::Pool(pool) });
        },
    )
}

/// A piece was freed: the pool keeps what it has reserved for it until a wait.
pub fn piece_freed(client: &Client, gpu: &Gpu, pool: &'static Pool, address: u64, bytes: Bytes) {
    let change = pool.freed(address, bytes.0);
    gpu.give_back(MemoryKind::Pool, Bytes(change.less));
    // Relaxed: a hint to the next wait of any thread; whoever misses it leaves it for the one after.
    client.pools.may_shrink.store(true, Ordering::Relaxed);
}

fn reserve_growth(client: &'static Client, pool: &Pool, growth: u64) -> Result<(), CUresult> {
    let Some(gpu) = client.gpus.get(pool.gpu).filter(|_| growth > 0) else { return Ok(()) };
    memory::reserve(client, gpu, MemoryKind::Pool, Bytes(growth))?.commit();
    Ok(())
}

fn give_back_growth(client: &Client, pool: &Pool, growth: u64) {
    apply(client, pool, Change { more: 0, less: growth });
}

fn apply(client: &Client, pool: &Pool, change: Change) {
    if let Some(gpu) = client.gpus.get(pool.gpu) {
        gpu.change(MemoryKind::Pool, change);
    }
}

/// What the driver says that a pool has reserved, in bytes.
fn reserved(pool: &Pool) -> Option<u64> {
    let mut bytes = u64::MAX; // a driver that answers without writing has said nothing
    let (handle, which) = (driver::handle(pool.handle), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    let result = driver::pool_attribute(handle, which, (&raw mut bytes).cast());
    (result == CUDA_SUCCESS && bytes != u64::MAX).then_some(bytes)
}

/// After a wait, which is when pools give idle memory back. One load, unless something was freed since the last.
pub fn after_wait(client: &Client) {
    if client.pools.may_shrink.load(Ordering::Relaxed)
        && client.pools.may_shrink.swap(false, Ordering::Relaxed)
    {
        client.pools.look(client);
    }
}

/// A pool was made.
pub fn create(
    out: *mut CUmemoryPool,
    properties: *const CUmemPoolProps,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| {
            // SAFETY: the caller passes properties or null; the driver reads the same fields.
            let location = unsafe { properties.as_ref() }.map(|properties| properties.location);
            let on_device = location.filter(|location| location.kind == CU_MEM_LOCATION_TYPE_DEVICE);
            Ok(on_device.and_then(|location| client.gpu_of_device(location.id)))
        },
        call,
        |client, gpu, result| {
            if let (CUDA_SUCCESS, Some(gpu), false) = (result, gpu, out.is_null()) {
                // SAFETY: the driver has just written it.
                client.pools.enter(unsafe { *out }.addr() as u64, gpu.index);
            }
        },
    )
}

/// A pool goes; what was taken from it stays until it is freed.
pub fn destroy(pool: CUmemoryPool, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| Ok(client.pools.forget(pool.addr() as u64)),
        call,
        |client, known, result| match known {
            Some(pool) if result == CUDA_SUCCESS => apply(client, pool, pool.destroy()),
            Some(pool) => drop(client.pools.by_handle.lock().insert(pool.handle, pool)),
            None => {}
        },
    )
}

/// A pool gives idle memory back.
pub fn trim(call: impl FnOnce() -> CUresult) -> CUresult {
    guard(|_| Ok(()), call, |client, (), _| client.pools.look(client))
}

impl Pools {
    fn find(&self, client: &Client, gpu: &Gpu, from: &From) -> Option<&'static Pool> {
        let handle = match from {
            From::Named(pool) => *pool,
            From::Current => current_of(gpu)?,
        };
        let handle = handle.addr() as u64;
        // SAFETY: null, or a pool that `enter` has leaked.
        let latest = unsafe { self.latest.load(Ordering::Acquire).as_ref() };
        if let Some(pool) = latest.filter(|pool| pool.handle == handle) {
            return Some(pool);
        }
        let known = self.by_handle.lock().get(&handle).copied();
        let pool = known.or_else(|| Some(self.enter(handle, default_on(client, handle)?.index)))?;
        self.latest.store(std::ptr::from_ref(pool).cast_mut(), Ordering::Release);
        Some(pool)
    }

    /// Leaked on purpose: pieces and threads refer to it. A program makes a handful of pools in its life.
    fn enter(&self, handle: u64, gpu: usize) -> &'static Pool {
        self.by_handle.lock().entry(handle).or_insert_with(|| Box::leak(Box::new(Pool::new(handle, gpu))))
    }

    /// Off the books before the driver is called: once it has destroyed the pool, another may get the same handle.
    fn forget(&self, handle: u64) -> Option<&'static Pool> {
        let pool = self.by_handle.lock().remove(&handle);
        self.latest.store(std::ptr::null_mut(), Ordering::Release);
        pool
    }

    /// Asks the driver what each pool has reserved now.
    pub fn look(&self, client: &Client) {
        let pools: Vec<_> = self.by_handle.lock().values().copied().collect();
        for pool in pools {
            apply(client, pool, pool.settle(0, 0, || reserved(pool)));
            if pool.is_idle() {
                self.may_shrink.store(true, Ordering::Relaxed); // not yet: its frees may lie in another stream
            }
        }
    }
}

fn current_of(gpu: &Gpu) -> Option<CUmemoryPool> {
    let mut pool = std::ptr::null_mut();
    let result = driver::current_pool(&raw mut pool, gpu.device.load(Ordering::Relaxed));
    (result == CUDA_SUCCESS && !pool.is_null()).then_some(pool)
}

/// The GPU whose own pool this is. A pool that is nobody's and that we did not see made came from another process, which
/// is charged for it.
fn default_on(client: &Client, handle: u64) -> Option<&Gpu> {
    client.gpus.iter().find(|gpu| {
        let mut pool: CUmemoryPool = std::ptr::null_mut();
        let result = driver::default_pool(&raw mut pool, gpu.device.load(Ordering::Relaxed));
        result == CUDA_SUCCESS && pool.addr() as u64 == handle
    })
}
