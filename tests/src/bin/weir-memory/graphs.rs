//! Graphs with memory nodes.

use std::ptr::null_mut;

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number, size};

use crate::Client;

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, n: impl Fn(usize) -> u64) -> Option<Done> {
    Some(match command {
        "graph" => capture(client, n(0), n(1) != 0),
        "graph_of_nodes" => build(client, n(0), n(1) != 0, n(2)),
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

/// The same of nodes that are added one by one, with the calls of their own or with one of the calls for all kinds: the
/// executable graph, the address, and the graph.
fn build(client: &Client, bytes: u64, frees: bool, by: u64) -> Done {
    let (mut graph, mut ready, mut node) = (null_mut(), null_mut(), null_mut());
    call!(client, cuGraphCreate(&raw mut graph, 0));
    // SAFETY: all-zero is a valid value of these plain structures.
    let [mut takes, mut gives]: [CUgraphNodeParams; 2] = unsafe { [std::mem::zeroed(), std::mem::zeroed()] };
    takes.kind = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    takes.node.alloc = allocation(bytes);
    let mut result = add(client, graph, &mut node, &mut takes, by);
    // SAFETY: the member that was set above, with the address that the driver has written.
    let address = unsafe { takes.node.alloc.dptr };
    if result == CUDA_SUCCESS && frees {
        (gives.kind, gives.node.free) = (CU_GRAPH_NODE_TYPE_MEM_FREE, address);
        result = add(client, graph, &mut node, &mut gives, by);
    }
    if result == CUDA_SUCCESS {
        result = call!(client, cuGraphInstantiateWithFlags(&raw mut ready, graph, 0));
    }
    (result, vec![number(ready), address, number(graph)])
}

/// Memory on this device.
fn allocation(bytes: u64) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    params.pool_props.alloc_type = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.pool_props.location = CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    params.bytesize = size(bytes);
    params
}

/// Adds a memory node behind the last one.
fn add(
    client: &Client,
    graph: CUgraph,
    node: &mut CUgraphNode,
    params: &mut CUgraphNodeParams,
    by: u64,
) -> CUresult {
    let (after, count) = ([*node], usize::from(!node.is_null()));
    let (node, after, params) = (&raw mut *node, after.as_ptr(), &raw mut *params);
    // SAFETY: the caller's own structure, whose kind says which member is set.
    let (kind, own) = unsafe { ((*params).kind, &raw mut (*params).node) };
    match by {
        1 => call!(client, cuGraphAddNode(node, graph, after, count, params)),
        2 => call!(client, cuGraphAddNode_v2(node, graph, after, std::ptr::null(), count, params)),
        _ if kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
            call!(client, cuGraphAddMemAllocNode(node, graph, after, count, own.cast()))
        }
        _ => {
            // SAFETY: as above.
            let address = unsafe { (*params).node.free };
            call!(client, cuGraphAddMemFreeNode(node, graph, after, count, address))
        }
    }
}
