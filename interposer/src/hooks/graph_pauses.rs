//! Graphs that pause (a host function, a wait or a copy is a node): the time from begin to end of such a launch is not what it
//! took of the GPU. It is charged what its launches ran on average, which some of them tell.
//!
//! Those are launches of a copy that has timing events inside ([`graph_probe`]), in the place of the program's own executable
//! graph: the first few, and then one now and then. Launches of one graph never overlap, and a copy is another graph to the
//! driver; so it is launched only where the stream itself puts it behind the launch before, and a launch behind it in
//! another stream waits for its events. A node that the program changes by itself is changed in the copy, too; where the driver
//! refuses that (nodes inside of others), the graph goes by its begin and end, as one does that cannot be copied. One that takes
//! over another's parameters gets a new copy, not more often than it tells.
//!
//! [`graph_probe`]: super::graph_probe

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::flight::Neighbours;
use weir_core::lock::Lock;
use weir_core::price::{Book, Bound, Estimate, Known, Parts, Took};
use weir_protocol::units::Nanos;

use super::graph_nodes::Kinds;
use super::graph_probe::{PAUSES, Probe, Told};
use super::launch;
use super::meter::charge;
use crate::clock;
use crate::driver::{self, Relaxed, Stream};
use crate::guard::caught;
use crate::link::{CAPTURES, Client, Context, Gpu};
use crate::thread::{self, Inside};

/// A graph that is known tells so often at most: a kernel that becomes dearer is followed within some of these.
const TELLS_EVERY: Nanos = Nanos::from_millis(50);

/// One of which little is known, or that told something new the last time.
const ASKED_EVERY: Nanos = Nanos::from_millis(3);

/// A new copy of a graph takes no more of the time than this part of it.
const COPYING: u64 = 50;

/// A call of the driver's that takes longer than this, and twice as long as it can, was held up: the GPU may have begun with the
/// first nodes, and waited for the others.
const PROMPT: Nanos = Nanos::from_micros(100);

/// What is closer than this to the price is nothing new.
const CLOSE: f64 = 0.005;

/// Some graph of this process pauses: the launch path's one load.
static ANY: AtomicBool = AtomicBool::new(false);

/// Launches that are to tell and have not.
static AWAITED: AtomicU32 = AtomicU32::new(0);

/// Streams that are gone: two streams under one handle are not taken for each other.
static STREAMS_GONE: AtomicU64 = AtomicU64::new(0);

/// The executable graphs that pause.
#[derive(Default)]
pub struct GraphPauses(Lock<HashMap<u64, Arc<Lock<Paused>>>>);

/// One of them.
pub struct Paused {
    estimate: &'static Estimate,
    flags: u64,
    probe: Option<Probe>,
    stale: bool, // the graph was changed since the copy was made
    asked: Option<Asked>,
    due_at: Nanos,
    least: Nanos,             // that a launch of the copy took of the host
    copy_at: Nanos,           // no new copy before
    last: Option<(u64, u64)>, // the stream of the last launch, and how many were gone by then
}

/// A launch of the copy, under way.
struct Asked {
    gpu: &'static Gpu,
    context: &'static Context,
    stream: u64,
    beside: Neighbours,
    elsewhere: Option<u64>, // what other streams of the process had been given, if that was done
    restarts: u32,          // of the estimate
    held_up: bool,          // the driver was given its parts with a pause between them, perhaps
}

/// A graph was made executable.
pub fn watch(client: &Client, exec: CUgraphExec, graph: CUgraph, flags: u64, kinds: Kinds) {
    const UNFIT: [CUgraphNodeType; 3] =
        [CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE, CU_GRAPH_NODE_TYPE_CONDITIONAL];
    let estimate = client.book.graph(exec.addr() as u64);
    let device = flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH != 0;
    let unfit = device || kinds.has(&UNFIT) || estimate.is_collective() || Book::is_beyond(estimate);
    let flags = flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    let probe = if unfit || !kinds.has(&PAUSES) { None } else { copy(client, graph, flags) };
    if !Book::is_beyond(estimate) {
        estimate.set_pauses(probe.is_some());
    }
    let Some(probe) = probe else { return };
    let paused = Paused {
        estimate,
        flags,
        probe: Some(probe),
        stale: false,
        asked: None,
        due_at: Nanos(0),
        least: Nanos(u64::MAX),
        copy_at: Nanos(0),
        last: None,
    };
    client.pauses.0.lock().insert(exec.addr() as u64, Arc::new(Lock::new(paused)));
    // Relaxed: whoever launches the graph got its handle from this thread, which orders for itself.
    ANY.store(true, Ordering::Relaxed);
}

