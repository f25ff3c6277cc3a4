//! The rows of graphs, and of the captures that make them.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};

use weir_abi::types::*;

use crate::driver::Stream;
use crate::hooks::{capture, graph, graph_memory, graph_nodes};

driver_hooks! {
    // Graphs.

    /// Prices the new executable graph by its nodes.
    fn cuGraphInstantiate(exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, size: usize)
        = |call| graph::instantiate(exec, graph, 0, call);
    /// As above, CUDA 11.
    fn cuGraphInstantiate_v2(exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, size: usize)
        = |call| graph::instantiate(exec, graph, 0, call);
    /// As above, CUDA 12.
    fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong)
        = |call| graph::instantiate(exec, graph, flags, call);
    /// As above, with parameters.
    fn cuGraphInstantiateWithParams(exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS)
        = |call| graph::instantiate(exec, graph, graph::flags_of(params), call);
    /// As above.
    fn cuGraphInstantiateWithParams_ptsz(exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS)
        = |call| graph::instantiate(exec, graph, graph::flags_of(params), call);
    /// Prices the executable graph anew.
    fn cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, result: *mut CUgraphExecUpdateResult)
        = |call| graph::update(exec, graph, call);
    /// As above, CUDA 12.
    fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, result: *mut CUgraphExecUpdateResultInfo)
        = |call| graph::update(exec, graph, call);
    /// Prices one node anew.
    fn cuGraphExecKernelNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1)
        = |call| graph::set_node(exec, node, graph_nodes::KernelNode::v1(params), call);
    /// As above, CUDA 12.
    fn cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS)
        = |call| graph::set_node(exec, node, graph_nodes::KernelNode::v2(params), call);
    /// Prices one node anew, of whatever kind it is.
    fn cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams)
        = |call| graph::set_any(exec, node, params, call);
    /// Prices the nodes of the child graph anew.
    fn cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph)
        = |call| graph::set_child(exec, node, child, call);
    /// A node that is disabled costs nothing.
    fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint)
        = |call| graph::enable(exec, node, enabled != 0, call);
    /// Counts what the node copies from now on.
    fn cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMCPY3D, context: CUcontext)
        = |call| graph::set_memcpy(exec, node, params, call);
    /// As above.
    fn cuGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext) = |call| graph::set_memset(exec, node, params, call);
    /// A graph that is split is so no longer.
    fn cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS)
        = |call| graph::changed(exec, call);
    /// As above.
    fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent)
        = |call| graph::changed(exec, call);
    /// As above.
    fn cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent)
        = |call| graph::changed(exec, call);
    /// As above.
    fn cuGraphExecExternalSemaphoresSignalNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const c_void)
        = |call| graph::changed(exec, call);
    /// As above.
    fn cuGraphExecExternalSemaphoresWaitNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const c_void)
        = |call| graph::changed(exec, call);
    /// As above.
    fn cuGraphExecBatchMemOpNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const c_void)
        = |call| graph::changed(exec, call);
    /// Learns the bodies of a conditional node.
    fn cuGraphAddNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        params: *mut CUgraphNodeParams) = |call| graph::add_node(node, params, call);
    /// As above, CUDA 12.3.
    fn cuGraphAddNode_v2(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, params: *mut CUgraphNodeParams)
        = |call| graph::add_node(node, params, call);
    /// As above, CUDA 13.4.
    fn cuGraphAddNode_v3(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, params: *mut CUgraphNodeParams)
        = |call| graph::add_node(node, params, call);
    /// Charges the memory that its allocation nodes take.
    fn cuGraphUpload(exec: CUgraphExec, stream: CUstream)
        = |call| graph_memory::upload(Stream::legacy(stream), exec, call);
    /// As above; the null stream is the thread's own.
    fn cuGraphUpload_ptsz(exec: CUgraphExec, stream: CUstream)
        = |call| graph_memory::upload(Stream::per_thread(stream), exec, call);
    /// What the device's graphs have reserved is read anew.
    fn cuDeviceGraphMemTrim(device: CUdevice) = |call| graph_memory::trim(device, call);
    /// Forgets the executable graph's prices.
    fn cuGraphExecDestroy(exec: CUgraphExec) = |call| graph::destroy(exec, call);

    // Capture: while a stream captures, nothing of ours waits or records there.

    /// Counts a capture in.
    fn cuStreamBeginCapture(stream: CUstream) = |call| capture::begin(Stream::legacy(stream), call);
    /// Counts a capture in.
    fn cuStreamBeginCapture_ptsz(stream: CUstream) = |call| capture::begin(Stream::per_thread(stream), call);
    /// Counts a capture in.
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode)
        = |call| capture::begin(Stream::legacy(stream), call);
    /// Counts a capture in.
    fn cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: CUstreamCaptureMode)
        = |call| capture::begin(Stream::per_thread(stream), call);
    /// Counts a capture in.
    fn cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode)
        = |call| capture::begin(Stream::legacy(stream), call);
    /// Counts a capture in.
    fn cuStreamBeginCaptureToGraph_ptsz(stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode)
        = |call| capture::begin(Stream::per_thread(stream), call);
    /// Counts a capture in.
    fn cuStreamBeginRecaptureToGraph(stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph, callback: *mut c_void,
        data: *mut c_void) = |call| capture::begin(Stream::legacy(stream), call);
    /// Counts a capture in.
    fn cuStreamBeginRecaptureToGraph_ptsz(stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph,
        callback: *mut c_void, data: *mut c_void) = |call| capture::begin(Stream::per_thread(stream), call);
    /// Counts a capture out, whether it succeeded or was invalidated.
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) = |call| capture::end(Stream::legacy(stream), call);
    /// Counts a capture out.
    fn cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut CUgraph)
        = |call| capture::end(Stream::per_thread(stream), call);
}
