//! Graphs: nodes of work with an order between them, made by hand or by capture.

mod build;
mod check;
mod condition;
mod exec;
mod nodes;
mod params;
mod plan;
mod run;
mod user_object;

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use weir_abi::types::*;

pub use condition::{Conditional, Sets, Setting};

use crate::edge::Answer;
use crate::kept_attributes::Kept;
use crate::locked;
use crate::registry::{Handle, Registry};
use crate::work::Work;
use user_object::Held;

static GRAPHS: Registry<Graph> = Registry::new(12, CUDA_ERROR_INVALID_VALUE);
static NODES: Registry<Place> = Registry::new(13, CUDA_ERROR_INVALID_VALUE);

/// A graph. Nodes keep their places: one that is destroyed leaves a gap.
pub struct Graph {
    /// Its handle.
    pub handle: Handle,
    nodes: Mutex<Vec<Option<Node>>>,
    objects: Mutex<Vec<Held>>,
    /// An executable graph has been made of it, the one that there may be.
    instantiated: AtomicBool,
}

/// A node: its work, and the places of those that come before.
#[derive(Clone)]
struct Node {
    handle: Option<Handle>,
    work: Work,
    after: Vec<usize>,
    kept: Kept,
}

/// What a node's handle stands for.
struct Place {
    graph: &'static Graph,
    place: usize,
}

/// An empty graph.
pub fn create() -> Answer<&'static Graph> {
    Ok(GRAPHS.insert_with(Graph::new)?.1)
}

/// The graph behind a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn of(handle: CUgraph) -> Answer<&'static Graph> {
    GRAPHS.get(handle)
}

/// Ends a graph and all its nodes.
pub fn destroy(graph: &'static Graph) -> Answer {
    GRAPHS.remove(graph.handle.raw())?;
    // Outside of the lock: destructors are the client's code.
    drop(std::mem::take(&mut *locked(&graph.objects)));
    let nodes = std::mem::take(&mut *locked(&graph.nodes));
    nodes.into_iter().flatten().try_for_each(Node::end)
}

/// The graph of a node's handle, and the place it has there.
fn place_of(node: CUgraphNode) -> Answer<&'static Place> {
    NODES.get(node)
}

impl Node {
    /// Ends it, with the graphs inside.
    fn end(self) -> Answer {
        if let Some(handle) = self.handle {
            NODES.remove(handle.raw())?;
        }
        match self.work {
            Work::Child(graph) => destroy(graph),
            Work::Conditional(conditional) => conditional.bodies.into_iter().try_for_each(destroy),
            _ => Ok(()),
        }
    }
}

impl Graph {
    fn new(handle: Handle) -> Self {
        let instantiated = AtomicBool::new(false);
        Self { handle, nodes: Mutex::default(), objects: Mutex::default(), instantiated }
    }

    /// Whether it holds such work, inside of other graphs too.
    fn holds(&self, such: fn(&Work) -> bool) -> bool {
        locked(&self.nodes)
            .iter()
            .flatten()
            .any(|node| such(&node.work) || matches!(node.work, Work::Child(inner) if inner.holds(such)))
    }

    /// Adds a node and answers its place.
    pub fn add(&self, work: Work, after: Vec<usize>) -> usize {
        let mut nodes = locked(&self.nodes);
        nodes.push(Some(Node { handle: None, work, after, kept: Kept::default() }));
        nodes.len() - 1
    }

    /// The handle of a node; made when it is first asked for, as most captured nodes never show theirs.
    pub fn node_handle(&'static self, place: usize) -> Answer<CUgraphNode> {
        let mut nodes = locked(&self.nodes);
        let node = nodes.get_mut(place).and_then(Option::as_mut).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let handle = match node.handle {
            Some(handle) => handle,
            None => NODES.insert(Place { graph: self, place })?.0,
        };
        node.handle = Some(handle);
        Ok(handle.raw())
    }

    /// The places of nodes that must be of this graph.
    pub fn places(&'static self, nodes: &[CUgraphNode]) -> Answer<Vec<usize>> {
        let place = |node: &CUgraphNode| {
            let place = place_of(*node)?;
            if std::ptr::eq(place.graph, self) { Ok(place.place) } else { Err(CUDA_ERROR_INVALID_VALUE) }
        };
        nodes.iter().map(place).collect()
    }

    /// Whether every one of `these` is among `ends` or comes before one of them.
    pub fn reaches(&self, these: &[usize], ends: &[usize]) -> bool {
        let nodes = locked(&self.nodes);
        let (mut seen, mut open) = (HashSet::new(), ends.to_vec());
        while let Some(place) = open.pop() {
            if seen.insert(place) {
                open.extend(nodes.get(place).and_then(Option::as_ref).iter().flat_map(|node| &node.after));
            }
        }
        these.iter().all(|place| seen.contains(place))
    }

    /// A copy with the same places.
    fn duplicate(&self) -> Answer<&'static Graph> {
        let nodes = locked(&self.nodes).clone();
        let copy = create()?;
        *locked(&copy.objects) = locked(&self.objects).clone();
        copy.fill(nodes)?;
        Ok(copy)
    }

    /// Takes copies of nodes in, with the graphs inside, at the same places.
    fn fill(&self, nodes: Vec<Option<Node>>) -> Answer {
        let bare = |node: Node| match node.work {
            Work::Child(inner) => Ok(Node { handle: None, work: Work::Child(inner.duplicate()?), ..node }),
            _ => Ok(Node { handle: None, ..node }),
        };
        let nodes = nodes.into_iter().map(|node| node.map(bare).transpose()).collect::<Answer<_>>()?;
        *locked(&self.nodes) = nodes;
        Ok(())
    }

    /// Reads a node's work.
    fn work<T>(&self, place: usize, read: impl FnOnce(&Work) -> Option<T>) -> Answer<T> {
        let nodes = locked(&self.nodes);
        let node = nodes.get(place).and_then(Option::as_ref).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        read(&node.work).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Replaces a node's work by other work of the same kind.
    fn set_work(&self, place: usize, work: Work) -> Answer {
        let mut nodes = locked(&self.nodes);
        let node = nodes.get_mut(place).and_then(Option::as_mut).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if node.work.node_type() != work.node_type() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        node.work = work;
        Ok(())
    }

    /// The launch attributes of a kernel node.
    fn kept<T>(&self, place: usize, use_them: impl FnOnce(&mut Kept) -> Answer<T>) -> Answer<T> {
        let mut nodes = locked(&self.nodes);
        match nodes.get_mut(place).and_then(Option::as_mut) {
            Some(Node { work: Work::Kernel(_) | Work::Spin(..) | Work::Switch(..), kept, .. }) => {
                use_them(kept)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Every edge, as the places of its two ends.
    fn edges(&self) -> Vec<(usize, usize)> {
        let nodes = locked(&self.nodes);
        let of = |(place, node): (usize, &Option<Node>)| {
            node.iter()
                .flat_map(|node| node.after.clone())
                .map(move |before| (before, place))
                .collect::<Vec<_>>()
        };
        nodes.iter().enumerate().flat_map(of).collect()
    }

    /// The places of all nodes.
    fn all(&self) -> Vec<usize> {
        let nodes = locked(&self.nodes);
        (0..nodes.len()).filter(|place| nodes[*place].is_some()).collect()
    }
}
