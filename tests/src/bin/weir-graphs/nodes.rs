//! Nodes that take no time of the SMs, added one by one and changed: host functions, events, words of memory.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number};

use crate::Client;
use crate::build::After;

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`
#[repr(C)]
struct Batch {
    context: CUcontext,
    count: std::ffi::c_uint,
    operations: *mut CUstreamBatchMemOpParams,
    flags: std::ffi::c_uint,
}

/// One command, if it is of this subject. What is added stands in a graph behind a node; what is set, in an executable graph.
pub fn obey(client: &mut Client, command: &str, numbers: &[u64]) -> Option<Done> {
    let n = |at: usize| numbers.get(at).copied().unwrap_or(0);
    let (mut node, graph, after) = (null_mut(), handle(n(0)), After::of(n(1)));
    let (exec, changed) = (handle(n(0)), handle(n(1)));
    let result = match command {
        "add_host" | "add_slow_host" => {
            let params = if command == "add_host" { counting(n(2)) } else { resting(n(2)) };
            call!(
                client,
                cuGraphAddHostNode(&raw mut node, graph, after.first(), after.count(), &raw const params)
            )
        }
        "set_host" => {
            let params = counting(n(2));
            call!(client, cuGraphExecHostNodeSetParams(exec, changed, &raw const params))
        }
        "add_record" => {
            call!(
                client,
                cuGraphAddEventRecordNode(&raw mut node, graph, after.first(), after.count(), handle(n(2)))
            )
        }
        "set_record" => call!(client, cuGraphExecEventRecordNodeSetEvent(exec, changed, handle(n(2)))),
        "add_event_wait" => {
            call!(
                client,
                cuGraphAddEventWaitNode(&raw mut node, graph, after.first(), after.count(), handle(n(2)))
            )
        }
        "set_event_wait" => call!(client, cuGraphExecEventWaitNodeSetEvent(exec, changed, handle(n(2)))),
        "add_write" => {
            let mut write = writing(n(2), n(3));
            let batch = Batch { context: client.context, count: 1, operations: &raw mut write, flags: 0 };
            let batch = (&raw const batch).cast();
            call!(client, cuGraphAddBatchMemOpNode(&raw mut node, graph, after.first(), after.count(), batch))
        }
        "set_write" => {
            let mut write = writing(n(2), n(3));
            let batch = Batch { context: client.context, count: 1, operations: &raw mut write, flags: 0 };
            call!(client, cuGraphExecBatchMemOpNodeSetParams(exec, changed, (&raw const batch).cast()))
        }
        "event" => {
            let mut event = null_mut();
            return Some((call!(client, cuEventCreate(&raw mut event, 0)), vec![number(event)]));
        }
        "is_reached" => call!(client, cuEventQuery(handle(n(0)))),
        "get_word" => {
            let place: *const AtomicU32 = handle(n(0));
            // SAFETY: a word of pinned memory that `word` has given out.
            return Some((CUDA_SUCCESS, vec![u64::from(unsafe { (*place).load(Ordering::Acquire) })]));
        }
        _ => return None,
    };
    Some((result, vec![number(node)]))
}

/// A host function that adds one to a word.
fn counting(word: u64) -> CUDA_HOST_NODE_PARAMS {
    unsafe extern "C" fn add_one(word: *mut c_void) {
        // SAFETY: a word of pinned memory that `word` has given out.
        unsafe { &*word.cast::<AtomicU32>() }.fetch_add(1, Ordering::Release);
    }
    CUDA_HOST_NODE_PARAMS { func: Some(add_one), user_data: handle(word) }
}

/// A host function that takes so many microseconds.
pub fn resting(us: u64) -> CUDA_HOST_NODE_PARAMS {
    unsafe extern "C" fn rest(us: *mut c_void) {
        std::thread::sleep(Duration::from_micros(us.addr() as u64));
    }
    CUDA_HOST_NODE_PARAMS { func: Some(rest), user_data: handle(us) }
}

/// The GPU writes a word.
fn writing(address: u64, value: u64) -> CUstreamBatchMemOpParams {
    let operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    CUstreamBatchMemOpParams { operation, address, value, flags: 0, alias: 0, pad: 0 }
}
