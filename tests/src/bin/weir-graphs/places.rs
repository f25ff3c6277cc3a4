//! Where work goes: streams, contexts, parts of the GPU, threads.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use libloading::os::unix::Library;
use weir_abi::CUresult;
use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number};

use crate::build::first_error;
use crate::{BLOCKS, Client, THREADS};

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, numbers: &[u64]) -> Option<Done> {
    let n = |at: usize| numbers.get(at).copied().unwrap_or(0);
    Some(match command {
        "stream" => {
            let mut stream = null_mut();
            (call!(client, cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING)), vec![number(stream)])
        }
        "kernels" => {
            let results = (0..n(2)).map(|_| client.kernel(handle(n(0)), n(1)));
            (first_error(results), Vec::new())
        }
        "price" => (CUDA_SUCCESS, vec![price(client, n(0))]),
        "wait" => (call!(client, cuCtxSynchronize()), Vec::new()),
        "wait_stream" => (call!(client, cuStreamSynchronize(handle(n(0)))), Vec::new()),
        "context" => {
            let (mut context, device) = (null_mut(), i32::try_from(n(0)).unwrap_or(-1));
            (call!(client, cuCtxCreate_v2(&raw mut context, 0, device)), vec![number(context)])
        }
        "current" => (call!(client, cuCtxSetCurrent(handle(n(0)))), Vec::new()),
        "primary" => (CUDA_SUCCESS, vec![number(client.context)]),
        "primary_reset" => (call!(client, cuDevicePrimaryCtxReset_v2(0)), Vec::new()),
        "begin" => (client.begin(), Vec::new()),
        "green" => green(client, n(0)),
        "green_stream" => {
            let mut stream = null_mut();
            let result = call!(
                client,
                cuGreenCtxStreamCreate(&raw mut stream, handle(n(0)), CU_STREAM_NON_BLOCKING, 0)
            );
            (result, vec![number(stream)])
        }
        "green_destroy" => (call!(client, cuGreenCtxDestroy(handle(n(0)))), Vec::new()),
        "stream_green" => {
            let mut green = null_mut();
            (call!(client, cuStreamGetGreenCtx(handle(n(0)), &raw mut green)), vec![number(green)])
        }
        "in_context_of_its_own" => in_context_of_its_own(client, n(0), n(1)),
        "on_devices" => on_devices(client, n(0), n(1), 1),
        "on_too_many_devices" => on_devices(client, n(0), 1, u32::MAX),
        "on_devices_of_nothing" => {
            (call!(client, cuLaunchCooperativeKernelMultiDevice(null_mut(), 1, 0)), Vec::new())
        }
        "threads" => (threads(client, n(0), n(1), n(2)), Vec::new()),
        _ => return None,
    })
}

/// What Weir charges for a launch of this kernel now, in nanoseconds; 0 without it.
fn price(client: &Client, kernel: u64) -> u64 {
    type Ask = unsafe extern "C" fn(CUfunction, c_uint, c_uint, c_uint) -> u64;
    let this = Library::this();
    // SAFETY: the symbol has this type (interposer, `hint`).
    let ask = unsafe { this.get::<Ask>(b"weir_kernel_price_ns\0") };
    // SAFETY: takes a handle as a number, and numbers.
    ask.map_or(0, |ask| unsafe { ask(client.function(kernel), BLOCKS, THREADS, 0) })
}

/// So many launches by a thread that waits for none of them, in a context that another thread then destroys.
fn in_context_of_its_own(client: &Client, kernel: u64, count: u64) -> Done {
    let (mut context, mut popped) = (null_mut(), null_mut());
    let made = call!(client, cuCtxCreate_v2(&raw mut context, 0, 0));
    call!(client, cuCtxPopCurrent_v2(&raw mut popped));
    let (client, there) = (&client, number(context));
    let work = move || {
        let mut stream = null_mut();
        call!(client, cuCtxSetCurrent(handle(there)));
        call!(client, cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING));
        first_error((0..count).map(|_| client.kernel(stream, kernel)))
    };
    let launched = std::thread::scope(|scope| scope.spawn(work).join().unwrap_or(CUDA_ERROR_UNKNOWN));
    let results = [made, launched, call!(client, cuCtxDestroy_v2(context))];
    (first_error(results.into_iter()), Vec::new())
}

/// One kernel on a list of devices, which is one, with so many blocks; the list is said to be of `count`.
pub fn on_devices(client: &Client, kernel: u64, blocks: u64, count: u32) -> Done {
    let mut list = [CUDA_LAUNCH_PARAMS {
        function: client.function(kernel),
        grid_dim_x: u32::try_from(blocks).unwrap_or(u32::MAX),
        grid_dim_y: 1,
        grid_dim_z: 1,
        block_dim_x: THREADS,
        block_dim_y: 1,
        block_dim_z: 1,
        shared_mem_bytes: 0,
        stream: null_mut(),
        kernel_params: null_mut(),
    }];
    (call!(client, cuLaunchCooperativeKernelMultiDevice(list.as_mut_ptr(), count, 0)), Vec::new())
}

/// A part of the GPU with so many SMs: the green context, the context that stands for it, the SMs it has.
fn green(client: &Client, sms: u64) -> Done {
    // SAFETY: all-zero is a valid value of this plain structure.
    let (mut all, mut part): (CUdevResource, CUdevResource) = unsafe { std::mem::zeroed() };
    let (mut description, mut green, mut context, mut groups) = (null_mut(), null_mut(), null_mut(), 1);
    let place = |resource: &mut CUdevResource| &raw mut *resource;
    let least = u32::try_from(sms).unwrap_or(u32::MAX);
    let results = [
        call!(client, cuDeviceGetDevResource(0, place(&mut all), CU_DEV_RESOURCE_TYPE_SM)),
        call!(
            client,
            cuDevSmResourceSplitByCount(
                place(&mut part),
                &raw mut groups,
                place(&mut all),
                null_mut(),
                0,
                least
            )
        ),
        call!(client, cuDevResourceGenerateDesc(&raw mut description, place(&mut part), 1)),
        call!(client, cuGreenCtxCreate(&raw mut green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM)),
        call!(client, cuCtxFromGreenCtx(&raw mut context, green)),
    ];
    (first_error(results.into_iter()), vec![number(green), number(context), part.sm.sm_count.into()])
}

/// So many threads, each of which launches so many kernels into its own default stream and waits for them.
fn threads(client: &Client, threads: u64, kernel: u64, count: u64) -> CUresult {
    let (client, none) = (&client, null_mut::<*mut c_void>);
    let work = || {
        call!(client, cuCtxSetCurrent(client.context));
        let launch = |_| {
            let function = client.function(kernel);
            call!(
                client,
                cuLaunchKernel_ptsz(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, null_mut(), none(), none())
            )
        };
        let launched = first_error((0..count).map(launch));
        first_error([launched, call!(client, cuStreamSynchronize_ptsz(null_mut()))].into_iter())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        first_error(all.into_iter().map(|thread| thread.join().unwrap_or(CUDA_ERROR_UNKNOWN)))
    })
}
