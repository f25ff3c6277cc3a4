//! The hooks: every driver function that we stand in for is one row here and one handler in a file of its subject.
//!
//! A row gives the exported symbol, the slot of the real function, the answer to `dlsym`, `dlvsym` and
//! `cuGetProcAddress`, and its line in the documentation. Its type is checked against the driver's by the compiler.
//! See `docs/adding-a-hook.md`.

mod capture;
mod context;
mod context_memory;
mod copy;
mod copy_pieces;
mod external;
mod graph;
mod graph_device;
mod graph_memory;
mod graph_nodes;
mod graph_segments;
mod graph_split;
mod init;
mod launch;
mod memory;
mod meter;
mod multicast;
mod names;
mod nvml;
mod nvml_processes;
mod nvml_structures;
mod oversubscribe;
mod pool;
mod shares;
mod sync;
#[cfg(test)]
mod unhooked;
mod view;
mod vmm;
mod vmm_shares;

pub use capture::forget_all as forget_captures;
pub use context_memory::ContextMemory;
pub use graph::GraphPrices;
pub use graph_memory::GraphMemory;
pub use graph_split::Splits;
pub use launch::launch_price;
pub use meter::{ANYTHING, Hands};
pub use nvml_processes::Utilization;
pub use pool::{Pools, piece_freed};
pub use shares::Shares;
pub use vmm::VirtualMemory;

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use weir_abi::types::*;
use weir_abi::{CUresult, fns, rows};

use crate::driver::Stream;
use crate::resolve::hook::Hook;
use crate::resolve::proc_address;

/// All hooks.
pub const TABLES: [&[Hook]; 3] = [DRIVER_HOOKS, copy_table::DRIVER_HOOKS, nvml::NVML_HOOKS];

/// A symbol as a C string.
macro_rules! c_name {
    ($symbol:ident) => {{
        const NAME: &std::ffi::CStr =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
        NAME
    }};
}
pub(crate) use c_name;

/// Each row: documentation, the driver's function, and the handler. In a handler's arguments `call` stands for the
/// real function with these arguments, to be called once.
macro_rules! driver_hooks {
    ($($(#[doc = $doc:literal])+
       fn $symbol:ident($($arg:ident: $kind:ty),* $(,)?) = |$call:ident| $handler:expr;)+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// # Safety
            /// As the driver's function of this name.
            #[allow(non_snake_case, reason = "hooked functions keep their exact CUDA name")]
            #[cfg_attr(not(any(test, feature = "proxy")), unsafe(no_mangle))]
            pub unsafe extern "C" fn $symbol($($arg: $kind),*) -> CUresult {
                crate::failpoint::enter(stringify!($symbol));
                let Some(real) = real::$symbol.get(c_name!($symbol)) else { return CUDA_ERROR_NOT_FOUND };
                // SAFETY: `real` is the driver's function of this symbol, whose type the table of weir-abi gives.
                let real = unsafe { std::mem::transmute::<*const c_void, fns::$symbol>(real) };
                // SAFETY: the arguments are the caller's own, for this very function.
                let $call = || unsafe { real($($arg),*) };
                $handler
            }
            const _: fns::$symbol = $symbol;
        )+

        /// Each hook's line of documentation.
        #[cfg(test)]
        pub(super) static DRIVER_HOOK_LINES: &[(&str, &str)] = &[$((stringify!($symbol), concat!($($doc),+))),+];

        /// The real function behind each hook.
        mod real {
            #![allow(non_upper_case_globals, reason = "named as the symbol it stands for")]
            use crate::resolve::hook::Real;
            $(pub static $symbol: Real = Real::new();)+
        }

        pub(super) static DRIVER_HOOKS: &[Hook] =
            &[$(Hook::of_driver(c_name!($symbol), &rows::$symbol, $symbol as fns::$symbol as *const c_void, &real::$symbol)),+];
    };
}

// Behind the macro, whose rows it has.
mod copy_table;

/// The lines of all hooks of the driver.
#[cfg(test)]
fn driver_hook_lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    DRIVER_HOOK_LINES.iter().chain(copy_table::DRIVER_HOOK_LINES).copied()
}

/// Position of a launch symbol among the counted ones, found at compile time.
macro_rules! counted {
    ($symbol:ident) => {{
        const AT: usize =
            crate::hooks::position(&weir_protocol::pages::COUNTED_LAUNCHES, stringify!($symbol));
        AT
    }};
}

