//! Stream capture: work goes into a graph instead of to the GPU.
//!
//! A capture begins in one stream and spreads to every stream that waits for one of its events. While any is
//! live, calls that a capture cannot record are refused, and break it; which threads' calls count depends on
//! its mode. With no live capture in the process all of this is one load.

mod calls;

use std::cell::Cell;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use weir_abi::types::*;

use crate::edge::Answer;
use crate::graph::{self, Graph};
use crate::stream::{self, Stream};
use crate::work::Work;
use crate::{locked, session};

/// Captures in progress in this process: the fast path's one load.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static CAPTURES: Mutex<Vec<&'static Capture>> = Mutex::new(Vec::new());

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// One capture.
pub struct Capture {
    id: u64,
    mode: CUstreamCaptureMode,
    thread: u64,
    graph: &'static Graph,
    owns_graph: bool,
    broken: AtomicBool,
}

/// A stream's part in a capture: the nodes that its next one comes after.
#[derive(Clone)]
pub struct Membership {
    capture: &'static Capture,
    after: Vec<usize>,
    joined: bool,
}

/// What an event remembers when it was recorded in a capture.
#[derive(Clone)]
pub struct Mark {
    capture: &'static Capture,
    after: Vec<usize>,
}

impl Capture {
    fn break_off(&self) {
        self.broken.store(true, Ordering::Release);
    }

