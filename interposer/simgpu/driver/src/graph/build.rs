//! The driver calls that build graphs and ask for their shape.

use std::ffi::*;

use weir_abi::types::*;

use super::check::is_exclusive;
use super::{Graph, Node, create, destroy, nodes, of, place_of};
use crate::api::Driver;
use crate::edge::{Answer, get, list, put, put_list};
use crate::work::Work;
use crate::{event, locked};

/// The nodes that a new one comes after.
#[derive(Clone, Copy)]
struct After(*const CUgraphNode, usize);

fn add(out: *mut CUgraphNode, graph: CUgraph, after: After, work: Work) -> Answer {
    let graph = of(graph)?;
    let after = graph.places(list(after.0, after.1)?)?;
    put(out, graph.node_handle(graph.add(work, after))?)
}

fn handles(graph: &'static Graph, places: &[usize]) -> Answer<Vec<CUgraphNode>> {
    places.iter().map(|place| graph.node_handle(*place)).collect()
}

fn put_neighbours(node: CUgraphNode, out: *mut CUgraphNode, count: *mut usize, followers: bool) -> Answer {
    let at = place_of(node)?;
    let edge = |(before, after): (usize, usize)| match followers {
        true => (before == at.place).then_some(after),
        false => (after == at.place).then_some(before),
    };
    let places: Vec<usize> = at.graph.edges().into_iter().filter_map(edge).collect();
    put_list(out, count, &handles(at.graph, &places)?)
}

fn put_edges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) -> Answer {
    let graph = of(graph)?;
    let (befores, afters): (Vec<usize>, Vec<usize>) = graph.edges().into_iter().unzip();
    if from.is_null() || to.is_null() {
        return put(count, befores.len());
    }
    let room = get(count.cast_const())?;
    put_list(from, count, &handles(graph, &befores)?)?;
    put(count, room)?;
    put_list(to, count, &handles(graph, &afters)?)
}

