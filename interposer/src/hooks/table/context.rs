//! The rows of contexts.

use std::ffi::{c_char, c_int, c_uint, c_void};

use weir_abi::types::*;

use crate::hooks::{context, context_memory};

driver_hooks! {
    // Contexts: the thread's GPU changes with its context.

    /// Refuses a GPU that was not granted; charges what the context costs.
    fn cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) = |call| context::create(context, device, call);
    /// Refuses a GPU that was not granted; charges what the context costs.
    fn cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) = |call| context::create(context, device, call);
    /// As above, CUDA 11.4.
    fn cuCtxCreate_v3(context: *mut CUcontext, affinity: *mut CUexecAffinityParam, count: c_int, flags: c_uint,
        device: CUdevice) = |call| context::create(context, device, call);
    /// As above, CUDA 12.5.
    fn cuCtxCreate_v4(context: *mut CUcontext, params: *mut CUctxCreateParams, flags: c_uint, device: CUdevice)
        = |call| context::create(context, device, call);
    /// Refuses a GPU that was not granted; the context is for OpenGL too.
    fn cuGLCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) = |call| context::create(context, device, call);
    /// As above, CUDA 3.2.
    fn cuGLCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) = |call| context::create(context, device, call);
    /// Refuses a GPU that was not granted; the context is for VDPAU too.
    fn cuVDPAUCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice, vdpau: c_uint,
        look_up: *mut *mut c_void) = |call| context::create(context, device, call);
    /// As above, CUDA 3.2.
    fn cuVDPAUCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice, vdpau: c_uint,
        look_up: *mut *mut c_void) = |call| context::create(context, device, call);
    /// Refuses a GPU that was not granted; the context is for a part of it, inside the primary one.
    fn cuGreenCtxCreate(context: *mut CUgreenCtx, description: *mut c_void, device: CUdevice, flags: c_uint)
        = |call| context::create_green(context, device, call);
    /// What was in flight there is not waited for; its primary context may go with it.
    fn cuGreenCtxDestroy(context: CUgreenCtx) = |call| context::destroy_green(context, call);
    /// Refuses a GPU that was not granted; charges what the context costs.
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice)
        = |call| context::retain_primary(context, device, call);
    /// What the context held is given back.
    fn cuCtxDestroy_v2(context: CUcontext) = |call| context::destroy(context, call);
    /// What the context held is given back.
    fn cuCtxDestroy(context: CUcontext) = |call| context::destroy(context, call);
    /// What the context held is given back with its last user.
    fn cuCtxDetach(context: CUcontext) = |call| context::detach(context, call);
    /// What the context held is given back when its last user has released it.
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) = |call| context::release_primary(device, call);
    /// As above, before CUDA 11.
    fn cuDevicePrimaryCtxRelease(device: CUdevice) = |call| context::release_primary(device, call);
    /// What the context held is given back.
    fn cuDevicePrimaryCtxReset_v2(device: CUdevice) = |call| context::release_primary(device, call);
    /// As above, before CUDA 11.
    fn cuDevicePrimaryCtxReset(device: CUdevice) = |call| context::release_primary(device, call);
    /// The thread's GPU changes.
    fn cuCtxSetCurrent(context: CUcontext) = |call| context::switch(call);
    /// The thread's GPU changes.
    fn cuCtxPushCurrent_v2(context: CUcontext) = |call| context::switch(call);
    /// The thread's GPU changes.
    fn cuCtxPushCurrent(context: CUcontext) = |call| context::switch(call);
    /// The thread's GPU changes.
    fn cuCtxPopCurrent_v2(context: *mut CUcontext) = |call| context::switch(call);
    /// The thread's GPU changes.
    fn cuCtxPopCurrent(context: *mut CUcontext) = |call| context::switch(call);

    // Contexts grow: what they take is measured anew.

    /// Contexts may have grown.
    fn cuCtxSetLimit(limit: CUlimit, value: usize) = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuModuleLoad(module: *mut CUmodule, name: *const c_char) = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint,
        values: *mut *mut c_void) = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) = |call| context_memory::grown(call);
    /// Contexts may have shrunk.
    fn cuModuleUnload(module: CUmodule) = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuLibraryLoadData(library: *mut CUlibrary, code: *const c_void, jit_options: *mut c_uint,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void, count: c_uint)
        = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuLibraryLoadFromFile(library: *mut CUlibrary, name: *const c_char, jit_options: *mut c_uint,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void, count: c_uint)
        = |call| context_memory::grown(call);
    /// Contexts may have shrunk.
    fn cuLibraryUnload(library: CUlibrary) = |call| context_memory::grown(call);
}