fn copy(client: &Client, graph: CUgraph, flags: u64) -> Option<Probe> {
    let _relaxed = Relaxed::enter();
    Probe::of(client, graph, flags)
}

/// A node of an executable graph was changed by itself: the one at this place in what it was made of, if it is there.
pub fn changed(
    client: &Client,
    exec: CUgraphExec,
    place: Option<usize>,
    change: impl FnOnce(CUgraphExec, CUgraphNode) -> CUresult,
) {
    let Some(paused) = find(client, exec) else { return };
    let mut paused = paused.lock();
    paused.hear();
    let _relaxed = Relaxed::enter();
    // A stale copy has other parameters in its other nodes.
    let same = !paused.stale
        && place.zip(paused.probe.as_ref()).is_some_and(|(place, probe)| probe.change(place, change));
    if !same {
        paused.stop();
    }
}

/// An executable graph took over another one's parameters; `None` where it is not what that one is.
pub fn updated(client: &Client, exec: CUgraphExec, graph: Option<CUgraph>) {
    let Some(paused) = find(client, exec) else { return };
    let mut paused = paused.lock();
    if !paused.estimate.pauses() {
        return;
    }
    paused.hear();
    let Some(graph) = graph else { return paused.stop() };
    paused.stale = true;
    if paused.asked.is_none() && paused.is_due() && clock::now() >= paused.copy_at {
        let began = clock::now();
        match copy(client, graph, paused.flags) {
            Some(probe) => (paused.probe, paused.stale) = (Some(probe), false),
            None => paused.stop(),
        }
        let ended = clock::now();
        paused.copy_at = Nanos(ended.0 + ended.since(began).0 * COPYING);
    }
}

/// An executable graph is about to go. What comes back ends its copy when it is dropped.
pub fn forget(client: &Client, exec: CUgraphExec) -> Option<Arc<Lock<Paused>>> {
    if !any() {
        return None;
    }
    let paused = client.pauses.0.lock().remove(&(exec.addr() as u64))?;
    paused.lock().hear();
    paused.lock().asks_no_more();
    Some(paused)
}

/// A stream is about to go.
pub fn stream_gone() {
    STREAMS_GONE.fetch_add(1, Ordering::Relaxed);
}

/// Learns from the launches that have told by now.
#[inline]
pub fn look() {
    // Relaxed: what this thread has launched is in its own past; another's is heard of later.
    if AWAITED.load(Ordering::Relaxed) != 0
        && let Some(client) = Client::get()
    {
        let all: Vec<_> = client.pauses.0.lock().values().cloned().collect();
        all.iter().filter_map(|paused| paused.try_lock()).for_each(|mut paused| paused.hear());
    }
}

/// Whether a graph of this process pauses: one load.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

fn find(client: &Client, exec: CUgraphExec) -> Option<Arc<Lock<Paused>>> {
    if any() { client.pauses.0.lock().get(&(exec.addr() as u64)).cloned() } else { None }
}

/// A launch of an executable graph: as it is, or of the copy that tells.
pub fn launch(
    counted: usize,
    stream: Stream,
    exec: CUgraphExec,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some((client, paused)) = of_launch(stream, exec) else {
        return launch::whole(counted, stream, exec, call);
    };
    let asks = caught(client, || {
        let _inside = Inside::enter()?;
        let known = thread::with(|thread| thread.find_for(client, stream)).is_some();
        paused.lock().next(stream).filter(|_| known)
    });
    if let Some(probe) = asks.flatten() {
        let result = ask((counted, stream, exec), client, &paused, probe);
        if result == CUDA_SUCCESS {
            return result;
        }
        caught(client, || paused.lock().stop()); // the program's own can still go out
        return launch::whole(launch::UNCOUNTED, stream, exec, call);
    }
    let result = launch::whole(counted, stream, exec, call);
    caught(client, || paused.lock().went(stream, result));
    result
}

/// The graph, if it pauses and is not to be captured.
fn of_launch(stream: Stream, exec: CUgraphExec) -> Option<(&'static Client, Arc<Lock<Paused>>)> {
    let client = Client::get()?;
    let paused = caught(client, || {
        let _inside = Inside::enter()?;
        let paused = find(client, exec)?;
        // Relaxed: a capture that this thread began is in its own past; another thread's stream is not this one.
        let captured = CAPTURES.load(Ordering::Relaxed) != 0 && stream.is_capturing();
        (!captured).then_some(paused)
    });
    Some((client, paused.flatten()?))
}

