//! Every way to get device memory that is a program's own, and to give it back. (Memory of other processes comes by
//! handles; 32-bit addresses, from before CUDA 3.2, are no use to a 64-bit program.)

use std::ptr::null_mut;

use weir_abi::CUresult;
use weir_abi::types::*;

use crate::{Sweep, call};

/// What each way is asked for: a multiple of every granularity.
const BYTES: usize = 8 << 20;

/// What a pool is asked for: each such piece makes it grow.
const STEP: usize = 32 << 20;

/// `CU_MEM_ATTACH_GLOBAL` of the driver's documentation: managed memory for every stream.
const ATTACH_GLOBAL: std::ffi::c_uint = 1;

/// Asks in each way, gives all of it back.
pub fn all(sweep: &mut Sweep) {
    sweep.made.free_bytes[0] = free(sweep);
    let mut total = 0;
    call!(sweep, cuDeviceTotalMem_v2(&raw mut total, 0));
    plain(sweep);
    ordered(sweep);
    virtual_memory(sweep);
    arrays(sweep);
    call!(sweep, cuCtxSynchronize());
    sweep.made.free_bytes[1] = free(sweep);
}

/// Free memory as the driver tells it.
fn free(sweep: &mut Sweep) -> u64 {
    let (mut free, mut total) = (0, 0);
    call!(sweep, cuMemGetInfo_v2(&raw mut free, &raw mut total));
    free as u64
}

/// Notes by how much free memory falls in `take`, or that it was refused.
fn noting(sweep: &mut Sweep, name: &'static str, take: impl FnOnce(&mut Sweep) -> CUresult) {
    let before = free(sweep);
    if take(sweep) == CUDA_ERROR_OUT_OF_MEMORY {
        sweep.made.refused.insert(name);
    }
    let after = free(sweep);
    sweep.made.took_bytes.insert(name, before.saturating_sub(after));
}

/// `cuMemAlloc` and its kin.
fn plain(sweep: &mut Sweep) {
    let mut pointers = [0; 3];
    let [plain, pitched, managed] = &mut pointers;
    noting(sweep, "cuMemAlloc_v2", |sweep| call!(sweep, cuMemAlloc_v2(plain, BYTES)));
    let mut pitch = 0;
    noting(sweep, "cuMemAllocPitch_v2", |sweep| {
        call!(sweep, cuMemAllocPitch_v2(pitched, &raw mut pitch, BYTES / 1024, 1024, 4))
    });
    noting(sweep, "cuMemAllocManaged", |sweep| {
        call!(sweep, cuMemAllocManaged(managed, BYTES, ATTACH_GLOBAL))
    });
    for pointer in pointers {
        call!(sweep, cuMemFree_v2(pointer));
    }
}

/// In stream order, from the device's pool.
fn ordered(sweep: &mut Sweep) {
    let (mut pool, mut pointers, s) = (null_mut(), [0; 4], sweep.stream);
    let [one, two, three, four] = &mut pointers;
    call!(sweep, cuDeviceGetDefaultMemPool(&raw mut pool, 0));
    noting(sweep, "cuMemAllocAsync", |sweep| call!(sweep, cuMemAllocAsync(one, STEP, s)));
    noting(sweep, "cuMemAllocAsync_ptsz", |sweep| call!(sweep, cuMemAllocAsync_ptsz(two, STEP, s)));
    noting(sweep, "cuMemAllocFromPoolAsync", |sweep| {
        call!(sweep, cuMemAllocFromPoolAsync(three, STEP, pool, s))
    });
    noting(sweep, "cuMemAllocFromPoolAsync_ptsz", |sweep| {
        call!(sweep, cuMemAllocFromPoolAsync_ptsz(four, STEP, pool, s))
    });
    for pair in pointers.chunks_exact(2) {
        call!(sweep, cuMemFreeAsync(pair[0], s));
        call!(sweep, cuMemFreeAsync_ptsz(pair[1], s));
    }
    call!(sweep, cuStreamSynchronize(s));
}

/// Physical memory with a handle, mapped to a reserved range. The handle is released first: the mapping alone keeps
/// the memory.
fn virtual_memory(sweep: &mut Sweep) {
    let properties = CUmemAllocationProp {
        kind: CU_MEM_ALLOCATION_TYPE_PINNED,
        requested_handle_types: CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
        win32_handle_meta_data: null_mut(),
        compression_type: 0,
        gpu_direct_rdma_capable: 0,
        usage: 0,
        reserved: [0; 4],
    };
    let (mut range, mut handle, mut again) = (0, 0, 0);
    call!(sweep, cuMemAddressReserve(&raw mut range, BYTES, 0, 0, 0));
    noting(sweep, "cuMemCreate", |sweep| {
        call!(sweep, cuMemCreate(&raw mut handle, BYTES, &raw const properties, 0))
    });
    call!(sweep, cuMemMap(range, BYTES, 0, handle, 0));
    let address = std::ptr::with_exposed_provenance_mut(usize::try_from(range).unwrap_or(0));
    call!(sweep, cuMemRetainAllocationHandle(&raw mut again, address));
    call!(sweep, cuMemRelease(handle));
    noting(sweep, "cuMemRelease", |sweep| call!(sweep, cuMemRelease(again)));
    call!(sweep, cuMemUnmap(range, BYTES));
    call!(sweep, cuMemAddressFree(range, BYTES));
}

/// Arrays of bytes.
fn arrays(sweep: &mut Sweep) {
    let (width, height, format, num_channels) = (4096, 2048, CU_AD_FORMAT_UNSIGNED_INT8, 1);
    let flat = CUDA_ARRAY_DESCRIPTOR { width, height, format, num_channels };
    let solid =
        CUDA_ARRAY3D_DESCRIPTOR { width, height: height / 2, depth: 2, format, num_channels, flags: 0 };
    let (mut first, mut second, mut levels) = (null_mut(), null_mut(), null_mut());
    noting(sweep, "cuArrayCreate_v2", |sweep| {
        call!(sweep, cuArrayCreate_v2(&raw mut first, &raw const flat))
    });
    noting(sweep, "cuArray3DCreate_v2", |sweep| {
        call!(sweep, cuArray3DCreate_v2(&raw mut second, &raw const solid))
    });
    noting(sweep, "cuMipmappedArrayCreate", |sweep| {
        call!(sweep, cuMipmappedArrayCreate(&raw mut levels, &raw const solid, 2))
    });
    call!(sweep, cuArrayDestroy(first));
    call!(sweep, cuArrayDestroy(second));
    call!(sweep, cuMipmappedArrayDestroy(levels));
}
