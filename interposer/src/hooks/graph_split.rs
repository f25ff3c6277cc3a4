//! A filler's heavy graphs go out in segments, each of which passes the gate by itself, so that a neighbour waits for one
//! segment and not for the graph (gpu-truths, rule 10).
//!
//! Prices are not known when a graph is made executable. A copy of it is kept then, and is split at the first launch after
//! the graph was learnt to take longer than a segment may; a segment that turns out too heavy is split again. The program's
//! own executable graph stays as it is: it is what is launched while nothing is known, into a stream that captures, and for
//! good once the program changes it or a step of ours was refused. Launches of one graph never overlap, as with any: each is
//! put behind the event of the one before, and the first one in segments behind a last one of the graph itself, which the
//! driver has put behind all others.
//!
//! Branches that wait for each other on the device, which CUDA does not promise to run at the same time, can stand still if
//! a cut goes between them; cuts where branches meet are preferred. Nodes that the device itself changes cannot be taken out
//! of a copy, so such a graph stays whole by the driver's refusal; with graphs that kernels launch nothing is split.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::lock::Lock;
use weir_protocol::message::Class;
use weir_protocol::pages::GraphCount;

use super::graph_device::{self, count};
use super::graph_nodes::Kinds;
use super::graph_segments::{Event, Exec, Graph, MOST_NS, Segment, Whole};
use super::launch::{self, UNCOUNTED};
use crate::driver::{Relaxed, Stream};
use crate::guard::caught;
use crate::link::{CAPTURES, Client};
use crate::thread::Inside;

/// A graph learnt to be lighter than this is not watched any longer.
const LIGHT_NS: u64 = MOST_NS / 2;

/// A segment is split again if it takes so long: its nodes' weights were guesses.
const TOO_HEAVY_NS: u64 = MOST_NS * 3 / 2;

/// Some executable graph of this process is watched or split: the launch path's one load.
static ANY: AtomicBool = AtomicBool::new(false);

/// The executable graphs that may be split, or are.
#[derive(Default)]
pub struct Splits(Lock<HashMap<u64, Arc<Lock<Watched>>>>);

/// One of them.
pub struct Watched {
    state: State,
    flags: u64,
    behind: Option<Event>, // the end of the last launch since it was split
}

/// How a graph is launched.
enum Way {
    /// As the program has it.
    Whole,
    /// The same: what comes next, in segments, comes behind it.
    LastWhole,
    /// In segments.
    Segments(Arc<Vec<Exec>>),
}

/// What is known of a graph.
enum State {
    /// Nobody knows yet whether it is heavy.
    New(Graph),
    /// Its segments, in order.
    Split(Arc<Vec<Exec>>, Vec<Option<Graph>>),
    /// It stays whole; counted once it is known to be heavy.
    Whole(Option<GraphCount>),
}

/// A graph was made executable.
pub fn watch(client: &'static Client, exec: CUgraphExec, graph: CUgraph, flags: u64, kinds: Kinds) {
    if client.class != Class::Filler {
        return;
    }
    let collective = client.book.graph(exec.addr() as u64).is_collective();
    let state = match unfit(flags, kinds, collective) {
        Some(why) => State::Whole(Some(why)),
        None => {
            let _relaxed = Relaxed::enter();
            Graph::copy_of(graph).map_or(State::Whole(Some(GraphCount::WholeRefused)), State::New)
        }
    };
    let watched = Watched { state, flags, behind: None };
    client.splits.0.lock().insert(exec.addr() as u64, Arc::new(Lock::new(watched)));
    // Relaxed: whoever launches the graph got its handle from this thread, which orders for itself.
    ANY.store(true, Ordering::Relaxed);
}

/// What cannot be split, by its flags, its kinds of nodes, and whether other ranks wait for its kernels.
fn unfit(flags: u64, kinds: Kinds, collective: bool) -> Option<GraphCount> {
    const MEMORY: [CUgraphNodeType; 2] = [CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE];
    const SIGNALS: [CUgraphNodeType; 5] = [
        CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
        CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
    ];
    match () {
        () if flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH != 0 => {
            Some(GraphCount::WholeDeviceLaunchable)
        }
        () if kinds.has(&MEMORY) => Some(GraphCount::WholeMemory),
        () if kinds.has(&[CU_GRAPH_NODE_TYPE_CONDITIONAL]) => Some(GraphCount::WholeConditional),
        () if collective || kinds.has(&SIGNALS) => Some(GraphCount::WholeSignals),
        () => None,
    }
}