    fn check(&self) -> Answer {
        if self.broken.load(Ordering::Acquire) { Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
    }
}

/// Adds work to the stream's capture. `false`: the stream does not capture, the work is the caller's to do.
#[inline]
pub fn take(stream: &'static Stream, work: &Work) -> Answer<bool> {
    // Acquire pairs with `begin`: who learnt of a capture from its beginner sees it here.
    if LIVE.load(Ordering::Acquire) == 0 {
        Ok(false)
    } else {
        take_slow(stream, work).map(|node| node.is_some())
    }
}

/// As [`take`], answering the new node's place.
pub fn take_slow(stream: &'static Stream, work: &Work) -> Answer<Option<usize>> {
    let mut membership = locked(&stream.capture);
    let Some(member) = membership.as_mut() else { return implicit(stream).map(|()| None) };
    member.capture.check()?;
    let node = member.capture.graph.add(work.clone(), std::mem::take(&mut member.after));
    member.after = vec![node];
    Ok(Some(node))
}

/// Whether a stream captures; of the legacy one asking is an error while a blocking stream does.
pub fn captures(stream: &'static Stream) -> Answer<bool> {
    if locked(&stream.capture).is_some() { Ok(true) } else { implicit(stream).map(|()| false) }
}

/// Whether anything captures in this process.
pub fn any() -> bool {
    LIVE.load(Ordering::Acquire) != 0
}

/// Work on the legacy stream would wait for blocking streams; while one captures that is an error.
fn implicit(stream: &'static Stream) -> Answer {
    if !stream.is_legacy() {
        return Ok(());
    }
    let depends = |other: &Stream| other.is_blocking() && locked(&other.capture).is_some();
    let Some(other) = stream::all_of(stream.context).filter(|s| !s.is_legacy()).find(|s| depends(s)) else {
        return Ok(());
    };
    if let Some(member) = locked(&other.capture).as_ref() {
        member.capture.break_off();
    }
    Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
}

/// The mark for an event that is recorded in a capturing stream.
pub fn mark(stream: &'static Stream) -> Answer<Option<Mark>> {
    if !any() {
        return Ok(None);
    }
    let membership = locked(&stream.capture);
    let Some(member) = membership.as_ref() else { return Ok(None) };
    member.capture.check()?;
    Ok(Some(Mark { capture: member.capture, after: member.after.clone() }))
}

/// A stream waits for an event of a capture: it joins, or adds the event's nodes to what it comes after.
pub fn join(stream: &'static Stream, mark: &Mark) -> Answer {
    mark.capture.check()?;
    let mut membership = locked(&stream.capture);
    match membership.as_mut() {
        None => {
            *membership = Some(Membership { capture: mark.capture, after: mark.after.clone(), joined: true })
        }
        Some(member) if ptr::eq(member.capture, mark.capture) => {
            let fresh: Vec<usize> =
                mark.after.iter().filter(|node| !member.after.contains(node)).copied().collect();
            member.after.extend(fresh);
        }
        Some(member) => {
            member.capture.break_off();
            mark.capture.break_off();
            return Err(CUDA_ERROR_STREAM_CAPTURE_MERGE);
        }
    }
    Ok(())
}

/// Refuses a call on a stream that captures, and breaks the capture: waits and queries cannot be recorded.
pub fn forbid_in(stream: &'static Stream) -> Answer {
    if !any() {
        return Ok(());
    }
    match locked(&stream.capture).as_ref() {
        None => implicit(stream),
        Some(member) => {
            member.capture.break_off();
            Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// Refuses a call that may not happen beside a capture: a relaxed thread may; a thread-local one minds its own
/// captures; else every capture begun in global mode counts, whichever thread began it.
#[inline]
pub fn forbid_unsafe() -> Answer {
    if any() { forbid_unsafe_slow() } else { Ok(()) }
}

#[cold]
fn forbid_unsafe_slow() -> Answer {
    let own_mode = MODE.get();
    if own_mode == CU_STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    let thread = session::thread();
    let minds = |capture: &&&Capture| {
        let own = capture.thread == thread && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        let others =
            own_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        own || others
    };
    match locked(&CAPTURES).iter().find(minds) {
        None => Ok(()),
        Some(capture) => {
            capture.break_off();
            Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// Swaps the calling thread's mode.
pub fn exchange_mode(mode: CUstreamCaptureMode) -> Answer<CUstreamCaptureMode> {
    if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(MODE.replace(mode))
}

/// Breaks the capture that a stream takes part in: it was asked to wait for work outside of it.
pub fn break_isolated(stream: &'static Stream) {
    if let Some(member) = locked(&stream.capture).as_ref() {
        member.capture.break_off();
    }
}

/// A stream that takes part in a capture goes away: the capture is broken.
pub fn forget(stream: &'static Stream) {
    if let Some(member) = locked(&stream.capture).take() {
        member.capture.break_off();
    }
}

fn begin(
    stream: &'static Stream,
    mode: CUstreamCaptureMode,
    graph: &'static Graph,
    owns_graph: bool,
    after: Vec<usize>,
) -> Answer {
    static IDS: AtomicU64 = AtomicU64::new(1);
    if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if stream.is_legacy() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut membership = locked(&stream.capture);
    if membership.is_some() {
        return Err(CUDA_ERROR_ILLEGAL_STATE);
    }
    // Some ten words each, and never freed: events may hold on to a capture long after its end.
    let capture: &'static Capture = Box::leak(Box::new(Capture {
        id: IDS.fetch_add(1, Ordering::Relaxed),
        mode,
        thread: session::thread(),
        graph,
        owns_graph,
        broken: AtomicBool::new(false),
    }));
    *membership = Some(Membership { capture, after, joined: false });
    locked(&CAPTURES).push(capture);
    LIVE.fetch_add(1, Ordering::Release);
    Ok(())
}

fn end(stream: &'static Stream) -> Answer<&'static Graph> {
    let member = locked(&stream.capture).clone().ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    let capture = member.capture;
    if member.joined {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != session::thread() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    let joined = release_streams(stream, capture);
    locked(&CAPTURES).retain(|other| !ptr::eq(*other, capture));
    LIVE.fetch_sub(1, Ordering::Release);
    let unjoined = joined.iter().any(|after| !capture.graph.reaches(after, &member.after));
    let verdict =
        capture.check().and(if unjoined { Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED) } else { Ok(()) });
    if verdict.is_err() && capture.owns_graph {
        graph::destroy(capture.graph)?;
    }
    verdict.map(|()| capture.graph)
}

/// Takes every stream out of the capture; answers what the joined ones had come to.
fn release_streams(origin: &'static Stream, capture: &'static Capture) -> Vec<Vec<usize>> {
    let members = stream::all_of(origin.context).filter_map(|stream| {
        let mut membership = locked(&stream.capture);
        membership.take_if(|member| ptr::eq(member.capture, capture))
    });
    members.filter(|member| member.joined).map(|member| member.after).collect()
}