/// Launches the copy in the graph's place.
fn ask(
    (counted, stream, exec): (usize, Stream, CUgraphExec),
    client: &'static Client,
    paused: &Lock<Paused>,
    probe: u64,
) -> CUresult {
    let (asked, took) = (Cell::new(None), Cell::new(Nanos(0)));
    let result = launch::whole(counted, stream, exec, || {
        asked.set(caught(client, || Asked::now(client, stream, paused)).flatten());
        let began = clock::now();
        let result = stream.launch_graph(driver::handle(probe));
        took.set(clock::now().since(began));
        result
    });
    caught(client, || {
        let _inside = Inside::enter();
        let mut paused = paused.lock();
        paused.went(stream, result);
        if result == CUDA_SUCCESS {
            let held_up = paused.was_held_up(took.get());
            paused.asked = asked.take().map(|asked| Asked { held_up, ..asked });
            AWAITED.fetch_add(u32::from(paused.asked.is_some()), Ordering::Relaxed);
        }
    });
    result
}

impl Asked {
    /// A launch that is about to go into this stream.
    fn now(client: &'static Client, stream: Stream, paused: &Lock<Paused>) -> Option<Self> {
        let current = thread::with(|thread| thread.find_for(client, stream))?;
        let (gpu, context, stream) = (current.gpu, current.context, stream.key());
        let elsewhere = context.flight.given_elsewhere(stream);
        let restarts = paused.lock().estimate.restarts();
        Some(Self { gpu, context, stream, beside: gpu.neighbours(), elsewhere, restarts, held_up: false })
    }
}

impl Paused {
    /// The next launch goes into this stream: sees to it that it comes behind the one before. The copy that is to go out in its
    /// place, if one is.
    fn next(&mut self, stream: Stream) -> Option<u64> {
        self.hear();
        let same = self.last.is_none_or(|last| last == place(stream));
        let probe = self.probe.as_ref()?;
        if self.asked.is_some() {
            if !same {
                probe.goes_before(stream);
            }
            return None;
        }
        // Where the last launch went elsewhere nothing but the driver, who knows of the program's own graph alone, puts this
        // one behind it.
        (same && !self.stale && self.is_due()).then(|| probe.raw().expose_provenance() as u64)
    }

    fn is_due(&self) -> bool {
        self.estimate.pauses() && clock::now() >= self.due_at
    }

    fn went(&mut self, stream: Stream, result: CUresult) {
        if result == CUDA_SUCCESS {
            self.last = Some(place(stream));
        }
    }

    /// Whether the call that launched the copy was held up.
    fn was_held_up(&mut self, took: Nanos) -> bool {
        self.least = self.least.min(took);
        took > PROMPT && took.0 / 2 > self.least.0
    }

    /// Hears what the copy's last launch tells, if it is over.
    fn hear(&mut self) {
        let (Some(asked), Some(probe)) = (&self.asked, &self.probe) else { return };
        let price = self.estimate.price() as f64;
        let close = match probe.told() {
            Told::Nothing => return,
            Told::Ran(ns) => {
                charge(asked.gpu, self.learn(asked, ns));
                (ns - price).abs() < CLOSE * price
            }
            Told::Nonsense => false,
            Told::Lost => {
                self.probe.take().into_iter().for_each(Probe::abandon);
                self.stop();
                false
            }
        };
        self.asks_no_more();
        let known = close && self.estimate.known() == Known::Mean;
        let pause = if known { TELLS_EVERY } else { ASKED_EVERY };
        self.due_at = Nanos(clock::now().0.saturating_add(pause.0));
    }

    /// A launch ran for so long. Returns what is to be charged for earlier ones that were charged by guess.
    #[allow(clippy::cast_possible_truncation, reason = "a time; it saturates")]
    fn learn(&self, asked: &Asked, ns: f64) -> i64 {
        let mut parts = Parts::default();
        // It was changed since, or its times are in part the host's.
        if asked.restarts != self.estimate.restarts() || asked.held_up || !parts.add(self.estimate, 1) {
            return 0;
        }
        let alone = asked.gpu.neighbours().were_quiet_since(&asked.beside);
        let elsewhere = asked.context.flight.given_elsewhere(asked.stream);
        let owed = match asked.elsewhere.is_some() && asked.elsewhere == elsewhere {
            true if alone => parts.learn(Took::exactly(ns)),
            _ if alone || asked.gpu.overlaps() => parts.bound(ns, Bound::AtOnce),
            _ => parts.bound(ns, Bound::Most),
        };
        owed as i64
    }

    /// The graph goes by its begin and end. What is under way still tells when it is over.
    fn stop(&mut self) {
        self.estimate.set_pauses(false);
        self.stale = true;
    }

    fn asks_no_more(&mut self) {
        let asked = self.asked.take().is_some();
        AWAITED.fetch_sub(u32::from(asked), Ordering::Relaxed);
    }
}

/// A stream, told apart from one that had its handle before.
fn place(stream: Stream) -> (u64, u64) {
    (stream.key(), STREAMS_GONE.load(Ordering::Relaxed))
}
