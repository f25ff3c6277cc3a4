//! Graphs and green contexts, beyond what every client of the benchmarks does.

use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use weir_abi::types::*;
use weir_abi::{CUresult, fns};

use crate::client::ClientError;

/// The driver's functions for them, looked up as they are needed.
pub struct Graphs(Library);

macro_rules! call {
    ($graphs:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the symbol is given the type that weir-abi's table has for it.
        let function = unsafe { $graphs.0.get::<fns::$function>(concat!(stringify!($function), "\0").as_bytes()) }?;
        // SAFETY: handles that the driver gave out, and places for answers.
        check(stringify!($function), unsafe { function($($argument),*) })?
    }};
}

fn check(call: &'static str, result: CUresult) -> Result<(), ClientError> {
    if result == CUDA_SUCCESS { Ok(()) } else { Err(ClientError::Call { call, result }) }
}

impl Graphs {
    /// Opens the driver, which a client has opened before.
    pub fn open() -> Result<Self, ClientError> {
        // SAFETY: its constructors have run.
        Ok(Self(unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL) }?))
    }

    /// What `work` puts into a stream, as a graph.
    pub fn capture(
        &self,
        stream: CUstream,
        work: impl FnOnce() -> Result<(), ClientError>,
    ) -> Result<CUgraph, ClientError> {
        let mut graph = null_mut();
        call!(self, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        work()?;
        call!(self, cuStreamEndCapture(stream, &raw mut graph));
        Ok(graph)
    }

    /// A graph made executable.
    pub fn instantiate(&self, graph: CUgraph) -> Result<CUgraphExec, ClientError> {
        let mut exec = null_mut();
        call!(self, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        Ok(exec)
    }

    /// A graph that has two others inside, one after the other.
    pub fn around(&self, children: [CUgraph; 2]) -> Result<CUgraph, ClientError> {
        let (mut graph, mut first, mut second) = (null_mut(), null_mut(), null_mut());
        call!(self, cuGraphCreate(&raw mut graph, 0));
        call!(self, cuGraphAddChildGraphNode(&raw mut first, graph, std::ptr::null(), 0, children[0]));
        call!(self, cuGraphAddChildGraphNode(&raw mut second, graph, &raw const first, 1, children[1]));
        Ok(graph)
    }

    /// Gives an executable graph the parameters of a graph of the same shape.
    pub fn update(&self, exec: CUgraphExec, graph: CUgraph) -> Result<(), ClientError> {
        let mut info =
            CUgraphExecUpdateResultInfo { result: 0, error_node: null_mut(), error_from_node: null_mut() };
        call!(self, cuGraphExecUpdate_v2(exec, graph, &raw mut info));
        Ok(())
    }

    /// Lets one stream wait for what another has so far: how a capture forks and joins.
    pub fn follow(&self, stream: CUstream, other: CUstream) -> Result<(), ClientError> {
        let mut event = null_mut();
        call!(self, cuEventCreate(&raw mut event, CU_EVENT_DISABLE_TIMING));
        call!(self, cuEventRecord(event, other));
        call!(self, cuStreamWaitEvent(stream, event, 0));
        call!(self, cuEventDestroy_v2(event));
        Ok(())
    }

    /// A stream in a green context of so many SMs.
    pub fn green_stream(&self, sms: u32) -> Result<CUstream, ClientError> {
        // SAFETY: all-zero is a valid value of this plain structure.
        let (mut all, mut part): (CUdevResource, CUdevResource) = unsafe { std::mem::zeroed() };
        let (mut description, mut green, mut stream, mut groups) = (null_mut(), null_mut(), null_mut(), 1);
        let place = |resource: &mut CUdevResource| &raw mut *resource;
        call!(self, cuDeviceGetDevResource(0, place(&mut all), CU_DEV_RESOURCE_TYPE_SM));
        let (parts, whole) = (place(&mut part), place(&mut all));
        call!(self, cuDevSmResourceSplitByCount(parts, &raw mut groups, whole, null_mut(), 0, sms));
        call!(self, cuDevResourceGenerateDesc(&raw mut description, parts, 1));
        call!(self, cuGreenCtxCreate(&raw mut green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        call!(self, cuGreenCtxStreamCreate(&raw mut stream, green, CU_STREAM_NON_BLOCKING, 0));
        Ok(stream)
    }
}
