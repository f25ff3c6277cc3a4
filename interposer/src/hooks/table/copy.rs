//! The rows of copies and memsets. See `hooks::copy` for what their hooks do.

use std::ffi::{c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use weir_abi::types::*;
use weir_protocol::pages::CopyWay;

use crate::driver::Stream;
use crate::hooks::copy;
use crate::hooks::copy_pieces::What;

driver_hooks! {
    /// Counts the bytes of all copies; memory on another node is as another device's.
    fn cuFabricCpyBatchAsync(count: usize, list: *mut c_void, flags: c_ulonglong, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Fabric { list, count }, call);
    /// As above; the null stream is the thread's own.
    fn cuFabricCpyBatchAsync_ptsz(count: usize, list: *mut c_void, flags: c_ulonglong, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Fabric { list, count }, call);
    /// Counts the bytes that are unpacked, where the program says how many, else those that are read; charged as a copy is.
    fn cuMemBatchDecompressAsync(list: *mut c_void, count: usize, flags: c_uint, error: *mut usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Packed { list, count }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemBatchDecompressAsync_ptsz(list: *mut c_void, count: usize, flags: c_uint, error: *mut usize,
        stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Packed { list, count }, call);
    /// Counts the bytes that are asked to move.
    fn cuMemPrefetchAsync(address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Prefetch { device: Some(device), bytes }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemPrefetchAsync_ptsz(address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Prefetch { device: Some(device), bytes }, call);
    /// Counts the bytes that are asked to move.
    fn cuMemPrefetchAsync_v2(address: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: c_uint,
        stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::prefetch(location, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemPrefetchAsync_v2_ptsz(address: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: c_uint,
        stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::prefetch(location, bytes), call);
    /// Counts the bytes that are asked to move.
    fn cuMemPrefetchBatchAsync(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
        prefetch_locs: *mut CUmemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize,
        flags: c_ulonglong, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Prefetches { bytes: sizes, count, places: prefetch_locs, first_of: prefetch_loc_idxs, kinds: num_prefetch_locs }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemPrefetchBatchAsync_ptsz(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
        prefetch_locs: *mut CUmemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize,
        flags: c_ulonglong, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Prefetches { bytes: sizes, count, places: prefetch_locs, first_of: prefetch_loc_idxs, kinds: num_prefetch_locs }, call);
    /// Counts the bytes, whichever way they go.
    fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Between { to, from, bytes }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Between { to, from, bytes }, call);
    /// Counts the bytes of the rectangle.
    fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Flat(copy), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpy2D_v2_ptds(copy: *const CUDA_MEMCPY2D)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Flat(copy), call);
    /// Counts the bytes of the rectangle.
    fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Flat(copy), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpy2DAsync_v2_ptsz(copy: *const CUDA_MEMCPY2D, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Flat(copy), call);
    /// Counts the bytes of the rectangle.
    fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Flat(copy), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpy2DUnaligned_v2_ptds(copy: *const CUDA_MEMCPY2D)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Flat(copy), call);
    /// Counts the bytes of the box.
    fn cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Solid(copy), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpy3D_v2_ptds(copy: *const CUDA_MEMCPY3D)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Solid(copy), call);
    /// Counts the bytes of the box.
    fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Solid(copy), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpy3DAsync_v2_ptsz(copy: *const CUDA_MEMCPY3D, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Solid(copy), call);
    /// Counts the bytes of all boxes.
    fn cuMemcpy3DBatchAsync(num_params: usize, op_list: *mut c_void, fail_idx: *mut usize, flags: c_ulonglong,
        stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Solids { list: op_list, count: num_params }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpy3DBatchAsync_ptsz(num_params: usize, op_list: *mut c_void, fail_idx: *mut usize, flags: c_ulonglong,
        stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Solids { list: op_list, count: num_params }, call);
    /// Counts the bytes of all boxes.
    fn cuMemcpy3DBatchAsync_v2(num_params: usize, op_list: *mut c_void, flags: c_ulonglong, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Solids { list: op_list, count: num_params }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpy3DBatchAsync_v2_ptsz(num_params: usize, op_list: *mut c_void, flags: c_ulonglong, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Solids { list: op_list, count: num_params }, call);
    /// Counts the bytes of the box.
    fn cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::SolidPeer(copy), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpy3DPeer_ptds(copy: *const CUDA_MEMCPY3D_PEER)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::SolidPeer(copy), call);
    /// Counts the bytes of the box.
    fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::SolidPeer(copy), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpy3DPeerAsync_ptsz(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::SolidPeer(copy), call);
    /// Counts the bytes of the box.
    fn cuMemcpy3DWithAttributesAsync(op: *mut c_void, flags: c_ulonglong, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Solids { list: op, count: 1 }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpy3DWithAttributesAsync_ptsz(op: *mut c_void, flags: c_ulonglong, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Solids { list: op, count: 1 }, call);
    /// Counts the bytes, whichever way they go.
    fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Between { to, from, bytes }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Between { to, from, bytes }, call);
    /// Counts the bytes; charges the SM time that copying them takes.
    fn cuMemcpyAtoA_v2(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Plain(CopyWay::DeviceToDevice, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyAtoA_v2_ptds(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Plain(CopyWay::DeviceToDevice, bytes), call);
    /// Counts the bytes; charges the SM time that copying them takes.
    fn cuMemcpyAtoD_v2(to: CUdeviceptr, from: CUarray, from_offset: usize, bytes: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Plain(CopyWay::DeviceToDevice, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyAtoD_v2_ptds(to: CUdeviceptr, from: CUarray, from_offset: usize, bytes: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Plain(CopyWay::DeviceToDevice, bytes), call);
    /// Counts the bytes; binds the bandwidth between host and device.
    fn cuMemcpyAtoH_v2(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Plain(CopyWay::DeviceToHost, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyAtoH_v2_ptds(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Plain(CopyWay::DeviceToHost, bytes), call);
    /// Counts the bytes; binds the bandwidth between host and device.
    fn cuMemcpyAtoHAsync_v2(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Plain(CopyWay::DeviceToHost, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyAtoHAsync_v2_ptsz(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Plain(CopyWay::DeviceToHost, bytes), call);
    /// Counts the bytes of all copies.
    fn cuMemcpyBatchAsync(to: *mut CUdeviceptr, from: *mut CUdeviceptr, bytes: *mut usize, count: usize,
        attrs: *mut c_void, attr_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Batch { to, from, bytes, count }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyBatchAsync_ptsz(to: *mut CUdeviceptr, from: *mut CUdeviceptr, bytes: *mut usize, count: usize,
        attrs: *mut c_void, attr_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Batch { to, from, bytes, count }, call);
    /// Counts the bytes of all copies.
    fn cuMemcpyBatchAsync_v2(to: *mut CUdeviceptr, from: *mut CUdeviceptr, bytes: *mut usize, count: usize,
        attrs: *mut c_void, attr_idxs: *mut usize, num_attrs: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Batch { to, from, bytes, count }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyBatchAsync_v2_ptsz(to: *mut CUdeviceptr, from: *mut CUdeviceptr, bytes: *mut usize, count: usize,
        attrs: *mut c_void, attr_idxs: *mut usize, num_attrs: usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Batch { to, from, bytes, count }, call);
    /// Counts the bytes; charges the SM time that copying them takes.
    fn cuMemcpyDtoA_v2(to: CUarray, to_offset: usize, from: CUdeviceptr, bytes: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Plain(CopyWay::DeviceToDevice, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyDtoA_v2_ptds(to: CUarray, to_offset: usize, from: CUdeviceptr, bytes: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Plain(CopyWay::DeviceToDevice, bytes), call);
    /// Counts the bytes; charges the SM time that copying them takes.
    fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::OnDevice { to, from, bytes }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::OnDevice { to, from, bytes }, call);
    /// Counts the bytes; charges the SM time that copying them takes.
    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::OnDevice { to, from, bytes }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyDtoDAsync_v2_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::OnDevice { to, from, bytes }, call);
    /// Counts the bytes; binds the bandwidth between host and device.
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Plain(CopyWay::DeviceToHost, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: CUdeviceptr, bytes: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Plain(CopyWay::DeviceToHost, bytes), call);
    /// Counts the bytes; binds the bandwidth between host and device.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Plain(CopyWay::DeviceToHost, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Plain(CopyWay::DeviceToHost, bytes), call);
    /// Counts the bytes; binds the bandwidth between host and device.
    fn cuMemcpyHtoA_v2(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Plain(CopyWay::HostToDevice, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyHtoA_v2_ptds(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Plain(CopyWay::HostToDevice, bytes), call);
    /// Counts the bytes; binds the bandwidth between host and device.
    fn cuMemcpyHtoAAsync_v2(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Plain(CopyWay::HostToDevice, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyHtoAAsync_v2_ptsz(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Plain(CopyWay::HostToDevice, bytes), call);
    /// Counts the bytes; binds the bandwidth between host and device.
    fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Plain(CopyWay::HostToDevice, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyHtoD_v2_ptds(to: CUdeviceptr, from: *const c_void, bytes: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Plain(CopyWay::HostToDevice, bytes), call);
    /// Counts the bytes; binds the bandwidth between host and device.
    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Plain(CopyWay::HostToDevice, bytes), call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyHtoDAsync_v2_ptsz(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Plain(CopyWay::HostToDevice, bytes), call);
    /// Counts the bytes; between devices, or within one.
    fn cuMemcpyPeer(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::Between { to, from, bytes }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyPeer_ptds(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext,
        bytes: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::Between { to, from, bytes }, call);
    /// Counts the bytes; between devices, or within one.
    fn cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext,
        bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Between { to, from, bytes }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyPeerAsync_ptsz(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext,
        bytes: usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Between { to, from, bytes }, call);
    /// Counts the bytes, whichever way they go.
    fn cuMemcpyWithAttributesAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, attr: *mut c_void,
        stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::Between { to, from, bytes }, call);
    /// As above; the null stream is the thread's own.
    fn cuMemcpyWithAttributesAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, attr: *mut c_void,
        stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::Between { to, from, bytes }, call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD16_v2(to: CUdeviceptr, value: c_ushort, count: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::fill(2, count, 1), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD16_v2_ptds(to: CUdeviceptr, value: c_ushort, count: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::fill(2, count, 1), call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD16Async(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::fill(2, count, 1), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD16Async_ptsz(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::fill(2, count, 1), call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD2D16_v2(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::fill(2, width, height), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD2D16_v2_ptds(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::fill(2, width, height), call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD2D16Async(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize,
        stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::fill(2, width, height), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD2D16Async_ptsz(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize,
        stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::fill(2, width, height), call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD2D32_v2(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::fill(4, width, height), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD2D32_v2_ptds(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::fill(4, width, height), call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD2D32Async(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::fill(4, width, height), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD2D32Async_ptsz(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize,
        stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::fill(4, width, height), call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD2D8_v2(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::fill(1, width, height), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD2D8_v2_ptds(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::fill(1, width, height), call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD2D8Async(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::fill(1, width, height), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD2D8Async_ptsz(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize,
        stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::fill(1, width, height), call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::fill(4, count, 1), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD32_v2_ptds(to: CUdeviceptr, value: c_uint, count: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::fill(4, count, 1), call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::fill(4, count, 1), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD32Async_ptsz(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::fill(4, count, 1), call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize)
        = |call| copy::now(Stream::legacy(std::ptr::null_mut()), What::fill(1, count, 1), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD8_v2_ptds(to: CUdeviceptr, value: c_uchar, count: usize)
        = |call| copy::now(Stream::per_thread(std::ptr::null_mut()), What::fill(1, count, 1), call);
    /// Counts the bytes; charges the SM time that setting them takes.
    fn cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream)
        = |call| copy::later(Stream::legacy(stream), What::fill(1, count, 1), call);
    /// As above; the null stream is the thread's own.
    fn cuMemsetD8Async_ptsz(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream)
        = |call| copy::later(Stream::per_thread(stream), What::fill(1, count, 1), call);
}
