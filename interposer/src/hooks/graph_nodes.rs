//! The nodes of a graph, as the driver tells them: what each kernel costs, what memory they take, what kinds there are.

use std::collections::HashMap;

use weir_abi::types::*;
use weir_core::overlap::Moments;
use weir_core::price::{Estimate, Signature};

use super::copy_pieces::What;
use super::graph::{Copying, Kernel};
use super::graph_memory::Needs;
use super::{launch, names};
use crate::driver;
use crate::link::Client;

/// Graphs inside graphs are followed so deep.
const DEPTH: u32 = 8;

/// Which kinds of nodes a graph has, with those of the graphs inside: one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// One kind.
    pub const fn of(kind: CUgraphNodeType) -> Self {
        Self(1 << (kind & 31))
    }

    /// Whether there is any of `others`.
    pub fn has(self, others: &[CUgraphNodeType]) -> bool {
        others.iter().any(|kind| self.0 & Self::of(*kind).0 != 0)
    }

    fn add(&mut self, other: Self) {
        *self = self.and(other);
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
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

    /// What is known of its cost.
    pub fn estimate(&self, client: &Client) -> Option<&'static Estimate> {
        let signature = self.0.as_ref()?;
        names::ensure(client, signature.handle);
        Some(client.book.kernel(signature))
    }

    /// Whether it runs until other ranks have launched theirs.
    pub fn is_collective(&self, client: &Client) -> bool {
        self.0.as_ref().is_some_and(|signature| client.book.is_collective(signature.handle))
    }
}

/// A walk through all nodes of a graph.
pub struct Walk<'a> {
    client: &'a Client,
    /// The kernels by their nodes.
    pub kernels: HashMap<u64, Kernel>,
    /// The copies and memsets by theirs.
    pub copies: HashMap<u64, Copying>,
    /// What memory nodes take.
    pub memory: Needs,
    /// What kinds of nodes there are.
    pub kinds: Kinds,
    /// Whether a kernel waits for other ranks.
    pub collective: bool,
    /// Whether in each graph inside of it one node waits for the other.
    pub in_row: bool,
    widest: f64,
}

impl<'a> Walk<'a> {
    /// Through a graph of these nodes, which are known by the names in `names` where there are so many: an executable graph
    /// that took over another's parameters is still changed by the nodes of the graph that it was made of.
    pub fn of(client: &'a Client, graph: CUgraph, nodes: &[CUgraphNode], names: &[u64]) -> Self {
        let mut walk = Self::new(client);
        walk.in_row = are_in_row(graph, nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            let name = names.get(at).copied().unwrap_or(node.addr() as u64);
            walk.visit(*node, name, name, DEPTH);
        }
        walk
    }

    /// Through a graph that is the inside of a node.
    pub fn within(client: &'a Client, graph: CUgraph, node: u64) -> Self {
        let mut walk = Self::new(client);
        walk.through(graph, node, DEPTH);
        walk
    }

    /// At one node alone.
    pub fn at(client: &'a Client, node: CUgraphNode) -> Self {
        let mut walk = Self::new(client);
        let name = node.addr() as u64;
        walk.visit(node, name, name, DEPTH);
        walk
    }

    fn new(client: &'a Client) -> Self {
        Self {
            client,
            kernels: HashMap::new(),
            copies: HashMap::new(),
            memory: Needs::default(),
            kinds: Kinds::default(),
            collective: false,
            in_row: true,
            widest: 0.0,
        }
    }

    fn through(&mut self, graph: CUgraph, within: u64, depth: u32) {
        let nodes = nodes_of(graph);
        self.in_row &= are_in_row(graph, nodes.len());
        for node in nodes {
            self.visit(node, node.addr() as u64, within, depth);
        }
    }

    fn visit(&mut self, node: CUgraphNode, name: u64, within: u64, depth: u32) {
        let mut kind: CUgraphNodeType = 0;
        if driver::node_type(node, &raw mut kind) != CUDA_SUCCESS {
            return;
        }
        self.kinds.add(Kinds::of(kind));
        match kind {
            CU_GRAPH_NODE_TYPE_KERNEL => {
                let kernel = KernelNode::of(node);
                self.in_row &= kernel.0.is_some();
                if let Some(estimate) = kernel.estimate(self.client) {
                    let ns = estimate.price().unsigned_abs();
                    self.kernels.insert(name, Kernel { ns, within, estimate });
                    self.widest = self.widest.max(estimate.weight()[0]);
                    self.collective |= kernel.is_collective(self.client);
                }
            }
            CU_GRAPH_NODE_TYPE_MEMCPY => {
                // SAFETY: all-zero is a valid value of this plain structure.
                let mut params: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
                if driver::copy_node(node, &raw mut params) == CUDA_SUCCESS {
                    self.copies(name, within, What::Solid(&raw const params));
                }
            }
            CU_GRAPH_NODE_TYPE_MEMSET => {
                // SAFETY: as above.
                let mut params: CUDA_MEMSET_NODE_PARAMS = unsafe { std::mem::zeroed() };
                if driver::fill_node(node, &raw mut params) == CUDA_SUCCESS {
                    self.copies(name, within, What::of_fill_node(&params));
                }
            }
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => self.memory.takes(self.client, node),
            CU_GRAPH_NODE_TYPE_MEM_FREE => self.memory.gives(node),
            CU_GRAPH_NODE_TYPE_GRAPH if depth > 0 => {
                let mut child: CUgraph = std::ptr::null_mut();
                if driver::child_graph(node, &raw mut child) == CUDA_SUCCESS {
                    self.through(child, within, depth - 1);
                }
            }
            CU_GRAPH_NODE_TYPE_CONDITIONAL if depth > 0 => {
                for body in self.client.graphs.bodies(node) {
                    self.through(driver::handle(body), within, depth - 1);
                }
            }
            CU_GRAPH_NODE_TYPE_GRAPH => self.in_row = false, // too deep: its kernels are not known
            _ => {}                                          // host functions and signals take no SM time
        }
    }

