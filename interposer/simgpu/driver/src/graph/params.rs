//! The driver calls that read and change what a graph's nodes do.

use std::ffi::c_void;

use weir_abi::types::*;

use super::{nodes, place_of};
use crate::api::Driver;
use crate::edge::{Answer, get, put};
use crate::event;
use crate::kept_attributes::OF_KERNEL_NODES;
use crate::work::Work;

fn read<T>(node: CUgraphNode, out: *mut T, describe: impl FnOnce(&Work) -> Option<T>) -> Answer {
    let at = place_of(node)?;
    put(out, at.graph.work(at.place, describe)?)
}

fn write(node: CUgraphNode, work: Work) -> Answer {
    let at = place_of(node)?;
    at.graph.set_work(at.place, work)
}

impl Driver {
    pub fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, out: *mut CUDA_KERNEL_NODE_PARAMS) -> Answer {
        read(node, out, nodes::describe_kernel)
    }

    pub fn cuGraphKernelNodeSetParams(
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> Answer {
        write(node, nodes::older_kernel(&get(params)?)?)
    }

    pub fn cuGraphKernelNodeSetParams_v2(
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> Answer {
        write(node, nodes::kernel(&get(params)?)?)
    }

    pub fn cuGraphKernelNodeGetAttribute(
        node: CUgraphNode,
        id: CUlaunchAttributeID,
        out: *mut CUlaunchAttributeValue,
    ) -> Answer {
        let at = place_of(node)?;
        put(out.cast(), at.graph.kept(at.place, |kept| kept.get(OF_KERNEL_NODES, id))?)
    }

    pub fn cuGraphKernelNodeSetAttribute(
        node: CUgraphNode,
        id: CUlaunchAttributeID,
        value: *const CUlaunchAttributeValue,
    ) -> Answer {
        let (at, value) = (place_of(node)?, get(value.cast())?);
        at.graph.kept(at.place, |kept| kept.set(OF_KERNEL_NODES, id, value))
    }

    pub fn cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode) -> Answer {
        let (to, from) = (place_of(dst)?, place_of(src)?);
        let copied = from.graph.kept(from.place, |kept| Ok(kept.clone()))?;
        to.graph.kept(to.place, |kept| {
            *kept = copied;
            Ok(())
        })
    }

    pub fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, out: *mut CUDA_MEMCPY3D) -> Answer {
        read(node, out, nodes::describe_copy)
    }

    pub fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMCPY3D) -> Answer {
        write(node, nodes::copy(&get(params)?)?)
    }

    pub fn cuGraphMemsetNodeGetParams(node: CUgraphNode, out: *mut CUDA_MEMSET_NODE_PARAMS) -> Answer {
        read(node, out, nodes::describe_fill)
    }

    pub fn cuGraphMemsetNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS) -> Answer {
        write(node, nodes::fill(&get(params)?)?)
    }

    pub fn cuGraphHostNodeGetParams(node: CUgraphNode, out: *mut CUDA_HOST_NODE_PARAMS) -> Answer {
        read(node, out, nodes::describe_host)
    }

    pub fn cuGraphHostNodeSetParams(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS) -> Answer {
        write(node, nodes::host(&get(params)?)?)
    }

    pub fn cuGraphBatchMemOpNodeSetParams(node: CUgraphNode, params: *const c_void) -> Answer {
        write(node, nodes::batch(params)?)
    }

    pub fn cuGraphNodeGetType(node: CUgraphNode, out: *mut CUgraphNodeType) -> Answer {
        read(node, out, |work| Some(work.node_type()))
    }

    pub fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, out: *mut CUgraph) -> Answer {
        read(node, out, |work| if let Work::Child(graph) = work { Some(graph.handle.raw()) } else { None })
    }

    pub fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, out: *mut CUevent) -> Answer {
        read(node, out, |work| if let Work::Record(event) = work { Some(event.handle.raw()) } else { None })
    }

    pub fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) -> Answer {
        write(node, Work::Record(event::of(event)?))
    }

    pub fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, out: *mut CUevent) -> Answer {
        read(node, out, |work| if let Work::Wait(event) = work { Some(event.handle.raw()) } else { None })
    }

    pub fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) -> Answer {
        write(node, Work::Wait(event::of(event)?))
    }

    pub fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, out: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> Answer {
        read(node, out, nodes::describe_alloc)
    }

    pub fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, out: *mut CUdeviceptr) -> Answer {
        read(node, out, |work| if let Work::Free { address } = work { Some(*address) } else { None })
    }

    pub fn cuGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams) -> Answer {
        write(node, nodes::any(&mut get(params.cast_const())?)?)
    }
}
