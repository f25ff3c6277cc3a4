//! The driver calls that instantiate, launch and update graphs.

use std::ffi::*;
use std::ptr;

use weir_abi::types::*;

use super::exec::{self, Exec};
use super::{nodes, of, place_of};
use crate::api::Driver;
use crate::edge::{Answer, get, put, put_optional};
use crate::work::Work;
use crate::{capture, event, stream};

fn instantiate(out: *mut CUgraphExec, graph: CUgraph) -> Answer {
    put(out, Exec::create(of(graph)?)?.handle.raw())
}

fn write_exec(exec: CUgraphExec, node: CUgraphNode, work: Work) -> Answer {
    exec::of(exec)?.set_work(place_of(node)?.place, work)
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
        instantiate(out, graph)
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

    pub fn cuGraphInstantiateWithFlags(out: *mut CUgraphExec, graph: CUgraph, _flags: c_ulonglong) -> Answer {
        instantiate(out, graph)
    }

    pub fn cuGraphInstantiateWithParams(
        out: *mut CUgraphExec,
        graph: CUgraph,
        params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) -> Answer {
        let asked = get(params.cast_const())?;
        let made = instantiate(out, graph);
        let result_out =
            if made.is_ok() { CUDA_GRAPH_INSTANTIATE_SUCCESS } else { CUDA_GRAPH_INSTANTIATE_ERROR };
        put(params, CUDA_GRAPH_INSTANTIATE_PARAMS { err_node_out: ptr::null_mut(), result_out, ..asked })?;
        made
    }

    pub fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> Answer {
        let (exec, stream) = (exec::of(exec)?, stream::of(stream)?);
        if capture::any() && capture::take(stream, &Work::Child(exec))? {
            Ok(())
        } else {
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
        exec::of(exec)?;
        put(flags, 0)
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
