//! Copies and memsets as nodes, and memory for them.

use std::ptr::null_mut;

use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number, size};

use crate::Client;
use crate::build::After;

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, numbers: &[u64]) -> Option<Done> {
    let n = |at: usize| numbers.get(at).copied().unwrap_or(0);
    Some(match command {
        "device_memory" => {
            let mut address = 0;
            (call!(client, cuMemAlloc_v2(&raw mut address, size(n(0)))), vec![address])
        }
        "host_memory" => {
            let mut address = null_mut();
            (call!(client, cuMemHostAlloc(&raw mut address, size(n(0)), 0)), vec![number(address)])
        }
        "add_copy" => {
            let (mut node, after, params) = (null_mut(), After::of(n(1)), copy(n(2), n(3), n(4)));
            let result = call!(
                client,
                cuGraphAddMemcpyNode(
                    &raw mut node,
                    handle(n(0)),
                    after.first(),
                    after.count(),
                    &raw const params,
                    client.context
                )
            );
            (result, vec![number(node)])
        }
        "add_fill" => {
            let (mut node, after, params) = (null_mut(), After::of(n(1)), fill(n(2), n(3)));
            let result = call!(
                client,
                cuGraphAddMemsetNode(
                    &raw mut node,
                    handle(n(0)),
                    after.first(),
                    after.count(),
                    &raw const params,
                    client.context
                )
            );
            (result, vec![number(node)])
        }
        "copy" => (call!(client, cuMemcpyAsync(n(1), n(2), size(n(3)), handle(n(0)))), Vec::new()),
        "capture_copy" => capture(client, n(0), n(1), n(2), size(n(3))),
        _ => return change(client, command, numbers),
    })
}

/// One command that changes a node of an executable graph.
fn change(client: &Client, command: &str, numbers: &[u64]) -> Option<Done> {
    let n = |at: usize| numbers.get(at).copied().unwrap_or(0);
    Some(match command {
        "set_copy" => set(client, n(0), n(1), |params| {
            params.kind = CU_GRAPH_NODE_TYPE_MEMCPY;
            params.node.memcpy.copy_params = copy(n(2), n(3), n(4));
        }),
        "set_fill" => set(client, n(0), n(1), |params| {
            params.kind = CU_GRAPH_NODE_TYPE_MEMSET;
            params.node.memset.memset = fill(n(2), n(3));
        }),
        "set_copy_node" => {
            let (params, context) = (copy(n(2), n(3), n(4)), client.context);
            let (exec, node) = (handle(n(0)), handle(n(1)));
            (
                call!(client, cuGraphExecMemcpyNodeSetParams(exec, node, &raw const params, context)),
                Vec::new(),
            )
        }
        "set_fill_node" => {
            let (params, context) = (fill(n(2), n(3)), client.context);
            let (exec, node) = (handle(n(0)), handle(n(1)));
            (
                call!(client, cuGraphExecMemsetNodeSetParams(exec, node, &raw const params, context)),
                Vec::new(),
            )
        }
        _ => return None,
    })
}

/// Changes a node of an executable graph to what `fill_in` says.
fn set(client: &Client, exec: u64, node: u64, fill_in: impl FnOnce(&mut CUgraphNodeParams)) -> Done {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut params: CUgraphNodeParams = unsafe { std::mem::zeroed() };
    fill_in(&mut params);
    (call!(client, cuGraphExecNodeSetParams(handle(exec), handle(node), &raw mut params)), Vec::new())
}

/// Bytes between two addresses of any kind.
fn copy(to: u64, from: u64, bytes: u64) -> CUDA_MEMCPY3D {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (copy.src_memory_type, copy.src_device) = (CU_MEMORYTYPE_UNIFIED, from);
    (copy.dst_memory_type, copy.dst_device) = (CU_MEMORYTYPE_UNIFIED, to);
    (copy.width_in_bytes, copy.height, copy.depth) = (size(bytes), 1, 1);
    copy
}

fn fill(to: u64, bytes: u64) -> CUDA_MEMSET_NODE_PARAMS {
    let elements = size(bytes / 4);
    CUDA_MEMSET_NODE_PARAMS { dst: to, pitch: 0, value: 7, element_size: 4, width: elements, height: 1 }
}

/// A captured copy: the executable graph and the graph.
fn capture(client: &Client, stream: u64, to: u64, from: u64, bytes: usize) -> Done {
    let (mut graph, mut exec) = (null_mut(), null_mut());
    call!(client, cuStreamBeginCapture_v2(handle(stream), CU_STREAM_CAPTURE_MODE_GLOBAL));
    call!(client, cuMemcpyAsync(to, from, bytes, handle(stream)));
    call!(client, cuStreamEndCapture(handle(stream), &raw mut graph));
    let result = call!(client, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
    (result, vec![number(exec), number(graph)])
}