/// Adds or removes edges between pairs of nodes.
fn change_edges(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
    present: bool,
) -> Answer {
    let graph = of(graph)?;
    let (befores, afters) = (graph.places(list(from, count)?)?, graph.places(list(to, count)?)?);
    let mut nodes = locked(&graph.nodes);
    for (before, after) in befores.into_iter().zip(afters) {
        let node = nodes.get_mut(after).and_then(Option::as_mut).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if node.after.contains(&before) == present {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        node.after.retain(|other| *other != before);
        node.after.extend(present.then_some(before));
    }
    Ok(())
}

impl Driver {
    pub fn cuGraphCreate(out: *mut CUgraph, _flags: c_uint) -> Answer {
        put(out, create()?.handle.raw())
    }

    pub fn cuGraphDestroy(graph: CUgraph) -> Answer {
        destroy(of(graph)?)
    }

    pub fn cuGraphClone(out: *mut CUgraph, graph: CUgraph) -> Answer {
        let graph = of(graph)?;
        if graph.holds(is_exclusive) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, graph.duplicate()?.handle.raw())
    }

    pub fn cuGraphNodeFindInClone(out: *mut CUgraphNode, node: CUgraphNode, clone: CUgraph) -> Answer {
        put(out, of(clone)?.node_handle(place_of(node)?.place)?)
    }

    pub fn cuGraphAddKernelNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        node: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> Answer {
        add(out, graph, After(after, count), nodes::older_kernel(&get(node)?)?)
    }

    pub fn cuGraphAddKernelNode_v2(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        node: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> Answer {
        add(out, graph, After(after, count), nodes::kernel(&get(node)?)?)
    }

    pub fn cuGraphAddMemcpyNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        node: *const CUDA_MEMCPY3D,
        _context: CUcontext,
    ) -> Answer {
        add(out, graph, After(after, count), nodes::copy(&get(node)?)?)
    }

    pub fn cuGraphAddMemsetNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        node: *const CUDA_MEMSET_NODE_PARAMS,
        _context: CUcontext,
    ) -> Answer {
        add(out, graph, After(after, count), nodes::fill(&get(node)?)?)
    }

    pub fn cuGraphAddHostNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        node: *const CUDA_HOST_NODE_PARAMS,
    ) -> Answer {
        add(out, graph, After(after, count), nodes::host(&get(node)?)?)
    }

    pub fn cuGraphAddBatchMemOpNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        node: *const c_void,
    ) -> Answer {
        add(out, graph, After(after, count), nodes::batch(node)?)
    }

    pub fn cuGraphAddChildGraphNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        child: CUgraph,
    ) -> Answer {
        add(out, graph, After(after, count), nodes::child(of(child)?)?)
    }

    pub fn cuGraphAddEmptyNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
    ) -> Answer {
        add(out, graph, After(after, count), Work::Empty)
    }

    pub fn cuGraphAddEventRecordNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) -> Answer {
        add(out, graph, After(after, count), Work::Record(event::of(event)?))
    }

    pub fn cuGraphAddEventWaitNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) -> Answer {
        add(out, graph, After(after, count), Work::Wait(event::of(event)?))
    }

    pub fn cuGraphAddMemAllocNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        node: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> Answer {
        let mut params = get(node.cast_const())?;
        add(out, graph, After(after, count), nodes::alloc(&mut params)?)?;
        put(node, params)
    }

    pub fn cuGraphAddMemFreeNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        address: CUdeviceptr,
    ) -> Answer {
        add(out, graph, After(after, count), Work::Free { address })
    }

    pub fn cuGraphAddNode(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        node: *mut CUgraphNodeParams,
    ) -> Answer {
        let mut params = get(node.cast_const())?;
        add(out, graph, After(after, count), nodes::any(&mut params)?)?;
        put(node, params)
    }

    pub fn cuGraphAddNode_v2(
        out: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        _edges: *const CUgraphEdgeData,
        count: usize,
        node: *mut CUgraphNodeParams,
    ) -> Answer {
        Self::cuGraphAddNode(out, graph, after, count, node)
    }

    pub fn cuGraphDestroyNode(node: CUgraphNode) -> Answer {
        let at = place_of(node)?;
        let mut nodes = locked(&at.graph.nodes);
        nodes.iter_mut().flatten().for_each(|node| node.after.retain(|before| *before != at.place));
        let gone = nodes[at.place].take();
        drop(nodes);
        gone.map_or(Ok(()), Node::end)
    }

    pub fn cuGraphGetNodes(graph: CUgraph, out: *mut CUgraphNode, count: *mut usize) -> Answer {
        let graph = of(graph)?;
        put_list(out, count, &handles(graph, &graph.all())?)
    }

    pub fn cuGraphGetRootNodes(graph: CUgraph, out: *mut CUgraphNode, count: *mut usize) -> Answer {
        let graph = of(graph)?;
        let edges = graph.edges();
        let roots: Vec<usize> =
            graph.all().into_iter().filter(|place| edges.iter().all(|edge| edge.1 != *place)).collect();
        put_list(out, count, &handles(graph, &roots)?)
    }

    pub fn cuGraphGetEdges(
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        count: *mut usize,
    ) -> Answer {
        put_edges(graph, from, to, count)
    }

    pub fn cuGraphGetEdges_v2(
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        data: *mut CUgraphEdgeData,
        count: *mut usize,
    ) -> Answer {
        put_edges(graph, from, to, count)?;
        let edges = if data.is_null() { 0 } else { get(count.cast_const())? };
        (0..edges).try_for_each(|edge| put(data.wrapping_add(edge), CUgraphEdgeData::default()))
    }

    pub fn cuGraphNodeGetDependencies(node: CUgraphNode, out: *mut CUgraphNode, count: *mut usize) -> Answer {
        put_neighbours(node, out, count, false)
    }

    pub fn cuGraphNodeGetDependentNodes(
        node: CUgraphNode,
        out: *mut CUgraphNode,
        count: *mut usize,
    ) -> Answer {
        put_neighbours(node, out, count, true)
    }

    pub fn cuGraphAddDependencies(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        count: usize,
    ) -> Answer {
        change_edges(graph, from, to, count, true)
    }

    pub fn cuGraphAddDependencies_v2(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        _data: *const CUgraphEdgeData,
        count: usize,
    ) -> Answer {
        change_edges(graph, from, to, count, true)
    }

    pub fn cuGraphRemoveDependencies(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        count: usize,
    ) -> Answer {
        change_edges(graph, from, to, count, false)
    }

    pub fn cuGraphRemoveDependencies_v2(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        _data: *const CUgraphEdgeData,
        count: usize,
    ) -> Answer {
        change_edges(graph, from, to, count, false)
    }
}
