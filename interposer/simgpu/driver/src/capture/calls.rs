//! The driver calls on captures.

use std::cell::Cell;
use std::ffi::*;
use std::ptr;

use weir_abi::types::*;

use super::{any, begin, end, implicit};
use crate::api::Driver;
use crate::edge::{Answer, get, list, put, put_optional};
use crate::graph;
use crate::{locked, stream};

/// What a stream's capture looks like from outside.
struct Info {
    status: CUstreamCaptureStatus,
    id: u64,
    graph: CUgraph,
    after: Vec<CUgraphNode>,
}

fn info(stream: CUstream) -> Answer<Info> {
    let stream = stream::of(stream)?;
    let none =
        Info { status: CU_STREAM_CAPTURE_STATUS_NONE, id: 0, graph: ptr::null_mut(), after: Vec::new() };
    let membership = locked(&stream.capture);
    let Some(member) = membership.as_ref() else {
        drop(membership);
        if any() && stream.is_legacy() {
            implicit(stream)?;
        }
        return Ok(none);
    };
    let (capture, graph) = (member.capture, member.capture.graph);
    if capture.check().is_err() {
        return Ok(Info { status: CU_STREAM_CAPTURE_STATUS_INVALIDATED, ..none });
    }
    let after = member.after.iter().map(|node| graph.node_handle(*node)).collect::<Answer<_>>()?;
    Ok(Info { status: CU_STREAM_CAPTURE_STATUS_ACTIVE, id: capture.id, graph: graph.handle.raw(), after })
}

thread_local! {
    /// Where `cuStreamGetCaptureInfo` keeps the list that it hands out; good until the thread's next call.
    static LISTED: Cell<*mut [CUgraphNode]> = const { Cell::new(ptr::slice_from_raw_parts_mut(ptr::null_mut(), 0)) };
}

/// Keeps `nodes` for the caller and answers where.
fn keep(nodes: Vec<CUgraphNode>) -> *const CUgraphNode {
    let fresh = Box::into_raw(nodes.into_boxed_slice());
    let before = LISTED.replace(fresh);
    if !before.is_null() {
        // SAFETY: made by `Box::into_raw` on this thread, and replaced above: nobody else frees it.
        drop(unsafe { Box::from_raw(before) });
    }
    fresh.cast()
}

fn put_info(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut c_ulonglong,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    count: *mut usize,
) -> Answer {
    let info = info(stream)?;
    put(status, info.status)?;
    put_optional(id, info.id);
    put_optional(graph, info.graph);
    put_optional(count, info.after.len());
    if !nodes.is_null() {
        put(nodes, keep(info.after))?;
    }
    Ok(())
}

impl Driver {
    pub fn cuStreamBeginCapture(stream: CUstream) -> Answer {
        Self::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
    }

    pub fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) -> Answer {
        begin(stream::of(stream)?, mode, graph::create()?, true, Vec::new())
    }

    pub fn cuStreamBeginCaptureToGraph(
        stream: CUstream,
        graph: CUgraph,
        after: *const CUgraphNode,
        _edges: *const CUgraphEdgeData,
        count: usize,
        mode: CUstreamCaptureMode,
    ) -> Answer {
        let graph = graph::of(graph)?;
        let after = graph.places(list(after, count)?)?;
        begin(stream::of(stream)?, mode, graph, false, after)
    }

    pub fn cuStreamEndCapture(stream: CUstream, out: *mut CUgraph) -> Answer {
        let graph = end(stream::of(stream)?);
        put(out, graph.map_or(ptr::null_mut(), |graph| graph.handle.raw()))?;
        graph.map(drop)
    }

    pub fn cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) -> Answer {
        put(status, info(stream)?.status)
    }

    pub fn cuStreamGetCaptureInfo(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut c_ulonglong,
    ) -> Answer {
        put_info(stream, status, id, ptr::null_mut(), ptr::null_mut(), ptr::null_mut())
    }

    pub fn cuStreamGetCaptureInfo_v2(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut c_ulonglong,
        graph: *mut CUgraph,
        nodes: *mut *const CUgraphNode,
        count: *mut usize,
    ) -> Answer {
        put_info(stream, status, id, graph, nodes, count)
    }

    pub fn cuStreamGetCaptureInfo_v3(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut c_ulonglong,
        graph: *mut CUgraph,
        nodes: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        count: *mut usize,
    ) -> Answer {
        put_optional(edges, ptr::null()); // every edge is an ordinary one
        put_info(stream, status, id, graph, nodes, count)
    }

    pub fn cuStreamUpdateCaptureDependencies(
        stream: CUstream,
        nodes: *mut CUgraphNode,
        count: usize,
        flags: c_uint,
    ) -> Answer {
        let stream = stream::of(stream)?;
        let mut membership = locked(&stream.capture);
        let member = membership.as_mut().ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        let places = member.capture.graph.places(list(nodes.cast_const(), count)?)?;
        match flags {
            0 => member.after.extend(places),
            1 => member.after = places,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }

    pub fn cuStreamUpdateCaptureDependencies_v2(
        stream: CUstream,
        nodes: *mut CUgraphNode,
        _edges: *const CUgraphEdgeData,
        count: usize,
        flags: c_uint,
    ) -> Answer {
        Self::cuStreamUpdateCaptureDependencies(stream, nodes, count, flags)
    }

    pub fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) -> Answer {
        let before = super::exchange_mode(get(mode)?)?;
        put(mode, before)
    }
}
