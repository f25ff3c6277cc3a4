//! Structures of a launch.

use std::ffi::{c_int, c_uint, c_void};

use super::{CUcontext, CUevent, CUfunction, CUkernel, CUlaunchAttributeID, CUstream};

/// What `cuLaunchKernelEx` launches: the grid, and attributes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUlaunchConfig {
    pub grid_dim_x: c_uint,
    pub grid_dim_y: c_uint,
    pub grid_dim_z: c_uint,
    pub block_dim_x: c_uint,
    pub block_dim_y: c_uint,
    pub block_dim_z: c_uint,
    pub shared_mem_bytes: c_uint,
    pub stream: CUstream,
    pub attrs: *mut CUlaunchAttribute,
    pub num_attrs: c_uint,
}

/// One attribute of a launch.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUlaunchAttribute {
    pub id: CUlaunchAttributeID,
    pub pad: [u8; 4],
    pub value: CUlaunchAttributeValue,
}

/// The value of a launch attribute; `id` says which member holds.
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUlaunchAttributeValue {
    pub pad: [u8; 64],
    pub cooperative: c_int,
    pub cluster_dim: [c_uint; 3],
    pub programmatic_stream_serialization_allowed: c_int,
    pub programmatic_event: CUprogrammaticEvent,
    pub launch_completion_event: CUlaunchCompletionEvent,
    pub priority: c_int,
    /// Carries the alignment of the members that are not named here.
    pub aligned: [u64; 8],
}

/// An event recorded when the grid's blocks have triggered it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUprogrammaticEvent {
    pub event: CUevent,
    pub flags: c_int,
    pub trigger_at_block_start: c_int,
}

/// An event recorded when all blocks of the grid have begun.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUlaunchCompletionEvent {
    pub event: CUevent,
    pub flags: c_int,
}

/// One launch of `cuLaunchCooperativeKernelMultiDevice`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_LAUNCH_PARAMS {
    pub function: CUfunction,
    pub grid_dim_x: c_uint,
    pub grid_dim_y: c_uint,
    pub grid_dim_z: c_uint,
    pub block_dim_x: c_uint,
    pub block_dim_y: c_uint,
    pub block_dim_z: c_uint,
    pub shared_mem_bytes: c_uint,
    pub stream: CUstream,
    pub kernel_params: *mut *mut c_void,
}

/// A kernel node as CUDA 10 and 11 describe it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_KERNEL_NODE_PARAMS_v1 {
    pub func: CUfunction,
    pub grid_dim_x: c_uint,
    pub grid_dim_y: c_uint,
    pub grid_dim_z: c_uint,
    pub block_dim_x: c_uint,
    pub block_dim_y: c_uint,
    pub block_dim_z: c_uint,
    pub shared_mem_bytes: c_uint,
    pub kernel_params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// A kernel node as CUDA 12 and later describe it: a kernel and a context may stand for a function.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_KERNEL_NODE_PARAMS {
    pub func: CUfunction,
    pub grid_dim_x: c_uint,
    pub grid_dim_y: c_uint,
    pub grid_dim_z: c_uint,
    pub block_dim_x: c_uint,
    pub block_dim_y: c_uint,
    pub block_dim_z: c_uint,
    pub shared_mem_bytes: c_uint,
    pub kernel_params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: CUkernel,
    pub ctx: CUcontext,
}
