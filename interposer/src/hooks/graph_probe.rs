//! A copy of a graph that tells for how long one launch of it had something running: with timing events as nodes of it, behind
//! each pause and behind the work between them (`weir_core::pauses`).
//!
//! What pauses is a host function, a wait for somebody else, and a copy by an engine: none of it takes any time of the SMs.
//! Only nodes and edges are added, and to the copy alone, so that it does whatever the graph does, in the same order.

use std::collections::{BTreeMap, HashMap};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::pauses::{self, Pauses};

use super::graph_nodes::{Walk, edges_of, nodes_of};
use super::graph_segments::{Event, Exec, Graph};
use crate::driver::{self, Relaxed, Stream};
use crate::link::Client;

/// Graphs inside graphs are followed so deep.
const DEPTH: u32 = 8;

/// Nodes of a graph that is copied at most, with those inside: beyond it that takes too long.
const MOST_NODES: usize = 20_000;

/// Kinds of nodes during which nothing of the program has to run.
pub const PAUSES: [CUgraphNodeType; 4] = [
    CU_GRAPH_NODE_TYPE_HOST,
    CU_GRAPH_NODE_TYPE_WAIT_EVENT,
    CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
    CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
];

/// The copy, ready to be launched.
pub struct Probe {
    exec: Exec, // ended before the graph by whose nodes it is changed
    _graph: Graph,
    nodes: Vec<u64>,    // those of the program's own graph, in the driver's order; 0: unknown
    events: Vec<Event>, // the first is reached when a launch begins
    times: Vec<Time>,
}

/// The work between some pauses, by places in the events.
struct Time {
    behind: Vec<usize>,
    ends: Vec<usize>,
}

/// What a launch says.
pub enum Told {
    /// It is under way.
    Nothing,
    /// So long something ran, ns.
    Ran(f64),
    /// Times that cannot be one launch's.
    Nonsense,
    /// Its context is gone, or broken.
    Lost,
}

/// A graph as it was found.
struct Found {
    graph: CUgraph,
    nodes: Vec<CUgraphNode>,
    edges: Vec<(usize, usize)>,
    inside: Vec<Pauses>, // by node: which pause it is, or those inside
    children: Vec<(usize, Found)>,
}

impl Probe {
    /// Of a program's graph; `flags` are those to be instantiated with. `None`: nothing in it pauses, there is too much of it,
    /// or the driver refuses.
    pub fn of(client: &Client, original: CUgraph, flags: u64) -> Option<Self> {
        let graph = Graph::copy_of(original)?;
        let copied = |node| graph.node(node).map_or(0, |node| node.expose_provenance() as u64);
        let nodes = nodes_of(original).into_iter().map(copied).collect();
        let mut survey = Survey { client, pauses: Vec::new(), seen: 0 };
        let found = survey.look(graph.raw(), DEPTH)?;
        let pauses = survey.pauses;
        if pauses.is_empty() {
            return None;
        }
        let mut events = Events::default();
        events.add(found.graph, &[])?;
        let behind = pauses.iter().map(|(graph, node)| events.add(*graph, &[*node]));
        let behind = behind.collect::<Option<Vec<_>>>()?;
        let mut ends = BTreeMap::new();
        found.end(0, &mut events, &mut ends)?;
        let behind_all = |past: Pauses| {
            let each = behind.iter().enumerate().filter(|(bit, _)| past >> bit & 1 != 0);
            each.map(|(_, event)| *event).collect()
        };
        let times = ends.into_iter().map(|(past, ends)| Time { behind: behind_all(past), ends }).collect();
        let exec = Exec::of(&graph, flags)?;
        Some(Self { exec, _graph: graph, nodes, events: events.0, times })
    }

    /// As the driver knows it.
    pub fn raw(&self) -> CUgraphExec {
        self.exec.raw()
    }

    /// Changes the node that is at this place in the program's own graph; whether the driver did.
    pub fn change(&self, place: usize, change: impl FnOnce(CUgraphExec, CUgraphNode) -> CUresult) -> bool {
        let node = self.nodes.get(place).copied().filter(|node| *node != 0);
        node.is_some_and(|node| change(self.raw(), driver::handle(node)) == CUDA_SUCCESS)
    }

    /// Lets what comes behind in a stream wait until the last launch is done.
    pub fn goes_before(&self, stream: Stream) {
        for event in &self.events {
            stream.wait_for(event.raw());
        }
    }

    /// What its last launch says.
    pub fn told(&self) -> Told {
        let _relaxed = Relaxed::enter();
        let Some(begin) = self.events.first() else { return Told::Lost };
        for event in &self.events {
            match driver::event_query(event.raw()) {
                CUDA_SUCCESS => {}
                CUDA_ERROR_NOT_READY => return Told::Nothing,
                _ => return Told::Lost,
            }
        }
        let Some(at) = self.events.iter().map(|event| since(begin, event)).collect::<Option<Vec<_>>>() else {
            return Told::Nonsense;
        };
        let last =
            |places: &[usize]| places.iter().filter_map(|place| at.get(*place)).fold(0.0, |a, b| b.max(a));
        let times = self.times.iter().map(|time| (last(&time.behind), last(&time.ends))).collect();
        pauses::ran(times).map_or(Told::Nonsense, Told::Ran)
    }

