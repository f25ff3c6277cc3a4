//! Executable graphs: instantiated, launched, updated.

use std::collections::{HashMap, HashSet};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use weir_abi::types::*;

use super::plan::{Step, steps};
use super::user_object::Held;
use super::{Graph, Node, create};
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
    /// The flags it was made with, but that of an upload.
    pub flags: u64,
    nodes: Mutex<Vec<Option<Node>>>,
    /// The executable forms of the graphs inside, by place: of a child graph one, of a conditional node all bodies.
    inner: HashMap<usize, Vec<&'static Exec>>,
    /// Nodes that are not run, by place.
    disabled: Mutex<HashSet<usize>>,
    steps: Vec<Step>,
    lanes: usize,
    /// Events of the nodes that others wait for, by place.
    signals: HashMap<usize, &'static Event>,
    /// The events between the launching stream and each further lane: begin and end.
    forks: Vec<[&'static Event; 2]>,
    objects: Mutex<Vec<Held>>,
    /// The stream of the last launch, and the event by which one in another stream waits for it.
    last: Mutex<Option<&'static Stream>>,
    done: &'static Event,
}

/// The executable graph behind a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn of(handle: CUgraphExec) -> Answer<&'static Exec> {
    EXECS.get(handle)
}

/// The graphs inside of a node.
fn inside(work: &Work) -> &[&'static Graph] {
    match work {
        Work::Child(graph) => std::slice::from_ref(graph),
        Work::Conditional(conditional) => &conditional.bodies,
        _ => &[],
    }
}

fn internal_event() -> Answer<&'static Event> {
    event::create(CU_EVENT_DISABLE_TIMING, None)
}

