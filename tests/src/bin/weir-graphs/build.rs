//! Graphs: captured, built, made executable, launched.

use std::ptr::null_mut;

use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number, size};

use crate::{BLOCKS, Client, THREADS};

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, numbers: &[u64]) -> Option<Done> {
    let n = |at: usize| numbers.get(at).copied().unwrap_or(0);
    Some(match command {
        "capture" => capture(client, n(0), &numbers[1..]),
        "capture_with_memory" => capture_with_memory(client, n(0), n(1), n(2)),
        "capture_launch" => capture_launch(client, n(0), n(1)),
        "graph" => {
            let mut graph = null_mut();
            (call!(client, cuGraphCreate(&raw mut graph, 0)), vec![number(graph)])
        }
        "add" => add(client, n(0), n(1), n(2), null_mut()),
        "add_child" => {
            let (mut node, after) = (null_mut(), After::of(n(1)));
            let result = call!(
                client,
                cuGraphAddChildGraphNode(
                    &raw mut node,
                    handle(n(0)),
                    after.first(),
                    after.count(),
                    handle(n(2))
                )
            );
            (result, vec![number(node)])
        }
        "add_conditional" => add_conditional(client, n(0), n(1), (n(2), n(3), n(4))),
        "add_setting" => add_setting(client, n(0), n(1), (n(2), n(3), n(4))),
        "depend" => {
            let (from, to) = ([handle(n(1))], [handle(n(2))]);
            (call!(client, cuGraphAddDependencies(handle(n(0)), from.as_ptr(), to.as_ptr(), 1)), Vec::new())
        }
        "instantiate" => {
            let mut exec = null_mut();
            (
                call!(client, cuGraphInstantiateWithFlags(&raw mut exec, handle(n(0)), n(1))),
                vec![number(exec)],
            )
        }
        "instantiate_params" => instantiate_params(client, n(0), n(1)),
        "flags" => {
            let mut flags = 0;
            (call!(client, cuGraphExecGetFlags(handle(n(0)), &raw mut flags)), vec![flags])
        }
        "launch" => {
            let results = (0..n(2)).map(|_| call!(client, cuGraphLaunch(handle(n(0)), handle(n(1)))));
            (first_error(results), Vec::new())
        }
        "destroy" => (call!(client, cuGraphExecDestroy(handle(n(0)))), Vec::new()),
        _ => return None,
    })
}

/// What a node comes after: one other or none.
pub struct After([CUgraphNode; 1]);

impl After {
    /// That other; 0 is none.
    pub fn of(node: u64) -> Self {
        Self([handle(node)])
    }

    /// As the driver wants it.
    pub fn first(&self) -> *const CUgraphNode {
        self.0.as_ptr()
    }

    /// How many.
    pub fn count(&self) -> usize {
        usize::from(!self.0[0].is_null())
    }
}

/// The first answer that is no success.
pub fn first_error(results: impl Iterator<Item = weir_abi::CUresult>) -> weir_abi::CUresult {
    results.fold(CUDA_SUCCESS, |first, result| if first == CUDA_SUCCESS { result } else { first })
}

/// A captured chain of kernels, given as pairs of kernel and count: the executable graph and the graph.
fn capture(client: &Client, stream: u64, mix: &[u64]) -> Done {
    let (mut graph, mut exec) = (null_mut(), null_mut());
    call!(client, cuStreamBeginCapture_v2(handle(stream), CU_STREAM_CAPTURE_MODE_GLOBAL));
    for pair in mix.chunks_exact(2) {
        first_error((0..pair[1]).map(|_| client.kernel(handle(stream), pair[0])));
    }
    call!(client, cuStreamEndCapture(handle(stream), &raw mut graph));
    let result = call!(client, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
    (result, vec![number(exec), number(graph)])
}

/// A captured chain of so many kernels between an allocation and its end: the executable graph.
fn capture_with_memory(client: &Client, stream: u64, kernel: u64, count: u64) -> Done {
    let (mut graph, mut exec, mut pointer) = (null_mut(), null_mut(), 0);
    let results = [
        call!(client, cuStreamBeginCapture_v2(handle(stream), CU_STREAM_CAPTURE_MODE_GLOBAL)),
        call!(client, cuMemAllocAsync(&raw mut pointer, 1 << 20, handle(stream))),
        first_error((0..count).map(|_| client.kernel(handle(stream), kernel))),
        call!(client, cuMemFreeAsync(pointer, handle(stream))),
        call!(client, cuStreamEndCapture(handle(stream), &raw mut graph)),
        call!(client, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)),
    ];
    (first_error(results.into_iter()), vec![number(exec)])
}