    /// Leaves everything to the driver, whose context is gone.
    pub fn abandon(self) {
        std::mem::forget(self);
    }
}

/// Nanoseconds from one event to another.
fn since(begin: &Event, event: &Event) -> Option<f64> {
    let mut milliseconds = 0.0;
    let result = driver::event_elapsed(&raw mut milliseconds, begin.raw(), event.raw());
    (result == CUDA_SUCCESS && milliseconds.is_finite()).then(|| f64::from(milliseconds) * 1e6)
}

/// A walk through a graph and those inside, for what pauses in it.
struct Survey<'a> {
    client: &'a Client,
    pauses: Vec<(CUgraph, CUgraphNode)>,
    seen: usize,
}

impl Survey<'_> {
    fn look(&mut self, graph: CUgraph, depth: u32) -> Option<Found> {
        let nodes = nodes_of(graph);
        self.seen = self.seen.saturating_add(nodes.len());
        if self.seen > MOST_NODES {
            return None;
        }
        let edges = edges_of(graph)?;
        let place: HashMap<_, _> = nodes.iter().enumerate().map(|(place, node)| (*node, place)).collect();
        let pair = |(from, to)| Some((*place.get(from)?, *place.get(to)?));
        let edges = edges.from.iter().zip(&edges.to).map(pair).collect::<Option<Vec<_>>>()?;
        let (mut inside, mut children) = (Vec::with_capacity(nodes.len()), Vec::new());
        for (at, node) in nodes.iter().enumerate() {
            let mut kind: CUgraphNodeType = 0;
            if driver::node_type(*node, &raw mut kind) != CUDA_SUCCESS {
                return None;
            }
            inside.push(match kind {
                CU_GRAPH_NODE_TYPE_GRAPH => {
                    let child = self.child(*node, depth)?;
                    let pauses = child.inside.iter().fold(0, |all, one| all | one);
                    // One in which nothing pauses is work like any other.
                    children.extend((pauses != 0).then_some((at, child)));
                    pauses
                }
                _ if PAUSES.contains(&kind) || self.is_by_engine(*node, kind) => self.pause(graph, *node)?,
                _ => 0,
            });
        }
        Some(Found { graph, nodes, edges, inside, children })
    }

    fn child(&mut self, node: CUgraphNode, depth: u32) -> Option<Found> {
        let mut child: CUgraph = std::ptr::null_mut();
        let told = depth > 0 && driver::child_graph(node, &raw mut child) == CUDA_SUCCESS;
        if told { self.look(child, depth - 1) } else { None }
    }

    fn pause(&mut self, graph: CUgraph, node: CUgraphNode) -> Option<Pauses> {
        let bit = u32::try_from(self.pauses.len()).ok().filter(|bit| *bit < pauses::MOST)?;
        self.pauses.push((graph, node));
        Some(1 << bit)
    }

    fn is_by_engine(&self, node: CUgraphNode, kind: CUgraphNodeType) -> bool {
        let copies = || Walk::at(self.client, node).copies;
        kind == CU_GRAPH_NODE_TYPE_MEMCPY
            && copies().values().any(|copying| copying.amounts.on_engines().next().is_some())
    }
}

impl Found {
    /// Puts events behind the work of each past, here and in the graphs inside.
    fn end(&self, past: Pauses, events: &mut Events, ends: &mut BTreeMap<Pauses, Vec<usize>>) -> Option<()> {
        let pasts = pauses::pasts(&self.inside, &self.edges, past)?;
        for (past, last) in pauses::ends(&self.inside, &self.edges, &pasts) {
            let last: Vec<_> = last.iter().filter_map(|at| self.nodes.get(*at).copied()).collect();
            ends.entry(past).or_default().push(events.add(self.graph, &last)?);
        }
        self.children.iter().try_for_each(|(at, child)| child.end(*pasts.get(*at)?, events, ends))
    }
}

/// The events that were put so far.
#[derive(Default)]
struct Events(Vec<Event>);

impl Events {
    /// One more, behind these nodes of a graph; its place. Nothing waits for it: of a node that did, the begin might come late
    /// after the stamp, where the launch has found the stream idle (gpu-truths, rule 5).
    fn add(&mut self, graph: CUgraph, behind: &[CUgraphNode]) -> Option<usize> {
        let (event, mut node): (_, CUgraphNode) = (Event::timed()?, std::ptr::null_mut());
        let first = if behind.is_empty() { std::ptr::null() } else { behind.as_ptr() };
        let added = driver::record_node(&raw mut node, graph, first, behind.len(), event.raw());
        (added == CUDA_SUCCESS).then(|| {
            self.0.push(event);
            self.0.len() - 1
        })
    }
}
