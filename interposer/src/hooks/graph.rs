//! Graphs: an executable graph costs the sum of its nodes until its launches are measured, and is kept up to every change
//! that a program makes to it.
//!
//! Child graphs cost what their nodes do, conditional nodes all their bodies once: how often they run, and which, only the
//! measured time of the graph can say. A node that is disabled costs nothing. After a change what was measured holds in
//! proportion to the nodes' prices; a change that costs the same leaves it alone, since a program may make one before each
//! launch.

pub mod copies;

use std::collections::{HashMap, HashSet};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::lock::Lock;
use weir_core::price::{Book, Estimate, Kernels};
use weir_protocol::pages::GraphCount;

use super::copy_pieces::{Amounts, What};
use super::graph_memory;
use super::graph_nodes::{KernelNode, Kinds, Walk, nodes_of};
use super::{graph_device, graph_split};
use crate::guard::{after_success, guard};
use crate::link::Client;
use crate::thread;

/// What the nodes of executable graphs cost.
#[derive(Default)]
pub struct GraphPrices {
    execs: Lock<HashMap<u64, Nodes>>,
    bodies: Lock<HashMap<u64, Vec<u64>>>, // of conditional nodes
}

/// One executable graph. A program may change every node before each launch, so the sum is kept and not taken anew.
#[derive(Default)]
struct Nodes {
    estimate: Option<&'static Estimate>, // of its launches
    made_of: Vec<u64>, // the nodes of the graph that it was made of, in the driver's order: by these it is changed
    kernels: HashMap<u64, Kernel>,
    copies: HashMap<u64, Copying>,
    disabled: HashSet<u64>,
    sum_ns: u64,     // of the kernels that are not disabled
    told_ns: u64,    // the sum that its price goes by
    copied: Amounts, // by the copies that are not disabled
}

/// A kernel node.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// What it costs, in nanoseconds.
    pub ns: u64,
    /// The node of the graph itself that it is, or is inside of.
    pub within: u64,
    /// What is known of its cost.
    pub estimate: &'static Estimate,
}

/// A copy or memset node.
#[derive(Clone, Copy)]
pub struct Copying {
    /// What it copies.
    pub amounts: Amounts,
    /// As a kernel's.
    pub within: u64,
}

/// A graph was made executable: `exec` is read once the driver has written it.
pub fn instantiate(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    after_success(call, |client| {
        if !exec.is_null() {
            // SAFETY: the driver has just written it.
            let exec = unsafe { *exec };
            client.graphs.forget(exec.addr() as u64); // of a context that went with all its graphs
            let kinds = client.graphs.enter(client, exec, graph);
            graph_memory::look_at(client, exec);
            graph_device::note(client, flags);
            note_waits(client, kinds);
            graph_split::watch(client, exec, graph, flags, kinds);
        }
    })
}

/// Counts a graph that waits inside: it is charged from its begin to its end, though none of its kernels may run meanwhile.
fn note_waits(client: &'static Client, kinds: Kinds) {
    const WAITS: [CUgraphNodeType; 4] = [
        CU_GRAPH_NODE_TYPE_HOST,
        CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
        CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
    ];
    if kinds.has(&WAITS) {
        graph_device::count(client, GraphCount::Waits, 1);
    }
}

/// The flags of an instantiation with parameters.
pub fn flags_of(params: *const CUDA_GRAPH_INSTANTIATE_PARAMS) -> u64 {
    // SAFETY: the caller passes parameters or null; the driver reads the same fields.
    unsafe { params.as_ref() }.map_or(0, |params| params.flags)
}

/// An executable graph took over another graph's parameters.
pub fn update(exec: CUgraphExec, graph: CUgraph, call: impl FnOnce() -> CUresult) -> CUresult {
    after_success(call, |client| {
        client.graphs.enter(client, exec, graph);
        graph_split::updated(client, exec);
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
        client.graphs.change(client, exec, |nodes| {
            let node = node.addr() as u64;
            if params.is_collective(client) {
                client.book.graph(exec.addr() as u64).set_collective(true);
            }
            if let Some(estimate) = params.estimate(client) {
                let within = nodes.take(node).map_or(node, |before| before.within);
                nodes.put(node, Kernel { ns: estimate.price().unsigned_abs(), within, estimate });
            }
        });
        graph_split::updated(client, exec);
    })
}

/// A child graph inside of an executable graph took over another graph's parameters.
pub fn set_child(
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    after_success(call, |client| {
        client.graphs.change(client, exec, |nodes| {
            let node = node.addr() as u64;
            let inside = nodes.kernels.iter().filter(|(_, kernel)| kernel.within == node);
            let inside: Vec<u64> = inside.map(|(kernel, _)| *kernel).collect();
            for kernel in inside {
                nodes.take(kernel);
            }
            let inside = nodes.copies.iter().filter(|(_, copying)| copying.within == node);
            let inside: Vec<u64> = inside.map(|(copying, _)| *copying).collect();
            for copying in inside {
                nodes.take_copy(copying);
            }
            let walk = Walk::within(client, child, node);
            walk.kernels.into_iter().for_each(|(kernel, price)| nodes.put(kernel, price));
            walk.copies.into_iter().for_each(|(node, copying)| nodes.put_copy(node, copying));
        });
        graph_split::updated(client, exec);
    })
}

