//! The driver calls for memory in stream order and its pools.

use std::ffi::*;
use std::ptr;
use std::sync::OnceLock;

use weir_abi::types::*;

use super::{CURRENT, DEFAULTS, POOLS, Pool, allocate, current_of, default_of};
use crate::api::Driver;
use crate::edge::{Answer, get, list, put};
use crate::memory::{self, Kind};
use crate::work::Work;
use crate::{capture, context, device, locked, stream};

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
        let freeable = |kind: &Kind| {
            matches!(kind, Kind::Pool(_) | Kind::Device | Kind::Managed | Kind::Graph | Kind::Piece)
        };
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
        put(out, Pool::create(location.id, handle_types, max_size, false)?.handle.raw())
    }

    pub fn cuMemPoolDestroy(pool: CUmemoryPool) -> Answer {
        if DEFAULTS.iter().filter_map(OnceLock::get).any(|default| default.handle.raw() == pool) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let pool = POOLS.remove(pool)?;
        for current in &CURRENT {
            locked(current).take_if(|current| ptr::eq(*current, pool));
        }
        let mut state = locked(&pool.state);
        state.destroyed = true;
        state.go_if_over(pool.device)
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
