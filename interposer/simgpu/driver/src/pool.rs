//! Memory pools: stream-ordered allocation out of memory that the pool keeps.
//!
//! A pool reserves device memory in chunks and hands out pieces. What it reserves is what it costs; freed
//! pieces stay with it until a wait finds more idle than its release threshold allows.

use std::collections::BTreeMap;
use std::ffi::*;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use weir_abi::types::*;

use crate::api::Driver;
use crate::context::{self, Context};
use crate::edge::{Answer, get, list, put};
use crate::memory::{self, Allocation, GRANULE, Kind};
use crate::registry::{Handle, Registry};
use crate::stream::{self, Stream};
use crate::work::Work;
use crate::{backing, capture, device, graph_memory, locked, session};

/// A pool grows in multiples of this, bytes: what drivers were seen to reserve at a time.
const CHUNK: usize = 32 << 20;

static POOLS: Registry<Pool> = Registry::new(10, CUDA_ERROR_INVALID_HANDLE);
static DEFAULTS: [OnceLock<&'static Pool>; device::MOST] = [const { OnceLock::new() }; device::MOST];
static CURRENT: [Mutex<Option<&'static Pool>>; device::MOST] = [const { Mutex::new(None) }; device::MOST];
/// Whether a pool may hold more than its threshold: what a wait looks at.
static IDLE: AtomicBool = AtomicBool::new(false);

/// A memory pool.
pub struct Pool {
    /// Its handle.
    pub handle: Handle,
    device: CUdevice,
    handle_types: CUmemAllocationHandleType,
    most: usize,
    state: Mutex<State>,
}

/// What a pool has. All figures are bytes.
#[derive(Default)]
struct State {
    chunks: Vec<(u64, usize)>,
    /// Idle pieces: address to length, neighbours joined.
    idle: BTreeMap<u64, usize>,
    reserved: usize,
    reserved_high: usize,
    used: usize,
    used_high: usize,
    threshold: u64,
    /// The three rules of reuse, which a pool without time order has no use for but remembers.
    reuse: [c_int; 3],
}

impl State {
    /// Takes a piece from the smallest idle one that has room.
    fn take(&mut self, bytes: usize) -> Option<u64> {
        let fitting = self.idle.iter().filter(|piece| *piece.1 >= bytes);
        let (address, length) =
            fitting.min_by_key(|piece| *piece.1).map(|(address, length)| (*address, *length))?;
        self.idle.remove(&address);
        if length > bytes {
            self.idle.insert(address + bytes as u64, length - bytes);
        }
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
        Some(address)
    }

    /// Puts a piece among the idle ones, joined with its neighbours in the same chunk.
    fn give_back(&mut self, mut address: u64, mut bytes: usize) {
        self.used -= bytes;
        let starts_chunk = |at: u64| self.chunks.iter().any(|chunk| chunk.0 == at);
        let next = address + bytes as u64;
        if !starts_chunk(next)
            && let Some(length) = self.idle.remove(&next)
        {
            bytes += length;
        }
        let before = self.idle.range(..address).next_back().map(|(start, length)| (*start, *length));
        if let Some((start, length)) = before
            && start + length as u64 == address
            && !starts_chunk(address)
        {
            self.idle.remove(&start);
            (address, bytes) = (start, bytes + length);
        }
        self.idle.insert(address, bytes);
    }

    fn grow(&mut self, device: CUdevice, bytes: usize) -> Answer {
        let bytes = bytes.checked_next_multiple_of(CHUNK).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        session::current()?.reserve(device, bytes)?;
        let address = backing::take(bytes)?;
        self.chunks.push((address, bytes));
        self.idle.insert(address, bytes);
        self.reserved += bytes;
        self.reserved_high = self.reserved_high.max(self.reserved);
        Ok(())
    }

    /// Gives whole idle chunks back to the device while more than `keep` is reserved.
    fn trim(&mut self, device: CUdevice, keep: u64) -> Answer {
        let mut released = 0;
        let (idle, reserved) = (&mut self.idle, self.reserved);
        self.chunks.retain(|(address, bytes)| {
            let whole = idle.get(address) == Some(bytes);
            let spare = ((reserved - released) as u64).saturating_sub(*bytes as u64) >= keep;
            if whole && spare {
                idle.remove(address);
                backing::give_back(*address, *bytes);
                released += bytes;
            }
            !(whole && spare)
        });
        self.reserved -= released;
        if released == 0 { Ok(()) } else { session::current()?.release(device, released) }
    }
}

impl Pool {
    fn create(
        device: CUdevice,
        handle_types: CUmemAllocationHandleType,
        most: usize,
    ) -> Answer<&'static Pool> {
        device::check(device)?;
        let state = Mutex::new(State { reuse: [1; 3], ..State::default() });
        Ok(POOLS.insert_with(|handle| Pool { handle, device, handle_types, most, state })?.1)
    }

    fn allocate(&'static self, context: &'static Context, bytes: usize) -> Answer<CUdeviceptr> {
        if bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let rounded = bytes.checked_next_multiple_of(GRANULE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut state = locked(&self.state);
        if self.most > 0 && state.used.saturating_add(rounded) > self.most {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let address = match state.take(rounded) {
            Some(address) => address,
            None => {
                state.grow(self.device, rounded)?;
                state.take(rounded).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?
            }
        };
        memory::enter(address, bytes, rounded, context, Kind::Pool(self));
        Ok(address)
    }

    /// Takes a freed piece back.
    pub fn give_back(&self, piece: &Allocation) -> Answer {
        let mut state = locked(&self.state);
        state.give_back(piece.address, piece.charged);
        if state.reserved as u64 > state.threshold {
            IDLE.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// After a wait: every pool gives back what it holds idle above its threshold.
pub fn trim_idle() -> Answer {
    if !IDLE.swap(false, Ordering::AcqRel) {
        return Ok(());
    }
    POOLS.living().try_for_each(|pool| {
        let mut state = locked(&pool.state);
        let keep = state.threshold;
        state.trim(pool.device, keep)
    })
}

fn default_of(device: CUdevice) -> Answer<&'static Pool> {
    let place = &DEFAULTS[device::check(device)?];
    if let Some(pool) = place.get() {
        return Ok(pool);
    }
    let pool = Pool::create(device, CU_MEM_HANDLE_TYPE_NONE, 0)?;
    Ok(place.get_or_init(|| pool))
}

fn current_of(device: CUdevice) -> Answer<&'static Pool> {
    let current = *locked(&CURRENT[device::check(device)?]);
    current.map_or_else(|| default_of(device), Ok)
}

/// Stream-ordered allocation; in a capture it becomes an allocation node.
fn allocate(out: *mut CUdeviceptr, bytes: usize, pool: Option<&'static Pool>, stream: CUstream) -> Answer {
    let stream: &'static Stream = stream::of(stream)?;
    if capture::any() && capture::mark(stream)?.is_some() {
        let address = graph_memory::plan(stream.context, bytes)?;
        capture::take(stream, &Work::Alloc { address })?;
        return put(out, address);
    }
    let pool = pool.map_or_else(|| current_of(stream.context.device), Ok)?;
    put(out, pool.allocate(stream.context, bytes)?)
}

impl Driver {
    pub fn cuMemAllocAsync(out: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Answer {
        allocate(out, bytes, None, stream)
    }

    pub fn cuMemAllocFromPoolAsync(
        out: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) -> Answer {
        allocate(out, bytes, Some(POOLS.get(pool)?), stream)
    }

    pub fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) -> Answer {
        let stream = stream::of(stream)?;
        if capture::any() && capture::take(stream, &Work::Free { address })? {
            return Ok(());
        }
        let freeable =
            |kind: &Kind| matches!(kind, Kind::Pool(_) | Kind::Device | Kind::Managed | Kind::Graph);
        memory::release(&memory::remove(address, freeable)?)
    }

    pub fn cuMemPoolCreate(out: *mut CUmemoryPool, properties: *const CUmemPoolProps) -> Answer {
        let CUmemPoolProps { alloc_type, handle_types, location, max_size, .. } = get(properties)?;
        if alloc_type != CU_MEM_ALLOCATION_TYPE_PINNED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if location.kind != CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        put(out, Pool::create(location.id, handle_types, max_size)?.handle.raw())
    }

    pub fn cuMemPoolDestroy(pool: CUmemoryPool) -> Answer {
        if DEFAULTS.iter().filter_map(OnceLock::get).any(|default| default.handle.raw() == pool) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let pool = POOLS.remove(pool)?;
        for current in &CURRENT {
            locked(current).take_if(|current| ptr::eq(*current, pool));
        }
        locked(&pool.state).trim(pool.device, 0)
    }

    pub fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> Answer {
        let pool = POOLS.get(pool)?;
        locked(&pool.state).trim(pool.device, keep as u64)
    }

    pub fn cuMemPoolGetAttribute(pool: CUmemoryPool, which: CUmemPool_attribute, out: *mut c_void) -> Answer {
        let pool = POOLS.get(pool)?;
        let state = locked(&pool.state);
        match which {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                put(out.cast(), state.reuse[which as usize - 1])
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => put(out.cast(), state.threshold),
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => put(out.cast(), state.reserved as u64),
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => put(out.cast(), state.reserved_high as u64),
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT => put(out.cast(), state.used as u64),
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => put(out.cast(), state.used_high as u64),
            CU_MEMPOOL_ATTR_ALLOCATION_TYPE => put(out.cast(), CU_MEM_ALLOCATION_TYPE_PINNED),
            CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES => put(out.cast(), pool.handle_types),
            CU_MEMPOOL_ATTR_LOCATION_ID => put(out.cast(), pool.device),
            CU_MEMPOOL_ATTR_LOCATION_TYPE => put(out.cast(), CU_MEM_LOCATION_TYPE_DEVICE),
            CU_MEMPOOL_ATTR_MAX_POOL_SIZE => put(out.cast(), pool.most as u64),
            CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED => put(out.cast(), 0 as c_int),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    pub fn cuMemPoolSetAttribute(
        pool: CUmemoryPool,
        which: CUmemPool_attribute,
        value: *mut c_void,
    ) -> Answer {
        let mut state = locked(&POOLS.get(pool)?.state);
        match which {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                state.reuse[which as usize - 1] = get(value.cast::<c_int>().cast_const())?;
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => state.threshold = get(value.cast::<u64>().cast_const())?,
            // The high marks can only be brought down to what is now.
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if get(value.cast::<u64>())? == 0 => {
                state.reserved_high = state.reserved
            }
            CU_MEMPOOL_ATTR_USED_MEM_HIGH if get(value.cast::<u64>())? == 0 => state.used_high = state.used,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }

    pub fn cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize) -> Answer {
        POOLS.get(pool)?;
        list(access, count).map(drop)
    }

    pub fn cuMemPoolGetAccess(
        out: *mut CUmemAccess_flags,
        pool: CUmemoryPool,
        location: *mut CUmemLocation,
    ) -> Answer {
        let own = POOLS.get(pool)?.device == get(location.cast_const())?.id;
        put(out, if own { CU_MEM_ACCESS_FLAGS_PROT_READWRITE } else { CU_MEM_ACCESS_FLAGS_PROT_NONE })
    }

    pub fn cuDeviceGetDefaultMemPool(out: *mut CUmemoryPool, device: CUdevice) -> Answer {
        put(out, default_of(device)?.handle.raw())
    }

    pub fn cuDeviceGetMemPool(out: *mut CUmemoryPool, device: CUdevice) -> Answer {
        put(out, current_of(device)?.handle.raw())
    }

    pub fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) -> Answer {
        let pool = POOLS.get(pool)?;
        *locked(&CURRENT[device::check(device)?]) = Some(pool);
        Ok(())
    }

    pub fn cuMemGetDefaultMemPool(
        out: *mut CUmemoryPool,
        location: *mut CUmemLocation,
        _kind: CUmemAllocationType,
    ) -> Answer {
        put(out, default_of(get(location.cast_const())?.id)?.handle.raw())
    }

    pub fn cuMemGetMemPool(
        out: *mut CUmemoryPool,
        location: *mut CUmemLocation,
        _kind: CUmemAllocationType,
    ) -> Answer {
        context::current()?;
        put(out, current_of(get(location.cast_const())?.id)?.handle.raw())
    }
}
