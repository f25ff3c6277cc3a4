//! The driver calls that instantiate, launch and update graphs.

use std::ffi::*;
use std::ptr;

use weir_abi::types::*;

use super::check::check;
use super::exec::{self, Exec};
use super::{nodes, of, place_of};
use crate::api::Driver;
use crate::edge::{Answer, get, put, put_optional};
use crate::work::Work;
use crate::{capture, event, host_time, stream};

fn instantiate(out: *mut CUgraphExec, graph: CUgraph, flags: u64) -> Result<(), Failure> {
    let graph = of(graph)?;
    check(graph, flags).map_err(|(result, place)| Failure {
        code: CUDA_ERROR_INVALID_VALUE,
        result,
        place,
    })?;
    Ok(put(out, Exec::create(graph, flags)?.handle.raw())?)
}

/// Why an instantiation failed.
struct Failure {
    code: CUresult,
    result: CUgraphInstantiateResult,
    place: Option<usize>,
}

impl From<CUresult> for Failure {
    fn from(code: CUresult) -> Self {
        Self { code, result: CUDA_GRAPH_INSTANTIATE_ERROR, place: None }
    }
}

/// A node by its place. It must be of the graph that the executable one was made of.
fn place_in(exec: &Exec, node: CUgraphNode) -> Answer<usize> {
    let at = place_of(node)?;
    if ptr::eq(at.graph, exec.source) { Ok(at.place) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

fn write_exec(exec: CUgraphExec, node: CUgraphNode, work: Work) -> Answer {
    let exec = exec::of(exec)?;
    exec.set_work(place_in(exec, node)?, work)
}

fn update(exec: CUgraphExec, graph: CUgraph) -> Answer<CUgraphExecUpdateResultInfo> {
    let graph = of(graph)?;
    let (result, place) = exec::of(exec)?.update(graph).err().unwrap_or((CU_GRAPH_EXEC_UPDATE_SUCCESS, None));
    let error_node = place.map_or(Ok(ptr::null_mut()), |place| graph.node_handle(place))?;
    Ok(CUgraphExecUpdateResultInfo { result, error_node, error_from_node: ptr::null_mut() })
}

fn verdict(result: CUgraphExecUpdateResult) -> Answer {
    if result == CU_GRAPH_EXEC_UPDATE_SUCCESS { Ok(()) } else { Err(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) }
}

impl Driver {
    pub fn cuGraphInstantiate(
        out: *mut CUgraphExec,
        graph: CUgraph,
        error_node: *mut CUgraphNode,
        _log: *mut c_char,
        _room: usize,
    ) -> Answer {
        put_optional(error_node, ptr::null_mut());
        Self::cuGraphInstantiateWithFlags(out, graph, 0)
    }

    pub fn cuGraphInstantiate_v2(
        out: *mut CUgraphExec,
        graph: CUgraph,
        error_node: *mut CUgraphNode,
        log: *mut c_char,
        room: usize,
    ) -> Answer {
        Self::cuGraphInstantiate(out, graph, error_node, log, room)
    }

    pub fn cuGraphInstantiateWithFlags(out: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) -> Answer {
        if flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE); // it has no stream to say where
        }
        instantiate(out, graph, flags).map_err(|failure| failure.code)
    }

    pub fn cuGraphInstantiateWithParams(
        out: *mut CUgraphExec,
        graph: CUgraph,
        params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) -> Answer {
        let asked = get(params.cast_const())?;
        let made = instantiate(out, graph, asked.flags);
        let (result_out, place) = match &made {
            Ok(()) => (CUDA_GRAPH_INSTANTIATE_SUCCESS, None),
            Err(failure) => (failure.result, failure.place),
        };
        let err_node_out = place.map_or(Ok(ptr::null_mut()), |place| of(graph)?.node_handle(place))?;
        put(params, CUDA_GRAPH_INSTANTIATE_PARAMS { err_node_out, result_out, ..asked })?;
        made.map_err(|failure| failure.code)?;
        if asked.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD == 0 {
            return Ok(());
        }
        Self::cuGraphUpload(get(out.cast_const())?, asked.upload_stream)
    }

    pub fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> Answer {
        let (exec, stream) = (exec::of(exec)?, stream::of(stream)?);
        if capture::any() && capture::captures(stream)? {
            capture::take(stream, &nodes::child(exec.graph()?)?).map(drop)
        } else {
            let _takes = host_time::takes(|session| session.config().graph_cpu_ns)?;
            exec.launch(stream)
        }
    }

    pub fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) -> Answer {
        stream::of(stream)?;
        exec::of(exec)?.back_memory()
    }

    pub fn cuGraphExecDestroy(exec: CUgraphExec) -> Answer {
        exec::of(exec)?.destroy()
    }

    pub fn cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut c_ulonglong) -> Answer {
        put(flags, exec::of(exec)?.flags)
    }

    pub fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) -> Answer {
        let exec = exec::of(exec)?;
        exec.set_enabled(place_in(exec, node)?, enabled != 0)
    }

    pub fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint) -> Answer {
        let exec = exec::of(exec)?;
        put(enabled, exec.is_enabled(place_in(exec, node)?)?.into())
    }

    pub fn cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> Answer {
        write_exec(exec, node, nodes::older_kernel(&get(params)?)?)
    }

    pub fn cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> Answer {
        write_exec(exec, node, nodes::kernel(&get(params)?)?)
    }

    pub fn cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_MEMCPY3D,
        _context: CUcontext,
    ) -> Answer {
        write_exec(exec, node, nodes::copy(&get(params)?)?)
    }

    pub fn cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_MEMSET_NODE_PARAMS,
        _context: CUcontext,
    ) -> Answer {
        write_exec(exec, node, nodes::fill(&get(params)?)?)
    }

    pub fn cuGraphExecHostNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_HOST_NODE_PARAMS,
    ) -> Answer {
        write_exec(exec, node, nodes::host(&get(params)?)?)
    }

    pub fn cuGraphExecBatchMemOpNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const c_void,
    ) -> Answer {
        write_exec(exec, node, nodes::batch(params)?)
    }

    pub fn cuGraphExecChildGraphNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        child: CUgraph,
    ) -> Answer {
        write_exec(exec, node, nodes::child(of(child)?)?)
    }

    pub fn cuGraphExecEventRecordNodeSetEvent(
        exec: CUgraphExec,
        node: CUgraphNode,
        event: CUevent,
    ) -> Answer {
        write_exec(exec, node, Work::Record(event::of(event)?))
    }

    pub fn cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Answer {
        write_exec(exec, node, Work::Wait(event::of(event)?))
    }

    pub fn cuGraphExecNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *mut CUgraphNodeParams,
    ) -> Answer {
        write_exec(exec, node, nodes::any(&mut get(params.cast_const())?)?)
    }

    pub fn cuGraphExecUpdate(
        exec: CUgraphExec,
        graph: CUgraph,
        error_node: *mut CUgraphNode,
        result: *mut CUgraphExecUpdateResult,
    ) -> Answer {
        let info = update(exec, graph)?;
        put_optional(error_node, info.error_node);
        put(result, info.result)?;
        verdict(info.result)
    }

    pub fn cuGraphExecUpdate_v2(
        exec: CUgraphExec,
        graph: CUgraph,
        out: *mut CUgraphExecUpdateResultInfo,
    ) -> Answer {
        let info = update(exec, graph)?;
        put(out, info)?;
        verdict(info.result)
    }
}