/// A node of an executable graph got other parameters, of whatever kind it is.
pub fn set_any(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUgraphNodeParams,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: the caller passes parameters or null; the driver reads the same fields.
    match unsafe { params.as_ref() } {
        Some(params) if params.kind == CU_GRAPH_NODE_TYPE_KERNEL => {
            // The kind says that this member is set; later layouts only add to its end.
            set_node(exec, node, KernelNode::v2(&raw const params.node.kernel), call)
        }
        Some(params) if params.kind == CU_GRAPH_NODE_TYPE_GRAPH => {
            // SAFETY: the kind says that this member is set.
            set_child(exec, node, unsafe { params.node.graph }, call)
        }
        // SAFETY: the kind says that this member is set.
        Some(params) if params.kind == CU_GRAPH_NODE_TYPE_MEMCPY => unsafe {
            set_memcpy(exec, node, &raw const params.node.memcpy.copy_params, call)
        },
        // SAFETY: the kind says that this member is set.
        Some(params) if params.kind == CU_GRAPH_NODE_TYPE_MEMSET => unsafe {
            set_memset(exec, node, &raw const params.node.memset.memset, call)
        },
        _ => changed(exec, call),
    }
}

/// A copy node of an executable graph got other parameters.
pub fn set_memcpy(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_MEMCPY3D,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    set_copy(exec, node, What::Solid(params), call)
}

/// A memset node of an executable graph got other parameters.
pub fn set_memset(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_MEMSET_NODE_PARAMS,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: the caller passes parameters or null; the driver reads the same fields.
    match unsafe { params.as_ref() } {
        Some(params) => set_copy(exec, node, What::of_fill_node(params), call),
        None => changed(exec, call),
    }
}

fn set_copy(exec: CUgraphExec, node: CUgraphNode, what: What, call: impl FnOnce() -> CUresult) -> CUresult {
    after_success(call, |client| {
        let amounts = what.amounts(client.gpus.len() > 1);
        client.graphs.change(client, exec, |nodes| {
            let node = node.addr() as u64;
            let within = nodes.take_copy(node).map_or(node, |before| before.within);
            nodes.put_copy(node, Copying { amounts, within });
        });
        graph_split::updated(client, exec);
    })
}

/// A node of an executable graph that takes no SM time was changed.
pub fn changed(exec: CUgraphExec, call: impl FnOnce() -> CUresult) -> CUresult {
    after_success(call, |client| graph_split::updated(client, exec))
}

/// A node of an executable graph was enabled or disabled.
pub fn enable(
    exec: CUgraphExec,
    node: CUgraphNode,
    enabled: bool,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    after_success(call, |client| {
        client.graphs.change(client, exec, |nodes| {
            let node = node.addr() as u64;
            let (kernel, copying) = (nodes.take(node), nodes.take_copy(node)); // what can be disabled has nothing inside
            if enabled {
                nodes.disabled.remove(&node);
            } else {
                nodes.disabled.insert(node);
            }
            kernel.into_iter().for_each(|kernel| nodes.put(node, kernel));
            copying.into_iter().for_each(|copying| nodes.put_copy(node, copying));
        });
        graph_split::updated(client, exec);
    })
}

/// A node was added to a graph: the bodies of a conditional one are told here and nowhere else.
pub fn add_node(
    node: *mut CUgraphNode,
    params: *const CUgraphNodeParams,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: the caller passes parameters or null; the driver reads the same fields.
    let conditional = unsafe { params.as_ref() }.is_some_and(|p| p.kind == CU_GRAPH_NODE_TYPE_CONDITIONAL);
    if !conditional {
        return call();
    }
    after_success(call, |client| {
        // SAFETY: the driver has just written both; the kind says which member is set.
        let (node, conditional) = unsafe { (node.as_ref(), (*params).node.conditional) };
        if let (Some(node), false) = (node, conditional.bodies.is_null()) {
            // SAFETY: the driver's own array of so many graphs, which lives as long as the node.
            let bodies = unsafe { std::slice::from_raw_parts(conditional.bodies, conditional.size as usize) };
            let bodies = bodies.iter().map(|graph| graph.expose_provenance() as u64).collect();
            client.graphs.bodies.lock().insert(node.addr() as u64, bodies);
        }
    })
}

/// An executable graph is gone.
pub fn destroy(exec: CUgraphExec, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| {
            client.graphs.forget(exec.addr() as u64);
            let segments = graph_split::forget(client, exec);
            Ok((client.graph_memory.forget(exec), segments))
        },
        call,
        |client, (needs, segments), _| {
            drop(segments);
            if let Some(needs) = needs {
                graph_memory::look(client, &needs);
            }
        },
    )
}

