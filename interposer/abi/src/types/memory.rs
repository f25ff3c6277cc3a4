//! Structures of allocation: locations, properties, pools, handles for other processes.

use std::ffi::{c_int, c_uint, c_ulonglong, c_ushort, c_void};

use super::{
    CUdeviceptr, CUmemAccess_flags, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocationType,
};

/// A place where memory can live: a device, the host, a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CUmemLocation {
    pub kind: CUmemLocationType,
    pub id: c_int,
}

/// What one location may do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    pub flags: CUmemAccess_flags,
}

/// Properties of a physical allocation (`cuMemCreate`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUmemAllocationProp {
    pub kind: CUmemAllocationType,
    pub requested_handle_types: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32_handle_meta_data: *mut c_void,
    pub compression_type: u8,
    pub gpu_direct_rdma_capable: u8,
    pub usage: c_ushort,
    pub reserved: [u8; 4],
}

/// Properties of a memory pool.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUmemPoolProps {
    pub alloc_type: CUmemAllocationType,
    pub handle_types: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32_security_attributes: *mut c_void,
    pub max_size: usize,
    pub usage: c_ushort,
    pub reserved: [u8; 54],
}

/// A device allocation, for another process.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUipcMemHandle {
    pub reserved: [u8; 64],
}

/// An event, for another process.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUipcEventHandle {
    pub reserved: [u8; 64],
}

/// Properties of a multicast object.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUmulticastObjectProp {
    pub num_devices: c_uint,
    pub size: usize,
    pub handle_types: c_ulonglong,
    pub flags: c_ulonglong,
}

/// Properties of a memory allocation node; `dptr` is the answer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
    pub pool_props: CUmemPoolProps,
    pub access_descs: *const CUmemAccessDesc,
    pub access_desc_count: usize,
    pub bytesize: usize,
    pub dptr: CUdeviceptr,
}
