//! The rows of virtual memory, of multicast objects, and of memory that crosses processes.

use std::ffi::{c_uint, c_ulonglong, c_void};

use weir_abi::types::*;

use crate::hooks::{external, multicast, shares, tiles, vmm, vmm_shares};

driver_hooks! {
    // Virtual memory: held until the last handle is released and the last mapping is gone.

    /// Charges the bytes on the device that the properties name; host memory is free.
    fn cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, prop: *const CUmemAllocationProp,
        flags: c_ulonglong) = |call| vmm::create(memory_call!(cuMemCreate), handle, bytes, prop, call);
    /// One reference less.
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) = |call| vmm::release(memory_call!(cuMemRelease), handle, call);
    /// One reference more.
    fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void)
        = |call| vmm::retain(memory_call!(cuMemRetainAllocationHandle), handle, call);
    /// One reference more; shows how large a multicast object of another process is.
    fn cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle,
        flags: c_ulonglong) = |call| vmm::map(memory_call!(cuMemMap), address, bytes, offset, handle, call);
    /// One reference less for each mapping in the range.
    fn cuMemUnmap(address: CUdeviceptr, bytes: usize) = |call| vmm::unmap(memory_call!(cuMemUnmap), address, bytes, call);

    /// One reference more on what is mapped to a part of a sparse array, one less on what lay there.
    fn cuMemMapArrayAsync(infos: *mut CUarrayMapInfo, count: c_uint, stream: CUstream) = |call| tiles::map(infos, count, call);
    /// As above; the null stream is the thread's own.
    fn cuMemMapArrayAsync_ptsz(infos: *mut CUarrayMapInfo, count: c_uint, stream: CUstream)
        = |call| tiles::map(infos, count, call);

    // Multicast objects: counted on each device that joins; what is bound to them lives on.

    /// Makes the object known.
    fn cuMulticastCreate(object: *mut CUmemGenericAllocationHandle, prop: *const CUmulticastObjectProp)
        = |call| multicast::create(object, prop, call);
    /// Charges the object's size on the device, to this process; of another process's object when it shows.
    fn cuMulticastAddDevice(object: CUmemGenericAllocationHandle, device: CUdevice)
        = |call| multicast::add_device(object, device, call);
    /// One reference more on the memory; shows how large another process's object is.
    fn cuMulticastBindMem(object: CUmemGenericAllocationHandle, at: usize, memory: CUmemGenericAllocationHandle,
        offset: usize, bytes: usize, flags: c_ulonglong) = |call| multicast::bind(object, at, memory, bytes, call);
    /// As above, CUDA 13.1.
    fn cuMulticastBindMem_v2(object: CUmemGenericAllocationHandle, device: CUdevice, at: usize,
        memory: CUmemGenericAllocationHandle, offset: usize, bytes: usize, flags: c_ulonglong)
        = |call| multicast::bind(object, at, memory, bytes, call);
    /// One reference more on what is mapped there.
    fn cuMulticastBindAddr(object: CUmemGenericAllocationHandle, at: usize, address: CUdeviceptr, bytes: usize,
        flags: c_ulonglong) = |call| multicast::bind_address(object, at, address, bytes, call);
    /// As above, CUDA 13.1.
    fn cuMulticastBindAddr_v2(object: CUmemGenericAllocationHandle, device: CUdevice, at: usize, address: CUdeviceptr,
        bytes: usize, flags: c_ulonglong) = |call| multicast::bind_address(object, at, address, bytes, call);
    /// One reference less on what was bound in the range.
    fn cuMulticastUnbind(object: CUmemGenericAllocationHandle, device: CUdevice, at: usize, bytes: usize)
        = |call| multicast::unbind(object, device, at, bytes, call);

    // Memory that crosses processes: charged to its owner, shown as shared where it is opened.

    /// Notes what others may open.
    fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr)
        = |call| shares::give_out(handle, address, call);
    /// Shows the memory as shared.
    fn cuIpcOpenMemHandle(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint)
        = |call| shares::open(address, &handle, call);
    /// Shows the memory as shared.
    fn cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint)
        = |call| shares::open(address, &handle, call);
    /// The memory is shared no more; what its owner's death has left to us is given back.
    fn cuIpcCloseMemHandle(address: CUdeviceptr) = |call| shares::close(shares::Place::At(address), call);
    /// Notes what others may open.
    fn cuMemExportToShareableHandle(out: *mut c_void, handle: CUmemGenericAllocationHandle,
        kind: CUmemAllocationHandleType, flags: c_ulonglong) = |call| vmm_shares::export(out, handle, kind, call);
    /// Memory is shown as shared when it is mapped: before that, nobody knows how much it is. A multicast object is known here too.
    fn cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void,
        kind: CUmemAllocationHandleType) = |call| vmm_shares::import(handle, os_handle, kind, call);

    /// Notes what others may open.
    fn cuMemPoolExportPointer(data: *mut c_void, address: CUdeviceptr)
        = |call| shares::give_out_piece(data, address, call);
    /// Shows the piece as shared, until it is freed here.
    fn cuMemPoolImportPointer(out: *mut CUdeviceptr, pool: CUmemoryPool, data: *mut c_void)
        = |call| shares::open_piece(out, data, call);
    /// Shows memory of another interface as shared: whoever made it is charged for it.
    fn cuImportExternalMemory(memory: *mut CUexternalMemory, desc: *const c_void)
        = |call| external::import(memory, desc, call);
    /// It is shared no more.
    fn cuDestroyExternalMemory(memory: CUexternalMemory) = |call| external::destroy(memory, call);
}