    fn copies(&mut self, name: u64, within: u64, what: What) {
        let amounts = what.amounts(self.client.gpus.len() > 1);
        self.copies.insert(name, Copying { amounts, within });
    }

    /// Part of the GPU that the kernels hold while nothing is known of some of them: the widest's.
    pub fn weight(&self) -> Moments {
        let widest = self.widest.max(0.001);
        [widest, widest * widest, widest * widest * widest]
    }

    /// Whether kernels run one after the other, and nothing else takes any time.
    pub fn is_row_of_kernels(&self) -> bool {
        const OTHERS: [CUgraphNodeType; 3] =
            [CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_GRAPH, CU_GRAPH_NODE_TYPE_EVENT_RECORD];
        let only = |kinds: Kinds| self.kinds.0 & !kinds.0 == 0;
        let quick = OTHERS.into_iter().map(Kinds::of).fold(Kinds::of(CU_GRAPH_NODE_TYPE_KERNEL), Kinds::and);
        self.in_row && !self.collective && only(quick)
    }

    /// What all kernels on the way cost, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.kernels.values().fold(0, |sum: u64, kernel| sum.saturating_add(kernel.ns))
    }
}

/// A graph's own nodes.
pub fn nodes_of(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    if driver::graph_nodes(graph, std::ptr::null_mut(), &raw mut count) != CUDA_SUCCESS {
        return Vec::new();
    }
    let mut nodes = vec![std::ptr::null_mut(); count];
    let result = driver::graph_nodes(graph, nodes.as_mut_ptr(), &raw mut count);
    nodes.truncate(if result == CUDA_SUCCESS { count } else { 0 });
    nodes
}

/// A graph's edges.
pub struct Edges {
    /// From which nodes.
    pub from: Vec<CUgraphNode>,
    /// To which.
    pub to: Vec<CUgraphNode>,
    /// Whether each waits for the whole of the node before it: programmatic ones do not (CUDA driver API, `CUgraphEdgeData`).
    plain: bool,
}

/// A graph's edges, if the driver tells them.
pub fn edges_of(graph: CUgraph) -> Option<Edges> {
    let none: CUgraphNode = std::ptr::null_mut();
    let (mut count, mut plain) = (ask_edges(graph, &mut [], &mut [], &mut [])?, true);
    let (mut from, mut to) = (vec![none; count], vec![none; count]);
    if count > 0 {
        let mut data = vec![CUgraphEdgeData::default(); count];
        count = ask_edges(graph, &mut from, &mut to, &mut data)?;
        plain = data.iter().take(count).all(|data| data.kind == 0);
    }
    from.truncate(count);
    to.truncate(count);
    Some(Edges { from, to, plain })
}

/// As many edges as there is room for; without room, how many there are.
fn ask_edges(
    graph: CUgraph,
    from: &mut [CUgraphNode],
    to: &mut [CUgraphNode],
    data: &mut [CUgraphEdgeData],
) -> Option<usize> {
    fn place<T>(room: &mut [T]) -> *mut T {
        if room.is_empty() { std::ptr::null_mut() } else { room.as_mut_ptr() }
    }
    let (mut count, from, to) = (from.len(), place(from), place(to));
    let mut result = driver::edges(graph, from, to, place(data), &raw mut count);
    if result == CUDA_ERROR_NOT_FOUND {
        result = driver::edges_v1(graph, from, to, &raw mut count);
    }
    (result == CUDA_SUCCESS).then_some(count)
}

/// Whether each of a graph's nodes waits for one and is waited for by one, but for the first and the last.
fn are_in_row(graph: CUgraph, nodes: usize) -> bool {
    let once = |mut ends: Vec<CUgraphNode>| {
        ends.sort_unstable();
        ends.is_sorted_by(|one, next| one != next)
    };
    let in_row = |Edges { from, to, plain }| plain && from.len() + 1 == nodes && once(from) && once(to);
    edges_of(graph).is_some_and(in_row)
}