/// A graph of one launch of another: the executable graph.
fn capture_launch(client: &Client, stream: u64, exec: u64) -> Done {
    let (mut graph, mut outer) = (null_mut(), null_mut());
    let results = [
        call!(client, cuStreamBeginCapture_v2(handle(stream), CU_STREAM_CAPTURE_MODE_GLOBAL)),
        call!(client, cuGraphLaunch(handle(exec), handle(stream))),
        call!(client, cuStreamEndCapture(handle(stream), &raw mut graph)),
        call!(client, cuGraphInstantiateWithFlags(&raw mut outer, graph, 0)),
    ];
    (first_error(results.into_iter()), vec![number(outer)])
}

/// A kernel's launch as a node has it; `parameters` are read when the node is made.
pub fn kernel_node(function: CUfunction, parameters: *mut *mut std::ffi::c_void) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: function,
        grid_dim_x: BLOCKS,
        grid_dim_y: 1,
        grid_dim_z: 1,
        block_dim_x: THREADS,
        block_dim_y: 1,
        block_dim_z: 1,
        shared_mem_bytes: 0,
        kernel_params: parameters,
        extra: null_mut(),
        kern: null_mut(),
        ctx: null_mut(),
    }
}

/// A kernel node with these parameters.
fn add(client: &Client, graph: u64, after: u64, kernel: u64, parameters: *mut *mut std::ffi::c_void) -> Done {
    let (mut node, after) = (null_mut(), After::of(after));
    let params = kernel_node(client.function(kernel), parameters);
    let result = call!(
        client,
        cuGraphAddKernelNode_v2(
            &raw mut node,
            handle(graph),
            after.first(),
            after.count(),
            &raw const params
        )
    );
    (result, vec![number(node)])
}

/// A conditional node of a kind, a size and a default: the node, its switch, its bodies.
fn add_conditional(client: &Client, graph: u64, after: u64, (kind, count, default): (u64, u64, u64)) -> Done {
    let (mut node, mut switch, after) = (null_mut(), 0, After::of(after));
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let made = call!(
        client,
        cuGraphConditionalHandleCreate(
            &raw mut switch,
            handle(graph),
            client.context,
            small(default),
            CU_GRAPH_COND_ASSIGN_DEFAULT
        )
    );
    if made != CUDA_SUCCESS {
        return (made, Vec::new());
    }
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut params: CUgraphNodeParams = unsafe { std::mem::zeroed() };
    params.kind = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.node.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
        handle: switch,
        kind: small(kind),
        size: small(count),
        bodies: null_mut(),
        ctx: client.context,
    };
    let result = call!(
        client,
        cuGraphAddNode_v2(
            &raw mut node,
            handle(graph),
            after.first(),
            std::ptr::null(),
            after.count(),
            &raw mut params
        )
    );
    let mut values = vec![number(node), switch];
    if result == CUDA_SUCCESS {
        // SAFETY: the driver has written so many bodies.
        values.extend((0..size(count)).map(|at| number(unsafe { *params.node.conditional.bodies.add(at) })));
    }
    (result, values)
}

/// A kernel node that sets a switch: `kernel switch value`.
fn add_setting(client: &Client, graph: u64, after: u64, (kernel, switch, value): (u64, u64, u64)) -> Done {
    let mut words = [switch, value];
    let [first, second] = &mut words;
    let mut parameters = [(&raw mut *first).cast(), (&raw mut *second).cast()];
    add(client, graph, after, kernel, parameters.as_mut_ptr())
}

/// The executable graph and what the driver says of the attempt.
fn instantiate_params(client: &Client, graph: u64, flags: u64) -> Done {
    let mut exec = null_mut();
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags,
        upload_stream: null_mut(),
        err_node_out: null_mut(),
        result_out: CUDA_GRAPH_INSTANTIATE_SUCCESS,
    };
    let result = call!(client, cuGraphInstantiateWithParams(&raw mut exec, handle(graph), &raw mut params));
    (result, vec![number(exec), params.result_out.into(), number(params.err_node_out)])
}
