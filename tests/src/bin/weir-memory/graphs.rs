//! Graphs with memory nodes.

use std::ptr::null_mut;

use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number, size};

use crate::Client;

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, n: impl Fn(usize) -> u64) -> Option<Done> {
    Some(match command {
        "graph" => capture(client, n(0), n(1) != 0),
        "graph_launch" => (call!(client, cuGraphLaunch(handle(n(0)), client.stream)), Vec::new()),
        "graph_upload" => (call!(client, cuGraphUpload(handle(n(0)), client.stream)), Vec::new()),
        "graph_destroy" => (call!(client, cuGraphExecDestroy(handle(n(0)))), Vec::new()),
        "graph_trim" => (call!(client, cuDeviceGraphMemTrim(0)), Vec::new()),
        "graph_reserved" => {
            let (mut bytes, which) = (0u64, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
            let result = call!(client, cuDeviceGetGraphMemAttribute(0, which, (&raw mut bytes).cast()));
            (result, vec![bytes])
        }
        _ => return None,
    })
}

/// A graph that allocates, and frees if it is to: the executable graph and the address.
fn capture(client: &Client, bytes: u64, frees: bool) -> Done {
    let (mut graph, mut ready, mut pointer, stream) = (null_mut(), null_mut(), 0, client.stream);
    call!(client, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    call!(client, cuMemAllocAsync(&raw mut pointer, size(bytes), stream));
    if frees {
        call!(client, cuMemFreeAsync(pointer, stream));
    }
    call!(client, cuStreamEndCapture(stream, &raw mut graph));
    let result = call!(client, cuGraphInstantiateWithFlags(&raw mut ready, graph, 0));
    (result, vec![number(ready), pointer])
}