/// An executable graph was changed: from now on it is launched as the program has it.
pub fn updated(client: &Client, exec: CUgraphExec) {
    if any() {
        client.splits.leave_whole(exec, GraphCount::WholeUpdated);
    }
}

/// An executable graph is about to go. What comes back ends its segments when it is dropped.
pub fn forget(client: &Client, exec: CUgraphExec) -> Option<Arc<Lock<Watched>>> {
    if any() { client.splits.0.lock().remove(&(exec.addr() as u64)) } else { None }
}

/// Whether a graph of this process may go out in segments: one load.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// A graph launch of a filler.
#[cold]
pub fn launch(
    counted: usize,
    stream: Stream,
    exec: CUgraphExec,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(client) = Client::get() else { return call() };
    client.knock();
    let way = caught(client, || {
        let _inside = Inside::enter()?;
        client.splits.way(client, exec, stream)
    });
    let segments = match way.flatten().unwrap_or(Way::Whole) {
        Way::Segments(segments) => segments,
        Way::Whole => return launch::whole(counted, stream, exec, call),
        Way::LastWhole => {
            let result = launch::whole(counted, stream, exec, call);
            caught(client, || {
                let _inside = Inside::enter();
                client.splits.went(exec, stream, result);
            });
            return result;
        }
    };
    let mut counting = counted;
    for segment in segments.iter() {
        let raw = segment.raw();
        let result = launch::whole(counting, stream, raw, || stream.launch_graph(raw));
        if result != CUDA_SUCCESS {
            caught(client, || client.splits.leave_whole(exec, GraphCount::WholeRefused));
            // Nothing of the graph has run yet: the program's own one can still go out.
            let first = counting == counted;
            return if first { launch::whole(UNCOUNTED, stream, exec, call) } else { result };
        }
        counting = UNCOUNTED;
    }
    caught(client, || {
        let _inside = Inside::enter();
        count(client, GraphCount::SplitLaunches, 1);
        client.splits.went(exec, stream, CUDA_SUCCESS);
    });
    CUDA_SUCCESS
}

impl Splits {
    fn of(&self, exec: CUgraphExec) -> Option<Arc<Lock<Watched>>> {
        self.0.lock().get(&(exec.addr() as u64)).cloned()
    }

    /// How the graph is to be launched now; `None`: as it is.
    fn way(&self, client: &'static Client, exec: CUgraphExec, stream: Stream) -> Option<Way> {
        let watched = self.of(exec)?;
        // Relaxed: a capture that this thread began is in its own past; another thread's stream is not this one.
        if CAPTURES.load(Ordering::Relaxed) != 0 && stream.is_capturing() {
            return None;
        }
        let mut watched = watched.try_lock()?;
        if let Some(event) = &watched.behind {
            stream.wait_for(event.raw());
        }
        if graph_device::any() && !matches!(watched.state, State::Whole(_)) {
            watched.state = State::Whole(Some(GraphCount::WholeDeviceLaunchable));
        }
        let was_new = matches!(watched.state, State::New(_));
        watched.settle(client, exec);
        match &watched.state {
            State::Split(..) if was_new => Some(Way::LastWhole),
            State::Split(segments, _) => Some(Way::Segments(segments.clone())),
            State::New(_) | State::Whole(_) => None,
        }
    }

    /// A launch is on its way, if the driver took it: the next one comes behind it.
    fn went(&self, exec: CUgraphExec, stream: Stream, result: CUresult) {
        let Some(watched) = self.of(exec) else { return };
        let record = |event: &Event| result == CUDA_SUCCESS && stream.record(event.raw());
        let recorded = watched.lock().behind.as_ref().is_some_and(record);
        if !recorded {
            self.leave_whole(exec, GraphCount::WholeRefused);
        }
    }

