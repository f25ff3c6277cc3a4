//! The rows of launches, and of synchronizing with them.

use std::ffi::{c_int, c_uint, c_void};

use weir_abi::types::*;

use crate::driver::Stream;
use crate::hooks::sync::How;
use crate::hooks::{launch, sync};

driver_hooks! {
    // Launches.

    /// Charges the kernel's price, waits at the gate if the tenant has spent its share.
    fn cuLaunchKernel(f: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void)
        = |call| launch::kernel(counted!(cuLaunchKernel), Stream::legacy(stream),
            launch::shape(f, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared), call);
    /// As `cuLaunchKernel`; the null stream is the thread's own.
    fn cuLaunchKernel_ptsz(f: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void)
        = |call| launch::kernel(counted!(cuLaunchKernel_ptsz), Stream::per_thread(stream),
            launch::shape(f, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared), call);
    /// As `cuLaunchKernel`, with attributes.
    fn cuLaunchKernelEx(config: *const CUlaunchConfig, f: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void)
        = |call| launch::kernel_ex(counted!(cuLaunchKernelEx), Stream::legacy, config, f, call);
    /// As `cuLaunchKernelEx`; the null stream is the thread's own.
    fn cuLaunchKernelEx_ptsz(config: *const CUlaunchConfig, f: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void)
        = |call| launch::kernel_ex(counted!(cuLaunchKernelEx_ptsz), Stream::per_thread, config, f, call);
    /// As `cuLaunchKernel`, all blocks at once.
    fn cuLaunchCooperativeKernel(f: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void)
        = |call| launch::kernel(counted!(cuLaunchCooperativeKernel), Stream::legacy(stream),
            launch::shape(f, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared), call);
    /// As above; the null stream is the thread's own.
    fn cuLaunchCooperativeKernel_ptsz(f: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void)
        = |call| launch::kernel(counted!(cuLaunchCooperativeKernel_ptsz), Stream::per_thread(stream),
            launch::shape(f, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared), call);
    /// One kernel on several devices that wait for each other: charged on each, never held between them.
    fn cuLaunchCooperativeKernelMultiDevice(list: *mut CUDA_LAUNCH_PARAMS, devices: c_uint, flags: c_uint)
        = |call| launch::multi_device(counted!(cuLaunchCooperativeKernelMultiDevice), list, devices, call);
    /// Charges the graph's price: first the sum of its nodes, then what was measured.
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream)
        = |call| launch::graph(counted!(cuGraphLaunch), Stream::legacy(stream), exec, call);
    /// As above; the null stream is the thread's own.
    fn cuGraphLaunch_ptsz(exec: CUgraphExec, stream: CUstream)
        = |call| launch::graph(counted!(cuGraphLaunch_ptsz), Stream::per_thread(stream), exec, call);
    /// The launch of CUDA 2: one block.
    fn cuLaunch(f: CUfunction)
        = |call| launch::kernel(counted!(cuLaunch), Stream::legacy(std::ptr::null_mut()), launch::old_shape(f, 1, 1), call);
    /// The launch of CUDA 2: a grid.
    fn cuLaunchGrid(f: CUfunction, width: c_int, height: c_int)
        = |call| launch::kernel(counted!(cuLaunchGrid), Stream::legacy(std::ptr::null_mut()),
            launch::old_shape(f, width, height), call);
    /// The launch of CUDA 2: a grid in a stream.
    fn cuLaunchGridAsync(f: CUfunction, width: c_int, height: c_int, stream: CUstream)
        = |call| launch::kernel(counted!(cuLaunchGridAsync), Stream::legacy(stream),
            launch::old_shape(f, width, height), call);

    // Synchronizing: its return says for nothing that everything before is done.

    /// What is in flight on the stream is done.
    fn cuStreamSynchronize(stream: CUstream) = |call| sync::stream(Stream::legacy(stream), How::Waits, call);
    /// What is in flight on the stream is done.
    fn cuStreamSynchronize_ptsz(stream: CUstream) = |call| sync::stream(Stream::per_thread(stream), How::Waits, call);
    /// What is in flight on the stream is done, if the answer is yes.
    fn cuStreamQuery(stream: CUstream) = |call| sync::stream(Stream::legacy(stream), How::Asks, call);
    /// What is in flight on the stream is done, if the answer is yes.
    fn cuStreamQuery_ptsz(stream: CUstream) = |call| sync::stream(Stream::per_thread(stream), How::Asks, call);
    /// What is in flight in the context is done.
    fn cuCtxSynchronize() = |call| sync::context(None, call);
    /// What is in flight in the context is done.
    fn cuCtxSynchronize_v2(context: CUcontext) = |call| sync::context(Some(context), call);
    /// What lay before the event is done.
    fn cuEventSynchronize(event: CUevent) = |call| sync::event(event, How::Waits, call);
    /// What lay before the event is done, if the answer is yes.
    fn cuEventQuery(event: CUevent) = |call| sync::event(event, How::Asks, call);
    /// Forgets the event.
    fn cuEventDestroy_v2(event: CUevent) = |call| sync::event_gone(event, call);
    /// Forgets the event.
    fn cuEventDestroy(event: CUevent) = |call| sync::event_gone(event, call);
    /// Notes what lies before the event.
    fn cuEventRecord(event: CUevent, stream: CUstream) = |call| sync::record(event, Stream::legacy(stream), call);
    /// As above; the null stream is the thread's own.
    fn cuEventRecord_ptsz(event: CUevent, stream: CUstream) = |call| sync::record(event, Stream::per_thread(stream), call);
    /// Notes what lies before the event.
    fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint)
        = |call| sync::record(event, Stream::legacy(stream), call);
    /// As above; the null stream is the thread's own.
    fn cuEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: c_uint)
        = |call| sync::record(event, Stream::per_thread(stream), call);
    /// Notes whether the stream waits for the legacy default stream.
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) = |call| sync::stream_made(flags, call);
    /// Notes whether the stream waits for the legacy default stream.
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int)
        = |call| sync::stream_made(flags, call);
    /// The stream is no place for marks any more.
    fn cuStreamDestroy_v2(stream: CUstream) = |call| sync::stream_gone(stream, call);
    /// The stream is no place for marks any more.
    fn cuStreamDestroy(stream: CUstream) = |call| sync::stream_gone(stream, call);
}
