//! Structures of sparse arrays, which have no memory of their own.

use std::ffi::{c_uint, c_ulonglong, c_ushort};

use super::{
    CUarray, CUarraySparseSubresourceType, CUmemGenericAllocationHandle, CUmemHandleType, CUmemOperationType,
    CUmipmappedArray, CUresourcetype,
};

/// Flag of an array: physical memory is mapped to it tile by tile.
pub const CUDA_ARRAY3D_SPARSE: c_uint = 0x40;
/// Flag of an array: physical memory is mapped to the whole of it, later.
pub const CUDA_ARRAY3D_DEFERRED_MAPPING: c_uint = 0x80;
/// A use of physical memory: tiles of sparse arrays.
pub const CU_MEM_CREATE_USAGE_TILE_POOL: c_ushort = 1;

/// One mapping of physical memory to a part of an array, or the end of one (`cuMemMapArrayAsync`).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUarrayMapInfo {
    pub resource_type: CUresourcetype,
    pub resource: CUarrayMapInfo_resource,
    pub subresource_type: CUarraySparseSubresourceType,
    pub subresource: CUarrayMapInfo_subresource,
    pub mem_operation_type: CUmemOperationType,
    pub mem_handle_type: CUmemHandleType,
    pub mem_handle: CUmemGenericAllocationHandle,
    pub offset: c_ulonglong,
    pub device_bit_mask: c_uint,
    pub flags: c_uint,
    pub reserved: [c_uint; 2],
}

/// The array of a [`CUarrayMapInfo`]; its `resource_type` says which member holds.
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUarrayMapInfo_resource {
    pub mipmap: CUmipmappedArray,
    pub array: CUarray,
}

/// The part of an array; `subresource_type` says which member holds.
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUarrayMapInfo_subresource {
    pub sparse_level: CUarrayMapInfo_level,
    pub miptail: CUarrayMapInfo_miptail,
}

/// Part of a level, in elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUarrayMapInfo_level {
    pub level: c_uint,
    pub layer: c_uint,
    pub offset_x: c_uint,
    pub offset_y: c_uint,
    pub offset_z: c_uint,
    pub extent_width: c_uint,
    pub extent_height: c_uint,
    pub extent_depth: c_uint,
}

/// Part of the levels that are smaller than a tile, in bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUarrayMapInfo_miptail {
    pub layer: c_uint,
    pub offset: c_ulonglong,
    pub size: c_ulonglong,
}

/// How a sparse array is cut into tiles. The extent is in elements, the mip tail in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CUDA_ARRAY_SPARSE_PROPERTIES {
    pub tile_width: c_uint,
    pub tile_height: c_uint,
    pub tile_depth: c_uint,
    pub miptail_first_level: c_uint,
    pub miptail_size: c_ulonglong,
    pub flags: c_uint,
    pub reserved: [c_uint; 4],
}
