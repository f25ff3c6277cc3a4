//! The rows of what orders work: host functions, and streams that wait for words.

use std::ffi::{c_uint, c_ulonglong, c_void};

use weir_abi::types::*;

use crate::driver::{self, Stream};
use crate::hooks::{callback, stream_waits};

driver_hooks! {
    // Host functions: a thread of the driver's runs them, and must not be held up.

    /// Nothing waits on the driver's thread while the function runs.
    fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void)
        = |call| callback::host(Stream::legacy(stream), function, data, call,
            |function, data| driver::host_function(stream, function, data));
    /// As above; the null stream is the thread's own.
    fn cuLaunchHostFunc_ptsz(stream: CUstream, function: CUhostFn, data: *mut c_void)
        = |call| callback::host(Stream::per_thread(stream), function, data, call,
            |function, data| driver::host_function_per_thread(stream, function, data));
    /// As above, CUDA 13.1.
    fn cuLaunchHostFunc_v2(stream: CUstream, function: CUhostFn, data: *mut c_void, mode: c_uint)
        = |call| callback::host(Stream::legacy(stream), function, data, call,
            |function, data| driver::host_function_v2(stream, function, data, mode));
    /// As above; the null stream is the thread's own.
    fn cuLaunchHostFunc_v2_ptsz(stream: CUstream, function: CUhostFn, data: *mut c_void, mode: c_uint)
        = |call| callback::host(Stream::per_thread(stream), function, data, call,
            |function, data| driver::host_function_v2_per_thread(stream, function, data, mode));
    /// As `cuLaunchHostFunc`, the older kind.
    fn cuStreamAddCallback(stream: CUstream, function: CUstreamCallback, data: *mut c_void, flags: c_uint)
        = |call| callback::callback(Stream::legacy(stream), function, data, call,
            |function, data| driver::stream_callback(stream, function, data, flags));
    /// As above; the null stream is the thread's own.
    fn cuStreamAddCallback_ptsz(stream: CUstream, function: CUstreamCallback, data: *mut c_void, flags: c_uint)
        = |call| callback::callback(Stream::per_thread(stream), function, data, call,
            |function, data| driver::stream_callback_per_thread(stream, function, data, flags));

    // Streams that wait for words: what sets the word must not be held up.

    /// Until the stream has come past it, launches leave debts rather than wait, within bounds.
    fn cuStreamWaitValue32(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint)
        = |call| stream_waits::wait(Stream::legacy(stream), call);
    /// As above; the null stream is the thread's own.
    fn cuStreamWaitValue32_ptsz(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint)
        = |call| stream_waits::wait(Stream::per_thread(stream), call);
    /// As above, CUDA 11.7.
    fn cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint)
        = |call| stream_waits::wait(Stream::legacy(stream), call);
    /// As above; the null stream is the thread's own.
    fn cuStreamWaitValue32_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint)
        = |call| stream_waits::wait(Stream::per_thread(stream), call);
    /// Until the stream has come past it, launches leave debts rather than wait, within bounds.
    fn cuStreamWaitValue64(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint)
        = |call| stream_waits::wait(Stream::legacy(stream), call);
    /// As above; the null stream is the thread's own.
    fn cuStreamWaitValue64_ptsz(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint)
        = |call| stream_waits::wait(Stream::per_thread(stream), call);
    /// As above, CUDA 11.7.
    fn cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint)
        = |call| stream_waits::wait(Stream::legacy(stream), call);
    /// As above; the null stream is the thread's own.
    fn cuStreamWaitValue64_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint)
        = |call| stream_waits::wait(Stream::per_thread(stream), call);
    /// As `cuStreamWaitValue32`, if there is a wait in it.
    fn cuStreamBatchMemOp(stream: CUstream, count: c_uint, list: *mut CUstreamBatchMemOpParams, flags: c_uint)
        = |call| stream_waits::batch(Stream::legacy(stream), list, count, call);
    /// As above; the null stream is the thread's own.
    fn cuStreamBatchMemOp_ptsz(stream: CUstream, count: c_uint, list: *mut CUstreamBatchMemOpParams, flags: c_uint)
        = |call| stream_waits::batch(Stream::per_thread(stream), list, count, call);
    /// As above, CUDA 11.7.
    fn cuStreamBatchMemOp_v2(stream: CUstream, count: c_uint, list: *mut CUstreamBatchMemOpParams, flags: c_uint)
        = |call| stream_waits::batch(Stream::legacy(stream), list, count, call);
    /// As above; the null stream is the thread's own.
    fn cuStreamBatchMemOp_v2_ptsz(stream: CUstream, count: c_uint, list: *mut CUstreamBatchMemOpParams, flags: c_uint)
        = |call| stream_waits::batch(Stream::per_thread(stream), list, count, call);
}
