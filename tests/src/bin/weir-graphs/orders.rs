//! What orders work: host functions that launch, streams that wait for words of the host's, launches that overlap.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number};

use crate::build::first_error;
use crate::nodes::resting;
use crate::{BLOCKS, Client, THREADS};

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, numbers: &[u64]) -> Option<Done> {
    let n = |at: usize| numbers.get(at).copied().unwrap_or(0);
    Some(match command {
        "kernels_by_host_function" => (called_back(client, Kind::Host, n(0), n(1), n(2)), Vec::new()),
        "kernels_by_callback" => (called_back(client, Kind::Callback, n(0), n(1), n(2)), Vec::new()),
        "slow_host" => {
            let CUDA_HOST_NODE_PARAMS { func, user_data } = resting(n(1));
            (call!(client, cuLaunchHostFunc(handle(n(0)), func, user_data)), Vec::new())
        }
        "captured_host_function" => captured(client, n(0)),
        "capture_beside" => capture_beside(client, [n(0), n(1)], n(2), n(3)),
        "pairs" => {
            let pair =
                |_| first_error([client.kernel(handle(n(0)), n(1)), closely(client, n(0), n(2))].into_iter());
            (first_error((0..n(3)).map(pair)), Vec::new())
        }
        "chain" => (first_error((0..n(2)).map(|_| closely(client, n(0), n(1)))), Vec::new()),
        "word" => word(client),
        "await_word" => (call!(client, cuStreamWaitValue32_v2(handle(n(0)), n(1), 1, 0)), Vec::new()),
        "await_word_in_batch" => (in_batch(client, n(0), n(1)), Vec::new()),
        "set_word" => {
            let place: *const AtomicU32 = handle(n(0));
            // SAFETY: a word of pinned memory that `word` has given out.
            unsafe { (*place).store(u32::try_from(n(1)).unwrap_or(0), Ordering::Release) };
            (CUDA_SUCCESS, Vec::new())
        }
        _ => return None,
    })
}

/// A launch that may begin before the one before it has ended.
fn closely(client: &Client, stream: u64, kernel: u64) -> CUresult {
    let mut attribute = CUlaunchAttribute {
        id: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: CUlaunchAttributeValue { pad: [0; 64] },
    };
    attribute.value.programmatic_stream_serialization_allowed = 1;
    let config = CUlaunchConfig {
        grid_dim_x: BLOCKS,
        grid_dim_y: 1,
        grid_dim_z: 1,
        block_dim_x: THREADS,
        block_dim_y: 1,
        block_dim_z: 1,
        shared_mem_bytes: 0,
        stream: handle(stream),
        attrs: &raw mut attribute,
        num_attrs: 1,
    };
    call!(client, cuLaunchKernelEx(&raw const config, client.function(kernel), null_mut(), null_mut()))
}

/// A word of pinned memory.
fn word(client: &Client) -> Done {
    let mut place = null_mut();
    (call!(client, cuMemHostAlloc(&raw mut place, size_of::<u32>(), 0)), vec![number(place)])
}

fn in_batch(client: &Client, stream: u64, address: u64) -> CUresult {
    let mut wait = CUstreamBatchMemOpParams {
        operation: CU_STREAM_MEM_OP_WAIT_VALUE_32,
        address,
        value: 1,
        flags: 0,
        alias: 0,
        pad: 0,
    };
    call!(client, cuStreamBatchMemOp_v2(handle(stream), 1, &raw mut wait, 0))
}

enum Kind {
    Host,
    Callback,
}

/// What a host function is to launch, and whom it tells what came of it.
struct Order<'a> {
    client: &'a Client,
    stream: u64,
    kernel: u64,
    count: u64,
    told: Sender<CUresult>,
}

impl Order<'_> {
    fn obey(&self) {
        call!(self.client, cuCtxSetCurrent(self.client.context)); // this thread's first call
        let launches = (0..self.count).map(|_| self.client.kernel(handle(self.stream), self.kernel));
        let _ = self.told.send(first_error(launches));
    }
}