impl Exec {
    /// Makes a graph executable as it is now.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a circle, `CUDA_ERROR_OUT_OF_MEMORY` when events run out.
    pub fn create(source: &'static Graph, flags: u64) -> Answer<&'static Exec> {
        let nodes = locked(&source.nodes).clone();
        let inner = nodes.iter().enumerate().filter_map(|(place, node)| {
            let made = inside(&node.as_ref()?.work).iter().map(|graph| Exec::create(graph, 0));
            Some(made.collect::<Answer<Vec<_>>>().map(|made| (place, made)))
        });
        let inner =
            inner.filter(|made| made.as_ref().is_ok_and(|(_, made)| !made.is_empty()) || made.is_err());
        let inner = inner.collect::<Answer<HashMap<_, _>>>()?;
        let steps = steps(&nodes)?;
        let lanes = steps.iter().map(|step| step.lane + 1).max().unwrap_or(1);
        let awaited =
            steps.iter().filter(|step| step.signals).map(|step| Ok((step.place, internal_event()?)));
        let signals = awaited.collect::<Answer<_>>()?;
        let forks = (1..lanes).map(|_| Ok([internal_event()?, internal_event()?])).collect::<Answer<_>>()?;
        let nodes = Mutex::new(nodes);
        let objects = Mutex::new(locked(&source.objects).clone());
        let done = internal_event()?;
        source.instantiated.store(true, Ordering::Relaxed);
        let make = |handle| Exec {
            handle,
            source,
            flags: flags & !CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
            nodes,
            inner,
            disabled: Mutex::default(),
            steps,
            lanes,
            signals,
            forks,
            objects,
            last: Mutex::default(),
            done,
        };
        Ok(EXECS.insert_with(make)?.1)
    }

    /// Ends it; its events go back.
    pub fn destroy(&self) -> Answer {
        EXECS.remove(self.handle.raw())?;
        self.source.instantiated.store(false, Ordering::Relaxed);
        self.inner.values().flatten().try_for_each(|exec| exec.destroy())?;
        locked(&self.nodes).clear();
        drop(std::mem::take(&mut *locked(&self.objects)));
        let forks = self.forks.iter().flatten();
        self.signals.values().chain(forks).chain([&self.done]).try_for_each(|event| event::destroy(event))
    }

    /// Gives all its work to a stream, the branches to lanes beside it. Launches of one executable graph never overlap (CUDA driver API,
    /// `cuGraphLaunch`).
    pub fn launch(&self, stream: &'static Stream) -> Answer {
        self.back_memory()?;
        let before = locked(&self.last).replace(stream);
        if before.is_some_and(|before| !ptr::eq(before, stream)) {
            self.done.wait(stream)?;
        }
        self.begin_conditions();
        self.run(stream)?;
        self.done.record(stream)
    }

    /// What each launch begins with.
    fn begin_conditions(&self) {
        for node in locked(&self.nodes).iter().flatten() {
            if let Work::Conditional(conditional) = &node.work {
                conditional.begin();
            }
        }
    }

    fn run(&self, stream: &'static Stream) -> Answer {
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
                self.run_node(step.place, &node.work, lane)?;
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

    fn run_node(&self, place: usize, work: &Work, lane: &'static Stream) -> Answer {
        let inner = |number: usize| {
            let exec = self.inner.get(&place).and_then(|execs| execs.get(number));
            exec.map_or(Err(CUDA_ERROR_INVALID_VALUE), |exec| exec.launch(lane))
        };
        match work {
            _ if locked(&self.disabled).contains(&place) => Ok(()),
            Work::Child(_) => inner(0),
            Work::Conditional(conditional) => conditional.run(inner),
            work => work.submit(lane),
        }
    }

    /// Enables or disables a node. Its parameters stay, and so does this when they are updated.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a node that is no kernel, copy or memset.
    pub fn set_enabled(&self, place: usize, enabled: bool) -> Answer {
        self.can_be_disabled(place)?;
        let mut disabled = locked(&self.disabled);
        if enabled {
            disabled.remove(&place);
        } else {
            disabled.insert(place);
        }
        Ok(())
    }

    /// Whether a node is run.
    ///
    /// # Errors
    /// As [`Self::set_enabled`].
    pub fn is_enabled(&self, place: usize) -> Answer<bool> {
        self.can_be_disabled(place)?;
        Ok(!locked(&self.disabled).contains(&place))
    }

    fn can_be_disabled(&self, place: usize) -> Answer {
        match locked(&self.nodes).get(place).and_then(Option::as_ref).map(|node| node.work.node_type()) {
            Some(CU_GRAPH_NODE_TYPE_KERNEL | CU_GRAPH_NODE_TYPE_MEMCPY | CU_GRAPH_NODE_TYPE_MEMSET) => Ok(()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// A graph of what it runs now: for a capture that its launch goes into.
    pub fn graph(&self) -> Answer<&'static Graph> {
        let graph = create()?;
        let mut nodes = locked(&self.nodes).clone();
        for place in locked(&self.disabled).iter() {
            if let Some(node) = nodes.get_mut(*place).and_then(Option::as_mut) {
                node.work = Work::Empty;
            }
        }
        graph.fill(nodes)?;
        Ok(graph)
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

    /// The launching stream and as many hidden ones beside it as there are further lanes.
    fn lanes_beside(&self, stream: &'static Stream) -> Answer<Vec<&'static Stream>> {
        let mut hidden = locked(&stream.lanes);
        while hidden.len() + 1 < self.lanes {
            hidden.push(stream::create(stream.context, Kind::NonBlocking, stream.priority)?);
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
        self.update_inner(place, &work).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        node.work = work;
        Ok(())
    }

    /// The graphs inside of a node take over those inside of `work`.
    fn update_inner(
        &self,
        place: usize,
        work: &Work,
    ) -> Result<(), (CUgraphExecUpdateResult, Option<usize>)> {
        let (execs, graphs) = (self.inner.get(&place).map_or(&[][..], Vec::as_slice), inside(work));
        if execs.len() != graphs.len() {
            return Err((CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, Some(place)));
        }
        execs.iter().zip(graphs).try_for_each(|(exec, graph)| exec.update(graph))
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
                (Some(_), Some(new)) => {
                    self.update_inner(place, &new.work).map_err(|(why, _)| (why, Some(place)))?;
                }
                _ => return Err((CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, Some(place))),
            }
        }
        *nodes = fresh;
        Ok(())
    }
}
