//! The segments of a split graph, by the driver's own means: copies of the graph from which the others' nodes are taken
//! out, so that each node keeps its parameters, attributes and neighbours.
//!
//! Copies are halved again and again, which takes a few calls for each node and halving. Segments cost host memory, and of
//! the device what the driver keeps for any executable graph.

use std::collections::HashMap;

use weir_abi::types::*;
use weir_core::cut::cut;

use super::graph_nodes::{Edges, Walk, edges_of, nodes_of};
use crate::driver;
use crate::link::Client;

/// A segment shall take no longer than this, in nanoseconds (gpu-truths, rule 10).
pub const MOST_NS: u64 = 500_000;

/// Nodes of a graph that is split, and segments that it is split into, at most: beyond it splitting takes too long.
const MOST_NODES: usize = 20_000;
const MOST_SEGMENTS: usize = 1_024;

/// What a copy or a fill is taken for where a graph is cut, in nanoseconds: a price of its own it does not have.
const COPY_NS: u64 = 5_000;

/// A graph of ours, ended when it is dropped.
pub struct Graph(u64);

/// An executable graph of ours.
pub struct Exec(u64);

/// An event of ours.
pub struct Event(u64);

/// One segment.
pub struct Segment {
    /// What is launched.
    pub exec: Exec,
    /// What it was made of, until it is known not to be too heavy.
    pub graph: Option<Graph>,
}

/// Why a graph is not split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// One node has all the weight, or there are too many nodes.
    Indivisible,
    /// The driver said no.
    Refused,
}

impl Graph {
    /// A copy of a graph, if the driver makes one.
    pub fn copy_of(graph: CUgraph) -> Option<Self> {
        let mut copy: CUgraph = std::ptr::null_mut();
        let made = driver::clone_graph(&raw mut copy, graph) == CUDA_SUCCESS && !copy.is_null();
        made.then(|| Self(copy.expose_provenance() as u64))
    }

    /// As the driver knows it.
    pub fn raw(&self) -> CUgraph {
        driver::handle(self.0)
    }

    /// Splits it into segments, for a graph that takes `price_ns`; `flags` are those it was instantiated with.
    ///
    /// # Errors
    /// Why it stays whole.
    pub fn split(self, client: &Client, price_ns: u64, flags: u64) -> Result<Vec<Segment>, Whole> {
        let nodes = nodes_of(self.raw());
        if !(2..=MOST_NODES).contains(&nodes.len()) {
            return Err(Whole::Indivisible);
        }
        let weights = weights(client, &nodes, price_ns);
        let edges = self.edges(&nodes).ok_or(Whole::Refused)?;
        let pieces = cut(&weights, &edges, MOST_NS).ok_or(Whole::Refused)?;
        if !(2..=MOST_SEGMENTS).contains(&pieces.len()) {
            return Err(Whole::Indivisible);
        }
        let sum = |piece: &[usize]| piece.iter().filter_map(|node| weights.get(*node)).sum::<u64>();
        let expected: Vec<u64> = pieces.iter().map(|piece| sum(piece)).collect();
        let of = |piece: &[usize]| piece.iter().filter_map(|node| nodes.get(*node).copied()).collect();
        let pieces = pieces.iter().map(|piece| of(piece)).collect();
        let graphs = self.halve(pieces).ok_or(Whole::Refused)?;
        let segments = graphs.into_iter().zip(expected).map(|(graph, ns)| graph.ready(client, ns, flags));
        segments.collect::<Option<Vec<_>>>().ok_or(Whole::Refused)
    }

    /// Its edges, as places in `nodes`.
    fn edges(&self, nodes: &[CUgraphNode]) -> Option<Vec<(usize, usize)>> {
        let Edges { from, to, .. } = edges_of(self.raw())?;
        let place: HashMap<_, _> = nodes.iter().enumerate().map(|(place, node)| (*node, place)).collect();
        from.iter().zip(&to).map(|(a, b)| Some((*place.get(a)?, *place.get(b)?))).collect()
    }

    /// One graph for each piece of its nodes, in order.
    fn halve(self, mut pieces: Vec<Vec<CUgraphNode>>) -> Option<Vec<Self>> {
        if pieces.len() <= 1 {
            return Some(vec![self]);
        }
        let copy = Self::copy_of(self.raw())?;
        let mut behind = pieces.split_off(pieces.len() / 2);
        let here = pieces.iter().flatten();
        here.clone().try_for_each(|node| copy.node(*node).filter(|copied| ended(*copied)).map(drop))?;
        for node in behind.iter_mut().flatten() {
            let copied = copy.node(*node)?;
            if !ended(*node) {
                return None;
            }
            *node = copied;
        }
        let mut graphs = self.halve(pieces)?;
        graphs.extend(copy.halve(behind)?);
        Some(graphs)
    }

    /// What became of a node of the graph that it is a copy of.
    pub fn node(&self, original: CUgraphNode) -> Option<CUgraphNode> {
        let mut copy: CUgraphNode = std::ptr::null_mut();
        (driver::node_in_clone(&raw mut copy, original, self.raw()) == CUDA_SUCCESS).then_some(copy)
    }

    /// Makes it executable, at a first price.
    fn ready(self, client: &Client, expected_ns: u64, flags: u64) -> Option<Segment> {
        let exec = Exec::of(&self, flags)?;
        client.book.set_graph(exec.0, expected_ns, false); // no graph with a collective is split
        Some(Segment { exec, graph: Some(self) })
    }
}

fn ended(node: CUgraphNode) -> bool {
    driver::destroy_node(node) == CUDA_SUCCESS
}

/// What each node takes of `price_ns`, in proportion to what it is known or guessed to cost.
fn weights(client: &Client, nodes: &[CUgraphNode], price_ns: u64) -> Vec<u64> {
    let guess = |node: &CUgraphNode| {
        let walk = Walk::at(client, *node);
        let copies = walk.kinds.has(&[CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET]);
        walk.sum_ns() + if copies { COPY_NS } else { 0 }
    };
    let guesses: Vec<u64> = nodes.iter().map(guess).collect();
    let sum = guesses.iter().fold(0u64, |sum, ns| sum.saturating_add(*ns)).max(1);
    let share = |ns: u64| u128::from(ns) * u128::from(price_ns) / u128::from(sum);
    guesses.into_iter().map(|ns| u64::try_from(share(ns)).unwrap_or(u64::MAX)).collect()
}

impl Exec {
    /// Makes a graph executable.
    pub fn of(graph: &Graph, flags: u64) -> Option<Self> {
        let mut exec: CUgraphExec = std::ptr::null_mut();
        let made = driver::instantiate(&raw mut exec, graph.raw(), flags) == CUDA_SUCCESS;
        made.then(|| Self(exec.expose_provenance() as u64))
    }

    /// As the driver knows it.
    pub fn raw(&self) -> CUgraphExec {
        driver::handle(self.0)
    }

    /// As the price book knows it.
    pub fn key(&self) -> u64 {
        self.0
    }
}

impl Event {
    /// A new one in the thread's context.
    pub fn new() -> Option<Self> {
        let mut event: CUevent = std::ptr::null_mut();
        let made = driver::event_create(&raw mut event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
        made.then(|| Self(event.expose_provenance() as u64))
    }

    /// As the driver knows it.
    pub fn raw(&self) -> CUevent {
        driver::handle(self.0)
    }
}

// What is in flight of any of these is no matter: the driver frees it when that is done.

impl Drop for Graph {
    fn drop(&mut self) {
        driver::destroy_graph(self.raw());
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        driver::destroy_exec(self.raw());
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        driver::event_destroy(self.raw());
    }
}