unsafe extern "C" fn by_host(order: *mut c_void) {
    // SAFETY: `called_back` has given an order, and waits until it was obeyed.
    unsafe { &*order.cast::<Order<'_>>() }.obey();
}

unsafe extern "C" fn by_callback(_: CUstream, status: CUresult, order: *mut c_void) {
    assert!(status == CUDA_SUCCESS, "the stream is well");
    // SAFETY: as above.
    unsafe { by_host(order) };
}

/// So many launches into `stream`, by a host function in another one; waits for the function.
fn called_back(client: &Client, kind: Kind, stream: u64, kernel: u64, count: u64) -> CUresult {
    let (told, hears) = channel();
    let order = Order { client, stream, kernel, count, told };
    let (mut other, data) = (null_mut(), (&raw const order).cast_mut().cast());
    let made = call!(client, cuStreamCreate(&raw mut other, CU_STREAM_NON_BLOCKING));
    let put = match kind {
        Kind::Host => call!(client, cuLaunchHostFunc(other, Some(by_host), data)),
        Kind::Callback => call!(client, cuStreamAddCallback(other, Some(by_callback), data, 0)),
    };
    if put != CUDA_SUCCESS {
        return put;
    }
    let launched = hears.recv().unwrap_or(CUDA_ERROR_UNKNOWN);
    // Until the driver has come back from the function that refers to the order.
    first_error([made, launched, call!(client, cuStreamSynchronize(other))].into_iter())
}

unsafe extern "C" fn add_one(count: *mut c_void) {
    // SAFETY: a counter that outlives the stream in which the function is.
    unsafe { &*count.cast::<AtomicU32>() }.fetch_add(1, Ordering::Release);
}

/// A capture, by the strictest mode, of one kernel, in the middle of which another thread launches so many on another stream: how
/// many nodes the graph has.
fn capture_beside(client: &Client, [captured, other]: [u64; 2], kernel: u64, count: u64) -> Done {
    let (mut graph, mut nodes) = (null_mut(), 0);
    let begun = call!(client, cuStreamBeginCapture_v2(handle(captured), CU_STREAM_CAPTURE_MODE_GLOBAL));
    let launch = || {
        let current = call!(client, cuCtxSetCurrent(client.context));
        first_error(std::iter::once(current).chain((0..count).map(|_| client.kernel(handle(other), kernel))))
    };
    let launched = std::thread::scope(|scope| scope.spawn(launch).join().unwrap_or(CUDA_ERROR_UNKNOWN));
    let results = [
        begun,
        launched,
        client.kernel(handle(captured), kernel),
        call!(client, cuStreamEndCapture(handle(captured), &raw mut graph)),
        call!(client, cuGraphGetNodes(graph, null_mut(), &raw mut nodes)),
    ];
    (first_error(results.into_iter()), vec![nodes as u64])
}

/// A captured host function, launched so often: how often it ran, and whether its node shows the program's function and
/// argument.
fn captured(client: &Client, times: u64) -> Done {
    let (mut stream, mut graph, mut ready, mut node) = (null_mut(), null_mut(), null_mut(), null_mut());
    let (count, mut nodes) = (AtomicU32::new(0), 1);
    let data: *mut c_void = (&raw const count).cast_mut().cast();
    let mut shows = CUDA_HOST_NODE_PARAMS { func: None, user_data: null_mut() };
    let made = [
        call!(client, cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING)),
        call!(client, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)),
        call!(client, cuLaunchHostFunc(stream, Some(add_one), data)),
        call!(client, cuStreamEndCapture(stream, &raw mut graph)),
        call!(client, cuGraphGetNodes(graph, &raw mut node, &raw mut nodes)),
        call!(client, cuGraphHostNodeGetParams(node, &raw mut shows)),
        call!(client, cuGraphInstantiateWithFlags(&raw mut ready, graph, 0)),
    ];
    let launched = (0..times).map(|_| call!(client, cuGraphLaunch(ready, stream)));
    let result = first_error(made.into_iter().chain(launched));
    let waited = call!(client, cuStreamSynchronize(stream));
    let same =
        shows.func.is_some_and(|function| std::ptr::fn_addr_eq(function, add_one as unsafe extern "C" fn(_)))
            && shows.user_data == data;
    (first_error([result, waited].into_iter()), vec![count.load(Ordering::Acquire).into(), same.into()])
}
