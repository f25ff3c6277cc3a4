//! Occupancy: how many blocks of a shape an SM holds, from the limits that `attributes.rs` states.

use std::ffi::*;

use weir_abi::types::*;

use crate::api::Driver;
use crate::attributes::{
    BLOCKS_PER_SM, REGISTERS_PER_SM, REGISTERS_PER_THREAD, SHARED_KEPT, SHARED_PER_BLOCK, SHARED_PER_SM,
    THREADS_PER_BLOCK, THREADS_PER_SM,
};
use crate::edge::{Answer, put, put_optional};
use crate::function::of;

/// How many blocks of this shape fit on one SM: the least of what threads, registers, shared memory and the
/// block slots allow.
pub fn blocks_per_sm(threads: u32, shared_bytes: usize) -> u32 {
    if threads == 0 || threads > THREADS_PER_BLOCK {
        return 0;
    }
    let warps = threads.next_multiple_of(32);
    let shared = u32::try_from(shared_bytes).unwrap_or(u32::MAX).saturating_add(SHARED_KEPT);
    let by_registers = REGISTERS_PER_SM / (warps * REGISTERS_PER_THREAD);
    BLOCKS_PER_SM.min(THREADS_PER_SM / warps).min(by_registers).min(SHARED_PER_SM / shared)
}

fn occupancy(out: *mut c_int, function: CUfunction, threads: c_int, shared_bytes: usize) -> Answer {
    of(function)?;
    let threads =
        u32::try_from(threads).ok().filter(|threads| *threads > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    put(out, blocks_per_sm(threads, shared_bytes).cast_signed())
}

/// The largest block with the most threads on an SM, and how many such blocks fill the device.
fn best_block(
    grid: *mut c_int,
    block: *mut c_int,
    function: CUfunction,
    shared: CUoccupancyB2DSize,
    fixed: usize,
    limit: c_int,
) -> Answer {
    of(function)?;
    let most = u32::try_from(limit)
        .ok()
        .filter(|limit| *limit > 0)
        .unwrap_or(THREADS_PER_BLOCK)
        .min(THREADS_PER_BLOCK);
    let shared_of = |threads: u32| match shared {
        // SAFETY: the caller's own function, which the driver API asks it to pass for this purpose.
        Some(shared) => unsafe { shared(threads.cast_signed()) },
        None => fixed,
    };
    let filled = |threads: &u32| blocks_per_sm(*threads, shared_of(*threads)) * threads;
    let best = (32..=most).step_by(32).max_by_key(filled).unwrap_or(most);
    let sms = crate::device::multiprocessors(crate::context::current()?.device)?;
    put(block, best.cast_signed())?;
    put(grid, (blocks_per_sm(best, shared_of(best)) * sms).cast_signed())
}

impl Driver {
    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        out: *mut c_int,
        function: CUfunction,
        threads: c_int,
        shared_bytes: usize,
    ) -> Answer {
        occupancy(out, function, threads, shared_bytes)
    }

    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: *mut c_int,
        function: CUfunction,
        threads: c_int,
        shared_bytes: usize,
        _flags: c_uint,
    ) -> Answer {
        occupancy(out, function, threads, shared_bytes)
    }

    pub fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        shared: CUoccupancyB2DSize,
        fixed: usize,
        limit: c_int,
    ) -> Answer {
        best_block(grid, block, function, shared, fixed, limit)
    }

    pub fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        shared: CUoccupancyB2DSize,
        fixed: usize,
        limit: c_int,
        _flags: c_uint,
    ) -> Answer {
        best_block(grid, block, function, shared, fixed, limit)
    }

    pub fn cuOccupancyAvailableDynamicSMemPerBlock(
        out: *mut usize,
        function: CUfunction,
        blocks: c_int,
        threads: c_int,
    ) -> Answer {
        of(function)?;
        let blocks =
            u32::try_from(blocks).ok().filter(|blocks| *blocks > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let threads = u32::try_from(threads).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if blocks > blocks_per_sm(threads, 0) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, (SHARED_PER_SM / blocks).saturating_sub(SHARED_KEPT).min(SHARED_PER_BLOCK) as usize)
    }

    pub fn cuOccupancyMaxActiveClusters(
        out: *mut c_int,
        function: CUfunction,
        _config: *const CUlaunchConfig,
    ) -> Answer {
        of(function)?;
        put_optional(out, 0);
        Err(CUDA_ERROR_INVALID_CLUSTER_SIZE) // compute capability 8.0 has no clusters
    }
}
