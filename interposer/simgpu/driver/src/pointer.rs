//! What a pointer is: the attributes that clients ask for.

use std::ffi::*;
use std::ptr;

use weir_abi::types::*;

use crate::api::Driver;
use crate::edge::{Answer, list, put};
use crate::memory::{self, Allocation, Kind};

/// Stores one attribute of the memory that an address lies in.
fn put_attribute(place: *mut c_void, which: CUpointer_attribute, address: u64) -> Answer {
    let allocation = memory::find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    put_known(place, which, address, &allocation)
}

fn put_known(place: *mut c_void, which: CUpointer_attribute, address: u64, of: &Allocation) -> Answer {
    let host = matches!(of.kind, Kind::Host(_) | Kind::Registered(_));
    let managed = matches!(of.kind, Kind::Managed);
    let memory_type = if host { CU_MEMORYTYPE_HOST } else { CU_MEMORYTYPE_DEVICE };
    match which {
        CU_POINTER_ATTRIBUTE_CONTEXT => put(place.cast(), of.context.handle.raw()),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => put(place.cast(), memory_type),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => put(place.cast(), address),
        CU_POINTER_ATTRIBUTE_HOST_POINTER if host || managed => put(place.cast(), address),
        CU_POINTER_ATTRIBUTE_HOST_POINTER => Err(CUDA_ERROR_INVALID_VALUE),
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => put(place.cast(), 0 as c_uint),
        CU_POINTER_ATTRIBUTE_BUFFER_ID | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => put(place.cast(), of.id),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => put(place.cast(), c_uint::from(managed)),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(place.cast(), of.context.device),
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => put(place.cast(), 0 as c_uint),
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => {
            put(place.cast(), of.address)
        }
        CU_POINTER_ATTRIBUTE_RANGE_SIZE | CU_POINTER_ATTRIBUTE_MAPPING_SIZE => put(place.cast(), of.bytes),
        CU_POINTER_ATTRIBUTE_MAPPED => put(place.cast(), 1 as c_uint),
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => put(place.cast(), handle_types(of)),
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => put(place.cast(), 0 as c_uint),
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => put(place.cast(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => put(place.cast(), pool_of(of)),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn handle_types(of: &Allocation) -> CUmemAllocationHandleType {
    if matches!(of.kind, Kind::Mapped) {
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    } else {
        CU_MEM_HANDLE_TYPE_NONE
    }
}

fn pool_of(of: &Allocation) -> CUmemoryPool {
    if let Kind::Pool(pool) = of.kind { pool.handle.raw() } else { ptr::null_mut() }
}

/// How many bytes an attribute has: what a list of them stores for memory that the driver does not know.
fn attribute_bytes(which: CUpointer_attribute) -> usize {
    match which {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        | CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | CU_POINTER_ATTRIBUTE_IS_MANAGED
        | CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | CU_POINTER_ATTRIBUTE_MAPPED
        | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
        | CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => 4,
        _ => 8,
    }
}

/// The value for memory that the driver does not know: zero, but the device is number -2.
fn put_unknown(place: *mut c_void, which: CUpointer_attribute) -> Answer {
    match (which, attribute_bytes(which)) {
        (CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, _) => put(place.cast(), -2 as c_int),
        (_, 4) => put(place.cast(), 0 as c_uint),
        _ => put(place.cast(), 0 as c_ulonglong),
    }
}

impl Driver {
    pub fn cuPointerGetAttribute(
        out: *mut c_void,
        which: CUpointer_attribute,
        address: CUdeviceptr,
    ) -> Answer {
        put_attribute(out, which, address)
    }

    pub fn cuPointerGetAttributes(
        count: c_uint,
        which: *mut CUpointer_attribute,
        out: *mut *mut c_void,
        address: CUdeviceptr,
    ) -> Answer {
        let (which, places) =
            (list(which.cast_const(), count as usize)?, list(out.cast_const(), count as usize)?);
        which.iter().zip(places).try_for_each(|(which, place)| {
            put_attribute(*place, *which, address).or_else(|_| put_unknown(*place, *which))
        })
    }

    pub fn cuPointerSetAttribute(
        value: *const c_void,
        which: CUpointer_attribute,
        address: CUdeviceptr,
    ) -> Answer {
        memory::find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let known = which == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && !value.is_null();
        if known { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
}