/// Position of a memory symbol among the counted ones, found at compile time.
macro_rules! memory_call {
    ($symbol:ident) => {{
        const AT: usize =
            crate::hooks::position(&weir_protocol::pages::COUNTED_MEMORY_CALLS, stringify!($symbol));
        AT
    }};
}

/// Where `name` stands in `names`. A name that is not there stops the build.
#[allow(clippy::indexing_slicing, reason = "runs at compile time only")]
const fn position(names: &[&str], name: &str) -> usize {
    let mut at = 0;
    loop {
        assert!(at < names.len(), "this symbol has no counter: add it to the list in weir-protocol");
        if same(names[at].as_bytes(), name.as_bytes()) {
            return at;
        }
        at += 1;
    }
}

#[allow(clippy::indexing_slicing, reason = "runs at compile time only")]
const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

driver_hooks! {
    // Start and look-up.

    /// Attaches to the node manager before the program can do anything on the GPU.
    fn cuInit(flags: c_uint) = |call| init::init(call);
    /// Hands out our function where the driver would hand out its own.
    fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: c_ulonglong)
        = |call| proc_address::v1(call, symbol, pfn, version, flags);
    /// As above, since CUDA 12.
    fn cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: c_ulonglong,
        found: *mut CUdriverProcAddressQueryResult)
        = |call| proc_address::v2(call, symbol, pfn, version, flags, found);

    // Launches.

    /// Charges the kernel's price, waits at the gate if the tenant has spent its share.
    fn cuLaunchKernel(f: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void)
        = |call| launch::kernel(counted!(cuLaunchKernel), Stream::legacy(stream),
            launch::shape(f, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared), call);
    /// As `cuLaunchKernel`; the null stream is the thread's own.
    fn cuLaunchKernel_ptsz(f: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void)
        = |call| launch::kernel(counted!(cuLaunchKernel_ptsz), Stream::per_thread(stream),
            launch::shape(f, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared), call);
    /// As `cuLaunchKernel`, with attributes.
    fn cuLaunchKernelEx(config: *const CUlaunchConfig, f: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void)
        = |call| launch::kernel_ex(counted!(cuLaunchKernelEx), Stream::legacy, config, f, call);
    /// As `cuLaunchKernelEx`; the null stream is the thread's own.
    fn cuLaunchKernelEx_ptsz(config: *const CUlaunchConfig, f: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void)
        = |call| launch::kernel_ex(counted!(cuLaunchKernelEx_ptsz), Stream::per_thread, config, f, call);
    /// As `cuLaunchKernel`, all blocks at once.
    fn cuLaunchCooperativeKernel(f: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void)
        = |call| launch::kernel(counted!(cuLaunchCooperativeKernel), Stream::legacy(stream),
            launch::shape(f, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared), call);
    /// As above; the null stream is the thread's own.
    fn cuLaunchCooperativeKernel_ptsz(f: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void)
        = |call| launch::kernel(counted!(cuLaunchCooperativeKernel_ptsz), Stream::per_thread(stream),
            launch::shape(f, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared), call);
    /// One kernel on several devices that wait for each other: charged on each, never held between them.
    fn cuLaunchCooperativeKernelMultiDevice(list: *mut CUDA_LAUNCH_PARAMS, devices: c_uint, flags: c_uint)
        = |call| launch::multi_device(counted!(cuLaunchCooperativeKernelMultiDevice), list, devices, call);
    /// Charges the graph's price: first the sum of its nodes, then what was measured.
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream)
        = |call| launch::graph(counted!(cuGraphLaunch), Stream::legacy(stream), exec, call);
    /// As above; the null stream is the thread's own.
    fn cuGraphLaunch_ptsz(exec: CUgraphExec, stream: CUstream)
        = |call| launch::graph(counted!(cuGraphLaunch_ptsz), Stream::per_thread(stream), exec, call);
    /// The launch of CUDA 2: one block.
    fn cuLaunch(f: CUfunction)
        = |call| launch::kernel(counted!(cuLaunch), Stream::legacy(std::ptr::null_mut()), launch::old_shape(f, 1, 1), call);
    /// The launch of CUDA 2: a grid.
    fn cuLaunchGrid(f: CUfunction, width: c_int, height: c_int)
        = |call| launch::kernel(counted!(cuLaunchGrid), Stream::legacy(std::ptr::null_mut()),
            launch::old_shape(f, width, height), call);
    /// The launch of CUDA 2: a grid in a stream.
    fn cuLaunchGridAsync(f: CUfunction, width: c_int, height: c_int, stream: CUstream)
        = |call| launch::kernel(counted!(cuLaunchGridAsync), Stream::legacy(stream),
            launch::old_shape(f, width, height), call);

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
    /// A graph that is split is so no longer.
    fn cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMCPY3D, context: CUcontext)
        = |call| graph::changed(exec, call);
    /// A graph that is split is so no longer.
    fn cuGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext) = |call| graph::changed(exec, call);
    /// A graph that is split is so no longer.
    fn cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS)
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

    // Contexts: the thread's GPU changes with its context.

    /// Refuses a GPU that was not granted; charges what the context costs.
    fn cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) = |call| context::create(context, device, call);
    /// Refuses a GPU that was not granted; charges what the context costs.
    fn cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) = |call| context::create(context, device, call);
    /// As above, CUDA 11.4.
    fn cuCtxCreate_v3(context: *mut CUcontext, affinity: *mut CUexecAffinityParam, count: c_int, flags: c_uint,
        device: CUdevice) = |call| context::create(context, device, call);
    /// As above, CUDA 12.5.
    fn cuCtxCreate_v4(context: *mut CUcontext, params: *mut CUctxCreateParams, flags: c_uint, device: CUdevice)
        = |call| context::create(context, device, call);
    /// Refuses a GPU that was not granted; the context is for OpenGL too.
    fn cuGLCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) = |call| context::create(context, device, call);
    /// As above, CUDA 3.2.
    fn cuGLCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) = |call| context::create(context, device, call);
    /// Refuses a GPU that was not granted; the context is for VDPAU too.
    fn cuVDPAUCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice, vdpau: c_uint,
        look_up: *mut *mut c_void) = |call| context::create(context, device, call);
    /// As above, CUDA 3.2.
    fn cuVDPAUCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice, vdpau: c_uint,
        look_up: *mut *mut c_void) = |call| context::create(context, device, call);
    /// Refuses a GPU that was not granted; the context is for a part of it, inside the primary one.
    fn cuGreenCtxCreate(context: *mut CUgreenCtx, description: *mut c_void, device: CUdevice, flags: c_uint)
        = |call| context::create_green(context, device, call);
    /// What was in flight there is not waited for; its primary context may go with it.
    fn cuGreenCtxDestroy(context: CUgreenCtx) = |call| context::destroy_green(context, call);
    /// Refuses a GPU that was not granted; charges what the context costs.
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice)
        = |call| context::retain_primary(context, device, call);
    /// What the context held is given back.
    fn cuCtxDestroy_v2(context: CUcontext) = |call| context::destroy(context, call);
    /// What the context held is given back.
    fn cuCtxDestroy(context: CUcontext) = |call| context::destroy(context, call);
    /// What the context held is given back when its last user has released it.
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) = |call| context::release_primary(device, call);
    /// As above, before CUDA 11.
    fn cuDevicePrimaryCtxRelease(device: CUdevice) = |call| context::release_primary(device, call);
    /// What the context held is given back.
    fn cuDevicePrimaryCtxReset_v2(device: CUdevice) = |call| context::release_primary(device, call);
    /// As above, before CUDA 11.
    fn cuDevicePrimaryCtxReset(device: CUdevice) = |call| context::release_primary(device, call);
    /// The thread's GPU changes.
    fn cuCtxSetCurrent(context: CUcontext) = |call| context::switch(call);
    /// The thread's GPU changes.
    fn cuCtxPushCurrent_v2(context: CUcontext) = |call| context::switch(call);
    /// The thread's GPU changes.
    fn cuCtxPushCurrent(context: CUcontext) = |call| context::switch(call);
    /// The thread's GPU changes.
    fn cuCtxPopCurrent_v2(context: *mut CUcontext) = |call| context::switch(call);
    /// The thread's GPU changes.
    fn cuCtxPopCurrent(context: *mut CUcontext) = |call| context::switch(call);

    // Contexts grow: what they take is measured anew.

    /// Contexts may have grown.
    fn cuCtxSetLimit(limit: CUlimit, value: usize) = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuModuleLoad(module: *mut CUmodule, name: *const c_char) = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint,
        values: *mut *mut c_void) = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) = |call| context_memory::grown(call);
    /// Contexts may have shrunk.
    fn cuModuleUnload(module: CUmodule) = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuLibraryLoadData(library: *mut CUlibrary, code: *const c_void, jit_options: *mut c_uint,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void, count: c_uint)
        = |call| context_memory::grown(call);
    /// Contexts may have grown.
    fn cuLibraryLoadFromFile(library: *mut CUlibrary, name: *const c_char, jit_options: *mut c_uint,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void, count: c_uint)
        = |call| context_memory::grown(call);
    /// Contexts may have shrunk.
    fn cuLibraryUnload(library: CUlibrary) = |call| context_memory::grown(call);

    // Names: what the operator's price table goes by.

    /// Learns the kernel's name.
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char)
        = |call| names::learn(function, name, call);
    /// Learns the kernel's name.
    fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char)
        = |call| names::learn(kernel, name, call);

    // Synchronizing: its return says for nothing that everything before is done.

    /// What is in flight on the stream is done.
    fn cuStreamSynchronize(stream: CUstream) = |call| sync::stream(Stream::legacy(stream), call);
    /// What is in flight on the stream is done.
    fn cuStreamSynchronize_ptsz(stream: CUstream) = |call| sync::stream(Stream::per_thread(stream), call);
    /// What is in flight on the stream is done, if the answer is yes.
    fn cuStreamQuery(stream: CUstream) = |call| sync::stream(Stream::legacy(stream), call);
    /// What is in flight on the stream is done, if the answer is yes.
    fn cuStreamQuery_ptsz(stream: CUstream) = |call| sync::stream(Stream::per_thread(stream), call);
    /// What is in flight in the context is done.
    fn cuCtxSynchronize() = |call| sync::context(None, call);
    /// What is in flight in the context is done.
    fn cuCtxSynchronize_v2(context: CUcontext) = |call| sync::context(Some(context), call);
    /// What lay before the event is done.
    fn cuEventSynchronize(event: CUevent) = |call| sync::event(event, call);
    /// What lay before the event is done, if the answer is yes.
    fn cuEventQuery(event: CUevent) = |call| sync::event(event, call);
    /// Forgets the event.
    fn cuEventDestroy_v2(event: CUevent) = |call| sync::event_gone(event, call);
    /// Forgets the event.
    fn cuEventDestroy(event: CUevent) = |call| sync::event_gone(event, call);
    /// Notes what lies before the event.
    fn cuEventRecord(event: CUevent, stream: CUstream) = |call| sync::record(event, Stream::legacy(stream), call);
    /// As above; the null stream is the thread's own.
    fn cuEventRecord_ptsz(event: CUevent, stream: CUstream) = |call| sync::record(event, Stream::per_thread(stream), call);
    /// Notes what lies before the event.
    fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint)
        = |call| sync::record(event, Stream::legacy(stream), call);
    /// As above; the null stream is the thread's own.
    fn cuEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: c_uint)
        = |call| sync::record(event, Stream::per_thread(stream), call);
    /// The stream is no place for marks any more.
    fn cuStreamDestroy_v2(stream: CUstream) = |call| sync::stream_gone(stream, call);
    /// The stream is no place for marks any more.
    fn cuStreamDestroy(stream: CUstream) = |call| sync::stream_gone(stream, call);

    // Memory: reserve, call the driver, commit or roll back.

    /// Charges the bytes, then allocates; beyond the limit managed memory, where the operator allows that.
    fn cuMemAlloc_v2(out: *mut CUdeviceptr, bytes: usize)
        = |call| oversubscribe::allocate(memory_call!(cuMemAlloc_v2), bytes, out, call);
    /// Gives back what the pointer held.
    fn cuMemFree_v2(pointer: CUdeviceptr) = |call| memory::free(memory_call!(cuMemFree_v2), pointer, call);
    /// Charges the rows with the driver's own padding; with `--oversubscribe` as plain memory.
    fn cuMemAllocPitch_v2(out: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint)
        = |call| oversubscribe::allocate_rows(memory_call!(cuMemAllocPitch_v2), [width, height], element, out, pitch, call);
    /// Charges the bytes as managed memory.
    fn cuMemAllocManaged(out: *mut CUdeviceptr, bytes: usize, flags: c_uint)
        = |call| memory::allocate(memory_call!(cuMemAllocManaged), memory::Ask::managed(bytes), out, call);
    /// Charges what the device's pool grows by.
    fn cuMemAllocAsync(out: *mut CUdeviceptr, bytes: usize, stream: CUstream)
        = |call| pool::allocate(memory_call!(cuMemAllocAsync), bytes, pool::From::Current, Stream::legacy(stream), out, call);
    /// As above; the null stream is the thread's own.
    fn cuMemAllocAsync_ptsz(out: *mut CUdeviceptr, bytes: usize, stream: CUstream)
        = |call| pool::allocate(memory_call!(cuMemAllocAsync_ptsz), bytes, pool::From::Current, Stream::per_thread(stream), out, call);
    /// Charges what the pool grows by.
    fn cuMemAllocFromPoolAsync(out: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream)
        = |call| pool::allocate(memory_call!(cuMemAllocFromPoolAsync), bytes, pool::From::Named(pool), Stream::legacy(stream), out, call);
    /// As above; the null stream is the thread's own.
    fn cuMemAllocFromPoolAsync_ptsz(out: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream)
        = |call| pool::allocate(memory_call!(cuMemAllocFromPoolAsync_ptsz), bytes, pool::From::Named(pool), Stream::per_thread(stream), out, call);
    /// Gives back what the pointer held.
    fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream)
        = |call| memory::free_async(memory_call!(cuMemFreeAsync), pointer, Stream::legacy(stream), call);
    /// As above; the null stream is the thread's own.
    fn cuMemFreeAsync_ptsz(pointer: CUdeviceptr, stream: CUstream)
        = |call| memory::free_async(memory_call!(cuMemFreeAsync_ptsz), pointer, Stream::per_thread(stream), call);
    /// Makes a pool known.
    fn cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps) = |call| pool::create(pool, props, call);
    /// What the pool had reserved is given back with its last piece.
    fn cuMemPoolDestroy(pool: CUmemoryPool) = |call| pool::destroy(pool, call);
    /// What pools have reserved is read anew.
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) = |call| pool::trim(call);
    /// Charges the array's elements.
    fn cuArrayCreate_v2(out: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR)
        = |call| memory::allocate(memory_call!(cuArrayCreate_v2), memory::Ask::array(descriptor), out, call);
    /// Charges the array's elements.
    fn cuArray3DCreate_v2(out: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR)
        = |call| memory::allocate(memory_call!(cuArray3DCreate_v2), memory::Ask::array_3d(descriptor, 1), out, call);
    /// Charges all levels.
    fn cuMipmappedArrayCreate(out: *mut CUmipmappedArray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint)
        = |call| memory::allocate(memory_call!(cuMipmappedArrayCreate), memory::Ask::array_3d(descriptor, levels), out, call);
    /// Gives back what the array held.
    fn cuArrayDestroy(array: CUarray)
        = |call| memory::free(memory_call!(cuArrayDestroy), array.addr() as u64, call);
    /// Gives back what the array held.
    fn cuMipmappedArrayDestroy(array: CUmipmappedArray)
        = |call| memory::free(memory_call!(cuMipmappedArrayDestroy), array.addr() as u64, call);

    // Virtual memory: held until the last handle is released and the last mapping is gone.

    /// Charges the bytes on the device that the properties name; host memory is free.
    fn cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, prop: *const CUmemAllocationProp,
        flags: c_ulonglong) = |call| vmm::create(memory_call!(cuMemCreate), handle, bytes, prop, call);
    /// One reference less.
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) = |call| vmm::release(memory_call!(cuMemRelease), handle, call);
    /// One reference more.
    fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void)
        = |call| vmm::retain(memory_call!(cuMemRetainAllocationHandle), handle, call);
    /// One reference more.
    fn cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle,
        flags: c_ulonglong) = |call| vmm::map(memory_call!(cuMemMap), address, bytes, handle, call);
    /// One reference less for each mapping in the range.
    fn cuMemUnmap(address: CUdeviceptr, bytes: usize) = |call| vmm::unmap(memory_call!(cuMemUnmap), address, bytes, call);

    // Multicast objects: counted on each device that joins; what is bound to them lives on.

    /// Makes the object known.
    fn cuMulticastCreate(object: *mut CUmemGenericAllocationHandle, prop: *const CUmulticastObjectProp)
        = |call| multicast::create(object, prop, call);
    /// Charges the object's size on the device.
    fn cuMulticastAddDevice(object: CUmemGenericAllocationHandle, device: CUdevice)
        = |call| multicast::add_device(object, device, call);
    /// One reference more on the memory.
    fn cuMulticastBindMem(object: CUmemGenericAllocationHandle, at: usize, memory: CUmemGenericAllocationHandle,
        offset: usize, bytes: usize, flags: c_ulonglong) = |call| multicast::bind(object, at, memory, bytes, call);
    /// As above, CUDA 13.1.
    fn cuMulticastBindMem_v2(object: CUmemGenericAllocationHandle, device: CUdevice, at: usize,
        memory: CUmemGenericAllocationHandle, offset: usize, bytes: usize, flags: c_ulonglong)
        = |call| multicast::bind(object, at, memory, bytes, call);
    /// One reference more on what is mapped there.
    fn cuMulticastBindAddr(object: CUmemGenericAllocationHandle, at: usize, address: CUdeviceptr, bytes: usize,
        flags: c_ulonglong) = |call| multicast::bind_address(object, at, address, bytes, call);
    /// As above, CUDA 13.1.
    fn cuMulticastBindAddr_v2(object: CUmemGenericAllocationHandle, device: CUdevice, at: usize, address: CUdeviceptr,
        bytes: usize, flags: c_ulonglong) = |call| multicast::bind_address(object, at, address, bytes, call);
    /// One reference less on what was bound in the range.
    fn cuMulticastUnbind(object: CUmemGenericAllocationHandle, device: CUdevice, at: usize, bytes: usize)
        = |call| multicast::unbind(object, device, at, bytes, call);

    // Memory that crosses processes: charged to its owner, shown as shared where it is opened.

    /// Notes what others may open.
    fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr)
        = |call| shares::give_out(handle, address, call);
    /// Shows the memory as shared.
    fn cuIpcOpenMemHandle(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint)
        = |call| shares::open(address, &handle, call);
    /// Shows the memory as shared.
    fn cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint)
        = |call| shares::open(address, &handle, call);
    /// The memory is shared no more; what its owner's death has left to us is given back.
    fn cuIpcCloseMemHandle(address: CUdeviceptr) = |call| shares::close(shares::Place::At(address), call);
    /// Notes what others may open.
    fn cuMemExportToShareableHandle(out: *mut c_void, handle: CUmemGenericAllocationHandle,
        kind: CUmemAllocationHandleType, flags: c_ulonglong) = |call| vmm_shares::export(out, handle, kind, call);
    /// The memory is shown as shared when it is mapped: before that, nobody knows how much it is.
    fn cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void,
        kind: CUmemAllocationHandleType) = |call| vmm_shares::import(handle, os_handle, kind, call);

    /// Notes what others may open.
    fn cuMemPoolExportPointer(data: *mut c_void, address: CUdeviceptr)
        = |call| shares::give_out_piece(data, address, call);
    /// Shows the piece as shared, until it is freed here.
    fn cuMemPoolImportPointer(out: *mut CUdeviceptr, pool: CUmemoryPool, data: *mut c_void)
        = |call| shares::open_piece(out, data, call);
    /// Shows memory of another interface as shared: whoever made it is charged for it.
    fn cuImportExternalMemory(memory: *mut CUexternalMemory, desc: *const c_void)
        = |call| external::import(memory, desc, call);
    /// It is shared no more.
    fn cuDestroyExternalMemory(memory: CUexternalMemory) = |call| external::destroy(memory, call);

    // The view: budget and own use, never the neighbours'.

    /// Answers with the tenant's limit and what is left of it.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize)
        = |call| view::memory_info(memory_call!(cuMemGetInfo_v2), free, total, call);
    /// Answers with the tenant's limit.
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice)
        = |call| view::total_memory(memory_call!(cuDeviceTotalMem_v2), bytes, device, call);
}