impl GraphPrices {
    /// Prices all nodes of `graph` and, by their sum, `exec`; says what kinds of nodes there are.
    fn enter(&self, client: &Client, exec: CUgraphExec, graph: CUgraph) -> Kinds {
        let (key, own) = (exec.addr() as u64, nodes_of(graph));
        let before = self.execs.lock().remove(&key);
        let first = before.is_none();
        let before = before.unwrap_or_default();
        let mut walk = Walk::of(client, graph, &own, &before.made_of);
        client.graph_memory.enter(exec, &mut walk.memory);
        let mut execs = self.execs.lock();
        let (estimate, in_row) = (client.book.graph(key), walk.is_row_of_kernels());
        let own_estimate = Some(estimate).filter(|estimate| !Book::is_beyond(estimate));
        own_estimate.into_iter().for_each(|estimate| estimate.kernels().lock().restart());
        let mut nodes = Nodes {
            estimate: own_estimate,
            made_of: if first { own.iter().map(|node| node.addr() as u64).collect() } else { before.made_of },
            disabled: before.disabled,
            told_ns: before.told_ns,
            ..Nodes::default()
        };
        let weight = walk.weight();
        walk.kernels.into_iter().for_each(|(node, kernel)| nodes.put(node, kernel));
        walk.copies.into_iter().for_each(|(node, copying)| nodes.put_copy(node, copying));
        copies::tell(key, &nodes.copied);
        if first {
            nodes.told_ns = nodes.sum_ns;
            client.book.set_graph(key, nodes.sum_ns, walk.collective);
        } else {
            nodes.tell(client, key);
        }
        nodes.set_in_row(in_row);
        own_estimate.into_iter().for_each(|estimate| estimate.weigh(weight, weight[0]));
        execs.insert(key, nodes);
        walk.kinds
    }

    fn change(&self, client: &Client, exec: CUgraphExec, change: impl FnOnce(&mut Nodes)) {
        let key = exec.addr() as u64;
        let mut execs = self.execs.lock();
        let nodes = execs.entry(key).or_default();
        nodes.set_in_row(false); // what was measured of it before tells nothing of these kernels
        change(nodes);
        nodes.tell(client, key);
        copies::tell(key, &nodes.copied);
    }

    fn forget(&self, exec: u64) {
        let mut execs = self.execs.lock();
        execs.remove(&exec);
        copies::forget(exec);
    }

    /// The bodies of a conditional node, if it was made where we could see it.
    pub fn bodies(&self, node: CUgraphNode) -> Vec<u64> {
        self.bodies.lock().get(&(node.addr() as u64)).cloned().unwrap_or_default()
    }
}

impl Nodes {
    /// What a kernel counts for.
    fn part_ns(&self, kernel: &Kernel) -> u64 {
        if self.disabled.contains(&kernel.within) { 0 } else { kernel.ns }
    }

    fn put(&mut self, node: u64, kernel: Kernel) {
        self.sum_ns = self.sum_ns.saturating_add(self.part_ns(&kernel));
        self.tell_kernel(&kernel, Kernels::add);
        self.kernels.insert(node, kernel);
    }

    fn take(&mut self, node: u64) -> Option<Kernel> {
        let kernel = self.kernels.remove(&node)?;
        self.sum_ns = self.sum_ns.saturating_sub(self.part_ns(&kernel));
        self.tell_kernel(&kernel, Kernels::remove);
        Some(kernel)
    }

    fn set_in_row(&self, in_row: bool) {
        self.estimate.into_iter().for_each(|estimate| estimate.kernels().lock().set_in_row(in_row));
    }

    /// A kernel that is not disabled came, or went.
    fn tell_kernel(&self, kernel: &Kernel, change: impl FnOnce(&mut Kernels, &'static Estimate)) {
        if let Some(estimate) = self.estimate.filter(|_| !self.disabled.contains(&kernel.within)) {
            change(&mut estimate.kernels().lock(), kernel.estimate);
        }
    }

    fn put_copy(&mut self, node: u64, copying: Copying) {
        if !self.disabled.contains(&copying.within) {
            self.copied = self.copied.plus(&copying.amounts);
        }
        self.copies.insert(node, copying);
    }

    fn take_copy(&mut self, node: u64) -> Option<Copying> {
        let copying = self.copies.remove(&node)?;
        if !self.disabled.contains(&copying.within) {
            self.copied = self.copied.less(&copying.amounts);
        }
        Some(copying)
    }

    fn tell(&mut self, client: &Client, exec: u64) {
        if self.sum_ns != self.told_ns {
            client.book.change_graph(exec, self.told_ns, self.sum_ns);
            // Launches that no mark stands behind yet had the old price.
            thread::with(|thread| thread.cache.disturb());
            self.told_ns = self.sum_ns;
        }
    }
}
