//! Structures of devices and contexts, and the one frame that a call takes by value.

use std::ffi::{c_int, c_uint, c_void};

use super::{CUarray_format, CUdevResourceType};

/// A device's unique identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CUuuid {
    pub bytes: [u8; 16],
}

/// How to create a context (`cuCtxCreate_v4`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUctxCreateParams {
    pub exec_affinity_params: *mut CUexecAffinityParam,
    pub num_exec_affinity_params: c_int,
    pub cig_params: *mut c_void,
}

/// Which part of the SMs a context may use.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUexecAffinityParam {
    pub kind: c_uint,
    pub sm_count: c_uint,
}

/// A resource of a device, as the calls on green contexts pass it: opaque but for its kind and size.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUdevResource {
    pub kind: CUdevResourceType,
    /// The driver's own.
    pub internal: [c_uint; 23],
    pub sm: CUdevSmResource,
    pub reserved: [c_uint; 6],
    pub next: *mut Self,
}

/// So many SMs; the fields behind the first are told since CUDA 13.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CUdevSmResource {
    pub sm_count: c_uint,
    pub min_sm_partition_size: c_uint,
    pub sm_coscheduled_alignment: c_uint,
    pub flags: c_uint,
}

/// A device's properties as the first versions asked for them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUdevprop {
    pub max_threads_per_block: c_int,
    pub max_threads_dim: [c_int; 3],
    pub max_grid_size: [c_int; 3],
    pub shared_mem_per_block: c_int,
    pub total_constant_memory: c_int,
    pub simd_width: c_int,
    pub mem_pitch: c_int,
    pub regs_per_block: c_int,
    pub clock_rate: c_int,
    pub texture_align: c_int,
}

/// A frame of an EGL stream: three planes and their shape. Only its size matters here.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUeglFrame {
    pub planes: [*mut c_void; 3],
    pub width: c_uint,
    pub height: c_uint,
    pub depth: c_uint,
    pub pitch: c_uint,
    pub plane_count: c_uint,
    pub num_channels: c_uint,
    pub frame_type: c_uint,
    pub egl_color_format: c_uint,
    pub cu_format: CUarray_format,
}
