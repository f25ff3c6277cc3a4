//! Graphs: an executable graph costs the sum of its nodes until its launches are measured.

use std::collections::HashMap;

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::lock::Lock;
use weir_core::price::Signature;

use super::graph_memory::{self, Needs};
use super::{launch, names};
use crate::driver;
use crate::guard::{after_success, guard};
use crate::link::Client;

/// Graphs inside graphs are followed so deep.
const DEPTH: u32 = 8;

/// What each kernel node of each executable graph costs.
#[derive(Default)]
pub struct GraphPrices(Lock<HashMap<u64, Nodes>>);

#[derive(Default)]
struct Nodes {
    prices_ns: HashMap<u64, u64>,
    collective: bool, // one of them at least waits for other ranks
    memory: Needs,
}

/// A kernel node's launch, in whichever form the call gave it.
pub struct KernelNode(Option<Signature>);

impl KernelNode {
    /// From the parameters of CUDA 10 and 11.
    pub fn v1(params: *const CUDA_KERNEL_NODE_PARAMS_v1) -> Self {
        // SAFETY: the caller passes parameters or null; the driver reads the same fields.
        Self(unsafe { params.as_ref() }.map(|p| {
            let grid = [p.grid_dim_x, p.grid_dim_y, p.grid_dim_z];
            let block = [p.block_dim_x, p.block_dim_y, p.block_dim_z];
            launch::shape(p.func, grid, block, p.shared_mem_bytes)
        }))
    }

    /// From the parameters of CUDA 12.
    pub fn v2(params: *const CUDA_KERNEL_NODE_PARAMS) -> Self {
        // SAFETY: as above.
        Self(unsafe { params.as_ref() }.map(|p| {
            let function = if p.func.is_null() { p.kern } else { p.func };
            let grid = [p.grid_dim_x, p.grid_dim_y, p.grid_dim_z];
            let block = [p.block_dim_x, p.block_dim_y, p.block_dim_z];
            launch::shape(function, grid, block, p.shared_mem_bytes)
        }))
    }

    /// From a node of a graph.
    fn of(node: CUgraphNode) -> Self {
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut params: CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
        if driver::kernel_node(node, &raw mut params) == CUDA_SUCCESS {
            return Self::v2(&raw const params);
        }
        // SAFETY: as above.
        let mut old: CUDA_KERNEL_NODE_PARAMS_v1 = unsafe { std::mem::zeroed() };
        match driver::kernel_node_v1(node, &raw mut old) {
            CUDA_SUCCESS => Self::v1(&raw const old),
            _ => Self(None),
        }
    }

    fn price_ns(&self, client: &Client) -> Option<u64> {
        let signature = self.0.as_ref()?;
        names::ensure(client, signature.handle);
        Some(client.book.kernel(signature).price().unsigned_abs())
    }

    fn is_collective(&self, client: &Client) -> bool {
        self.0.as_ref().is_some_and(|signature| client.book.is_collective(signature.handle))
    }
}

/// A graph was made executable: `exec` is read once the driver has written it.
pub fn instantiate(exec: *mut CUgraphExec, graph: CUgraph, call: impl FnOnce() -> CUresult) -> CUresult {
    after_success(call, |client| {
        if !exec.is_null() {
            // SAFETY: the driver has just written it.
            let exec = unsafe { *exec };
            client.graphs.price(client, exec, graph);
            graph_memory::look_at(client, exec);
        }
    })
}

/// An executable graph took over another graph's parameters.
pub fn update(exec: CUgraphExec, graph: CUgraph, call: impl FnOnce() -> CUresult) -> CUresult {
    after_success(call, |client| {
        client.graphs.price(client, exec, graph);
    })
}

/// One kernel node of an executable graph got other parameters.
pub fn set_node(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: KernelNode,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    after_success(call, |client| {
        client.graphs.reprice(client, exec, node, &params);
    })
}

/// An executable graph is gone.
pub fn destroy(exec: CUgraphExec, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| {
            client.graphs.0.lock().remove(&(exec.addr() as u64));
            Ok(client.graph_memory.forget(exec))
        },
        call,
        |client, needs, _| {
            if let Some(needs) = needs {
                graph_memory::look(client, &needs);
            }
        },
    )
}

impl GraphPrices {
    /// Prices all nodes of `graph` and, by their sum, `exec`.
    fn price(&self, client: &Client, exec: CUgraphExec, graph: CUgraph) {
        let mut nodes = Nodes::default();
        nodes.add(client, graph, DEPTH);
        nodes.tell(client, exec);
        client.graph_memory.enter(exec, &mut nodes.memory);
        self.0.lock().insert(exec.addr() as u64, nodes);
    }

    /// Prices one node anew. Parameters that cost the same leave what was measured alone: a program may set them
    /// before each launch.
    fn reprice(&self, client: &Client, exec: CUgraphExec, node: CUgraphNode, params: &KernelNode) {
        let Some(price) = params.price_ns(client) else { return };
        let mut graphs = self.0.lock();
        let nodes = graphs.entry(exec.addr() as u64).or_default();
        if nodes.prices_ns.insert(node.addr() as u64, price) != Some(price) {
            nodes.tell(client, exec);
        }
    }
}

impl Nodes {
    fn add(&mut self, client: &Client, graph: CUgraph, depth: u32) {
        for node in nodes_of(graph) {
            let mut kind: CUgraphNodeType = 0;
            if driver::node_type(node, &raw mut kind) != CUDA_SUCCESS {
                continue;
            }
            match kind {
                CU_GRAPH_NODE_TYPE_KERNEL => {
                    let kernel = KernelNode::of(node);
                    if let Some(price) = kernel.price_ns(client) {
                        self.prices_ns.insert(node.addr() as u64, price);
                        self.collective |= kernel.is_collective(client);
                    }
                }
                CU_GRAPH_NODE_TYPE_MEM_ALLOC => self.memory.takes(client, node),
                CU_GRAPH_NODE_TYPE_MEM_FREE => self.memory.gives(node),
                CU_GRAPH_NODE_TYPE_GRAPH if depth > 0 => {
                    let mut child: CUgraph = std::ptr::null_mut();
                    if driver::child_graph(node, &raw mut child) == CUDA_SUCCESS {
                        self.add(client, child, depth - 1);
                    }
                }
                _ => {} // copies and host functions take no SM time
            }
        }
    }

    fn tell(&self, client: &Client, exec: CUgraphExec) {
        let sum = self.prices_ns.values().fold(0u64, |sum, ns| sum.saturating_add(*ns));
        client.book.set_graph(exec.addr() as u64, sum, self.collective);
    }
}

fn nodes_of(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    if driver::graph_nodes(graph, std::ptr::null_mut(), &raw mut count) != CUDA_SUCCESS {
        return Vec::new();
    }
    let mut nodes = vec![std::ptr::null_mut(); count];
    let result = driver::graph_nodes(graph, nodes.as_mut_ptr(), &raw mut count);
    nodes.truncate(if result == CUDA_SUCCESS { count } else { 0 });
    nodes
}
