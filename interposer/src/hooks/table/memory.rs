//! The rows of memory that one process has, and of the view of it.

use std::ffi::c_uint;

use weir_abi::types::*;

use crate::driver::Stream;
use crate::hooks::{memory, oversubscribe, pool, tiles, view};

driver_hooks! {
    // Memory: reserve, call the driver, commit or roll back.

    /// Charges the bytes, then allocates; beyond the limit managed memory, where the operator allows that.
    fn cuMemAlloc_v2(out: *mut CUdeviceptr, bytes: usize)
        = |call| oversubscribe::allocate(memory_call!(cuMemAlloc_v2), bytes, out, call);
    /// Gives back what the pointer held.
    fn cuMemFree_v2(pointer: CUdeviceptr) = |call| memory::free(memory_call!(cuMemFree_v2), pointer, call);
    /// Charges the rows with the driver's own padding; with `--oversubscribe` as plain memory.
    fn cuMemAllocPitch_v2(out: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint)
        = |call| oversubscribe::allocate_rows(memory_call!(cuMemAllocPitch_v2), [width, height], element, out, pitch, call);
    /// Charges the bytes as managed memory.
    fn cuMemAllocManaged(out: *mut CUdeviceptr, bytes: usize, flags: c_uint)
        = |call| memory::allocate(memory_call!(cuMemAllocManaged), memory::Ask::managed(bytes), out, call);
    /// Charges what the device's pool grows by.
    fn cuMemAllocAsync(out: *mut CUdeviceptr, bytes: usize, stream: CUstream)
        = |call| pool::allocate(memory_call!(cuMemAllocAsync), bytes, pool::From::Current, Stream::legacy(stream), out, call);
    /// As above; the null stream is the thread's own.
    fn cuMemAllocAsync_ptsz(out: *mut CUdeviceptr, bytes: usize, stream: CUstream)
        = |call| pool::allocate(memory_call!(cuMemAllocAsync_ptsz), bytes, pool::From::Current, Stream::per_thread(stream), out, call);
    /// Charges what the pool grows by.
    fn cuMemAllocFromPoolAsync(out: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream)
        = |call| pool::allocate(memory_call!(cuMemAllocFromPoolAsync), bytes, pool::From::Named(pool), Stream::legacy(stream), out, call);
    /// As above; the null stream is the thread's own.
    fn cuMemAllocFromPoolAsync_ptsz(out: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream)
        = |call| pool::allocate(memory_call!(cuMemAllocFromPoolAsync_ptsz), bytes, pool::From::Named(pool), Stream::per_thread(stream), out, call);
    /// Gives back what the pointer held.
    fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream)
        = |call| memory::free_async(memory_call!(cuMemFreeAsync), pointer, Stream::legacy(stream), call);
    /// As above; the null stream is the thread's own.
    fn cuMemFreeAsync_ptsz(pointer: CUdeviceptr, stream: CUstream)
        = |call| memory::free_async(memory_call!(cuMemFreeAsync_ptsz), pointer, Stream::per_thread(stream), call);
    /// Makes a pool known.
    fn cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps) = |call| pool::create(pool, props, call);
    /// What the pool had reserved is given back with its last piece.
    fn cuMemPoolDestroy(pool: CUmemoryPool) = |call| pool::destroy(pool, call);
    /// What pools have reserved is read anew.
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) = |call| pool::trim(call);
    /// Charges the array's elements.
    fn cuArrayCreate_v2(out: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR)
        = |call| memory::allocate(memory_call!(cuArrayCreate_v2), memory::Ask::array(descriptor), out, call);
    /// Charges the array's elements; a sparse one has none, nor one whose memory is mapped later.
    fn cuArray3DCreate_v2(out: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR)
        = |call| memory::allocate(memory_call!(cuArray3DCreate_v2), memory::Ask::array_3d(descriptor, 1), out, call);
    /// Charges all levels; of a sparse array none, nor of one whose memory is mapped later.
    fn cuMipmappedArrayCreate(out: *mut CUmipmappedArray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint)
        = |call| memory::allocate(memory_call!(cuMipmappedArrayCreate), memory::Ask::array_3d(descriptor, levels), out, call);
    /// Gives back what the array held; one reference less on what was mapped to it.
    fn cuArrayDestroy(array: CUarray) = |call| tiles::destroy(memory_call!(cuArrayDestroy), array, call);
    /// Gives back what the array held; one reference less on what was mapped to it.
    fn cuMipmappedArrayDestroy(array: CUmipmappedArray)
        = |call| tiles::destroy(memory_call!(cuMipmappedArrayDestroy), array, call);

    // The view: budget and own use, never the neighbours'.

    /// Answers with the tenant's limit and what is left of it.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize)
        = |call| view::memory_info(memory_call!(cuMemGetInfo_v2), free, total, call);
    /// Answers with the tenant's limit.
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice)
        = |call| view::total_memory(memory_call!(cuDeviceTotalMem_v2), bytes, device, call);
}