    fn leave_whole(&self, exec: CUgraphExec, why: GraphCount) {
        let Some(watched) = self.of(exec) else { return };
        let mut watched = watched.lock();
        if !matches!(watched.state, State::Whole(_)) {
            watched.state = State::Whole(Some(why));
        }
    }
}

impl Watched {
    /// Goes by what the graph is known to take by now.
    fn settle(&mut self, client: &'static Client, exec: CUgraphExec) {
        let price = price_ns(client, exec.addr() as u64);
        let state = std::mem::replace(&mut self.state, State::Whole(None));
        self.state = match (state, price) {
            (State::New(_), Some(..LIGHT_NS)) => State::Whole(None),
            (State::New(graph), Some(price)) if price > MOST_NS => self.split(client, graph, price),
            (State::Whole(Some(why)), Some(price)) if price > MOST_NS => {
                count(client, why, 1);
                State::Whole(None)
            }
            (State::Split(segments, graphs), _) => self.refine(client, segments, graphs),
            (state, _) => state,
        };
    }

    fn split(&mut self, client: &'static Client, graph: Graph, price_ns: u64) -> State {
        let _relaxed = Relaxed::enter();
        let kept = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
        let event = Event::new();
        let made = match graph.split(client, price_ns, self.flags & kept) {
            _ if event.is_none() => Err(Whole::Refused),
            made => made,
        };
        match made {
            Ok(segments) => {
                self.behind = event;
                count(client, GraphCount::Split, 1);
                count(client, GraphCount::Segments, segments.len() as u64);
                let (execs, graphs) =
                    segments.into_iter().map(|Segment { exec, graph }| (exec, graph)).unzip();
                State::Split(Arc::new(execs), graphs)
            }
            Err(why) => {
                let indivisible = why == Whole::Indivisible;
                count(
                    client,
                    if indivisible { GraphCount::WholeIndivisible } else { GraphCount::WholeRefused },
                    1,
                );
                State::Whole(None)
            }
        }
    }

    /// Splits again what turned out too heavy, and lets go of the graphs of segments that did not.
    fn refine(
        &self,
        client: &'static Client,
        segments: Arc<Vec<Exec>>,
        mut graphs: Vec<Option<Graph>>,
    ) -> State {
        let mut again = HashMap::new();
        for (at, (segment, graph)) in segments.iter().zip(&mut graphs).enumerate() {
            if graph.is_none() {
                continue;
            }
            let Some(price) = price_ns(client, segment.key()) else { continue };
            let Some(graph) = graph.take().filter(|_| price > TOO_HEAVY_NS) else { continue };
            let _relaxed = Relaxed::enter();
            let kept = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
            if let Ok(parts) = graph.split(client, price, self.flags & kept) {
                again.insert(at, parts);
            }
        }
        // Segments that are being launched by another thread stay as they are: it is done with them soon.
        match (again.is_empty(), Arc::try_unwrap(segments)) {
            (false, Ok(execs)) => replaced(client, execs, graphs, again),
            (_, Ok(execs)) => State::Split(Arc::new(execs), graphs),
            (_, Err(shared)) => State::Split(shared, graphs),
        }
    }
}

/// The segments with some of them replaced by their parts.
fn replaced(
    client: &'static Client,
    execs: Vec<Exec>,
    graphs: Vec<Option<Graph>>,
    mut again: HashMap<usize, Vec<Segment>>,
) -> State {
    let more: usize = again.values().map(|parts| parts.len() - 1).sum();
    count(client, GraphCount::Segments, more as u64);
    let mut all = (Vec::new(), Vec::new());
    for (at, (exec, graph)) in execs.into_iter().zip(graphs).enumerate() {
        let parts = again.remove(&at).unwrap_or_else(|| vec![Segment { exec, graph }]);
        for Segment { exec, graph } in parts {
            all.0.push(exec);
            all.1.push(graph);
        }
    }
    State::Split(Arc::new(all.0), all.1)
}

/// What an executable graph takes, if that is known.
fn price_ns(client: &Client, exec: u64) -> Option<u64> {
    let estimate = client.book.graph(exec);
    estimate.is_learnt().then(|| estimate.price().unsigned_abs())
}
