//! Structures of graphs and of memory operations in streams.

use std::ffi::{c_int, c_longlong, c_uchar, c_uint, c_ulonglong, c_void};

use super::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUevent,
    CUgraph, CUgraphConditionalHandle, CUgraphConditionalNodeType, CUgraphExecUpdateResult,
    CUgraphInstantiateResult, CUgraphNode, CUgraphNodeType, CUhostFn, CUstream, CUstreamBatchMemOpType,
};

/// A memset node.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEMSET_NODE_PARAMS {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: c_uint,
    pub element_size: c_uint,
    pub width: usize,
    pub height: usize,
}

/// A memset node with the context it runs in.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEMSET_NODE_PARAMS_v2 {
    pub memset: CUDA_MEMSET_NODE_PARAMS,
    pub ctx: CUcontext,
}

/// A host node.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_HOST_NODE_PARAMS {
    pub func: CUhostFn,
    pub user_data: *mut c_void,
}

/// A copy node of the generic node calls.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEMCPY_NODE_PARAMS {
    pub flags: c_int,
    pub reserved: c_int,
    pub copy_ctx: CUcontext,
    pub copy_params: CUDA_MEMCPY3D,
}

/// Any node, for `cuGraphAddNode` and its kin; `kind` says which member holds.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUgraphNodeParams {
    pub kind: CUgraphNodeType,
    pub reserved0: [c_int; 3],
    pub node: CUgraphNodeUnion,
    pub reserved2: c_longlong,
}

/// The members of [`CUgraphNodeParams`] that we read.
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUgraphNodeUnion {
    pub reserved1: [c_longlong; 29],
    pub kernel: CUDA_KERNEL_NODE_PARAMS,
    pub memcpy: CUDA_MEMCPY_NODE_PARAMS,
    pub memset: CUDA_MEMSET_NODE_PARAMS_v2,
    pub host: CUDA_HOST_NODE_PARAMS,
    pub graph: CUgraph,
    pub event: CUevent,
    pub alloc: CUDA_MEM_ALLOC_NODE_PARAMS,
    pub free: CUdeviceptr,
    pub conditional: CUDA_CONDITIONAL_NODE_PARAMS,
}

/// A node that runs one of its bodies, or one of them again and again, as a switch says that the device sets.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_CONDITIONAL_NODE_PARAMS {
    pub handle: CUgraphConditionalHandle,
    pub kind: CUgraphConditionalNodeType,
    pub size: c_uint,
    /// The bodies: an array of the driver's own, written when the node is added.
    pub bodies: *mut CUgraph,
    pub ctx: CUcontext,
}

/// What an edge of a graph carries; all zero means "the whole node first".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CUgraphEdgeData {
    pub from_port: c_uchar,
    pub to_port: c_uchar,
    pub kind: c_uchar,
    pub reserved: [c_uchar; 5],
}

/// How to instantiate a graph, and what came of it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    pub flags: c_ulonglong,
    pub upload_stream: CUstream,
    pub err_node_out: CUgraphNode,
    pub result_out: CUgraphInstantiateResult,
}

/// What came of an update of an executable graph.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUgraphExecUpdateResultInfo {
    pub result: CUgraphExecUpdateResult,
    pub error_node: CUgraphNode,
    pub error_from_node: CUgraphNode,
}

/// One operation of `cuStreamBatchMemOp`; waits and writes share this layout.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUstreamBatchMemOpParams {
    pub operation: CUstreamBatchMemOpType,
    pub address: CUdeviceptr,
    pub value: c_ulonglong,
    pub flags: c_uint,
    pub alias: CUdeviceptr,
    pub pad: c_ulonglong,
}
