//! Executable graphs: instantiated, launched, updated.

use std::collections::HashMap;
use std::sync::Mutex;

use weir_abi::types::*;

use super::plan::{Step, steps};
use super::user_object::Held;
use super::{Graph, Node};
use crate::edge::Answer;
use crate::event::{self, Event};
use crate::graph_memory;
use crate::locked;
use crate::registry::{Handle, Registry};
use crate::stream::{self, Kind, Stream};
use crate::work::Work;

static EXECS: Registry<Exec> = Registry::new(14, CUDA_ERROR_INVALID_VALUE);

/// An executable graph. Nodes have the places that they have in the graph it was made of.
pub struct Exec {
    /// Its handle.
    pub handle: Handle,
    /// The graph it was made of.
    pub source: &'static Graph,
    nodes: Mutex<Vec<Option<Node>>>,
    steps: Vec<Step>,
    lanes: usize,
    /// Events of the nodes that others wait for, by place.
    signals: HashMap<usize, &'static Event>,
    /// The events between the launching stream and each further lane: begin and end.
    forks: Vec<[&'static Event; 2]>,
    objects: Mutex<Vec<Held>>,
}

/// The executable graph behind a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn of(handle: CUgraphExec) -> Answer<&'static Exec> {
    EXECS.get(handle)
}

fn internal_event() -> Answer<&'static Event> {
    event::create(CU_EVENT_DISABLE_TIMING)
}

impl Exec {
    /// Makes a graph executable as it is now.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a circle, `CUDA_ERROR_OUT_OF_MEMORY` when events run out.
    pub fn create(source: &'static Graph) -> Answer<&'static Exec> {
        let nodes = locked(&source.nodes).clone();
        let steps = steps(&nodes)?;
        let lanes = steps.iter().map(|step| step.lane + 1).max().unwrap_or(1);
        let awaited =
            steps.iter().filter(|step| step.signals).map(|step| Ok((step.place, internal_event()?)));
        let signals = awaited.collect::<Answer<_>>()?;
        let forks = (1..lanes).map(|_| Ok([internal_event()?, internal_event()?])).collect::<Answer<_>>()?;
        let nodes = Mutex::new(nodes);
        let objects = Mutex::new(locked(&source.objects).clone());
        Ok(EXECS
            .insert_with(|handle| Exec { handle, source, nodes, steps, lanes, signals, forks, objects })?
            .1)
    }

    /// Ends it; its events go back.
    pub fn destroy(&self) -> Answer {
        EXECS.remove(self.handle.raw())?;
        locked(&self.nodes).clear();
        drop(std::mem::take(&mut *locked(&self.objects)));
        let forks = self.forks.iter().flatten();
        self.signals.values().chain(forks).try_for_each(|event| event::destroy(event))
    }

    /// Gives all its work to a stream, the branches to lanes beside it.
    pub fn launch(&self, stream: &'static Stream) -> Answer {
        self.back_memory()?;
        let nodes = locked(&self.nodes);
        let lanes = self.lanes_beside(stream)?;
        for (lane, [begin, _]) in lanes[1..].iter().zip(&self.forks) {
            begin.record(stream)?;
            begin.wait(lane)?;
        }
        for step in &self.steps {
            let lane = lanes[step.lane];
            for event in step.waits.iter().filter_map(|place| self.signals.get(place)) {
                event.wait(lane)?;
            }
            if let Some(node) = nodes.get(step.place).and_then(Option::as_ref) {
                node.work.submit(lane)?;
            }
            if let Some(event) = self.signals.get(&step.place) {
                event.record(lane)?;
            }
        }
        for (lane, [_, end]) in lanes[1..].iter().zip(&self.forks) {
            end.record(lane)?;
            end.wait(stream)?;
        }
        Ok(())
    }

    /// Sees to the memory of its allocation nodes.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn back_memory(&self) -> Answer {
        let nodes = locked(&self.nodes);
        let works = self.steps.iter().filter_map(|step| nodes.get(step.place)?.as_ref());
        graph_memory::back(works.filter_map(|node| match node.work {
            Work::Alloc { address } => Some(graph_memory::Node::Takes(address)),
            Work::Free { address } => Some(graph_memory::Node::Gives(address)),
            _ => None,
        }))
    }

    /// The launching stream and as many hidden ones of its context as there are further lanes.
    fn lanes_beside(&self, stream: &'static Stream) -> Answer<Vec<&'static Stream>> {
        let mut hidden = locked(&stream.context.lanes);
        while hidden.len() + 1 < self.lanes {
            hidden.push(stream::create(stream.context, Kind::NonBlocking, 0)?);
        }
        Ok(std::iter::once(stream).chain(hidden.iter().copied()).take(self.lanes).collect())
    }

    /// Replaces one node's work by other work of the same kind.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a place without a node or another kind of work.
    pub fn set_work(&self, place: usize, work: Work) -> Answer {
        let mut nodes = locked(&self.nodes);
        let node = nodes.get_mut(place).and_then(Option::as_mut).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if node.work.node_type() != work.node_type() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        node.work = work;
        Ok(())
    }

    /// Takes over the work of a graph with the same shape.
    ///
    /// # Errors
    /// Why it cannot, and the place of the node that differs.
    pub fn update(&self, graph: &Graph) -> Result<(), (CUgraphExecUpdateResult, Option<usize>)> {
        let fresh = locked(&graph.nodes).clone();
        let mut nodes = locked(&self.nodes);
        if fresh.len() != nodes.len() {
            return Err((CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, None));
        }
        for (place, pair) in nodes.iter().zip(&fresh).enumerate() {
            match pair {
                (None, None) => {}
                (Some(old), Some(new)) if old.after != new.after => {
                    return Err((CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, Some(place)));
                }
                (Some(old), Some(new)) if old.work.node_type() != new.work.node_type() => {
                    return Err((CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, Some(place)));
                }
                (Some(_), Some(_)) => {}
                _ => return Err((CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, Some(place))),
            }
        }
        *nodes = fresh;
        Ok(())
    }
}
