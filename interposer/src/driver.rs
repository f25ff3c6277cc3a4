//! The real driver's functions that we call ourselves, each looked up once.
//!
//! Every one of them answers `CUDA_ERROR_NOT_FOUND` if the driver lacks it. None waits for the GPU but perhaps
//! [`host_register`], which is called when a context is first seen; none works on the legacy stream where that could make
//! others wait for each other (`joins.rs`). [`Relaxed`] wraps those that could break a capture elsewhere.

use std::ffi::{c_char, c_float, c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::flight::Place;

use crate::joins;
use crate::thread::{self, Thread};

macro_rules! driver_calls {
    ($($(#[$doc:meta])* fn $name:ident = $symbol:ident($($arg:ident: $kind:ty),*);)*) => {
        $(
            $(#[$doc])*
            pub fn $name($($arg: $kind),*) -> CUresult {
                static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                const SYMBOL: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($symbol), "\0").as_bytes()) { Ok(name) => name, Err(_) => c"" };
                let mut address = ADDRESS.load(Ordering::Acquire);
                if address.is_null() {
                    let Some(found) = crate::resolve::driver_symbol(SYMBOL) else { return CUDA_ERROR_NOT_FOUND };
                    address = found.cast_mut();
                    ADDRESS.store(address, Ordering::Release);
                }
                // SAFETY: the driver's symbol of this name has this type (checked against its headers by
                // weir-abi's tests); callers pass handles of the driver and pointers to live places.
                unsafe { std::mem::transmute::<*mut c_void, weir_abi::fns::$symbol>(address)($($arg),*) }
            }
        )*
    };
}

driver_calls! {
    /// The device of the calling thread's context.
    fn context_device = cuCtxGetDevice(device: *mut CUdevice);
    /// The calling thread's context.
    fn current_context = cuCtxGetCurrent(context: *mut CUcontext);
    /// The API version of a context; an error where there is none behind the handle.
    fn context_version = cuCtxGetApiVersion(ctx: CUcontext, version: *mut c_uint);
    /// The context of a stream.
    fn stream_context = cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    /// Makes a context current for a while.
    fn push_context = cuCtxPushCurrent_v2(context: CUcontext);
    /// Ends that.
    fn pop_context = cuCtxPopCurrent_v2(context: *mut CUcontext);
    /// The context that a green one stands for.
    fn context_of_green = cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx);
    /// How many devices there are.
    fn device_count = cuDeviceGetCount(count: *mut c_int);
    /// The device's primary context, with one user more.
    fn retain_primary = cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    /// One user less.
    fn release_primary = cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    /// A device's identity; a MIG slice has one of its own.
    fn device_uuid = cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    /// A device's identity, before CUDA 11.4.
    fn device_uuid_v1 = cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice);
    /// One of a device's attributes.
    fn device_attribute = cuDeviceGetAttribute(value: *mut c_int, which: CUdevice_attribute, device: CUdevice);
    /// Whether a device's primary context exists.
    fn primary_state = cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);
    /// A new event in the current context.
    fn event_create = cuEventCreate(event: *mut CUevent, flags: c_uint);
    /// Puts an event into a stream.
    fn event_record = cuEventRecord(event: CUevent, stream: CUstream);
    /// Puts an event into a stream; the null stream means the thread's own.
    fn event_record_per_thread = cuEventRecord_ptsz(event: CUevent, stream: CUstream);
    /// Whether an event was reached.
    fn event_query = cuEventQuery(event: CUevent);
    /// Milliseconds between two events that were reached.
    fn event_elapsed = cuEventElapsedTime(milliseconds: *mut c_float, start: CUevent, end: CUevent);
    /// Makes host memory known to the GPU.
    fn host_register = cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint);
    /// Where the GPU sees host memory.
    fn host_address = cuMemHostGetDevicePointer_v2(out: *mut CUdeviceptr, address: *mut c_void, flags: c_uint);
    /// Lets the GPU write a word when it has come so far in a stream.
    fn write_word = cuStreamWriteValue64_v2(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint);
    /// Lets the GPU write a word; the null stream means the thread's own.
    fn write_word_per_thread = cuStreamWriteValue64_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint);
    /// Has a stream wait for a word.
    fn wait_for_word = cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint);
    /// Has a stream wait for a word; the null stream means the thread's own.
    fn wait_for_word_per_thread = cuStreamWaitValue64_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint);
    /// A new stream.
    fn stream_create = cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    /// Ends a stream.
    fn stream_destroy = cuStreamDestroy_v2(stream: CUstream);
    /// What a stream was made with.
    fn stream_flags = cuStreamGetFlags(stream: CUstream, flags: *mut c_uint);
    /// Whether a stream captures.
    fn stream_is_capturing = cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus);
    /// Whether a stream captures; the null stream means the thread's own.
    fn stream_is_capturing_per_thread = cuStreamIsCapturing_ptsz(stream: CUstream, status: *mut CUstreamCaptureStatus);
    /// Exchanges how the thread's calls meet captures elsewhere.
    fn exchange_capture_mode = cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);
    /// The name of a kernel.
    fn function_name = cuFuncGetName(name: *mut *const c_char, function: CUfunction);
    /// The name of a context-independent kernel.
    fn kernel_name = cuKernelGetName(name: *mut *const c_char, kernel: CUkernel);
    /// The pool that serves a device's allocations in stream order.
    fn current_pool = cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    /// A device's own pool.
    fn default_pool = cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    /// One of a pool's figures.
    fn pool_attribute = cuMemPoolGetAttribute(pool: CUmemoryPool, which: CUmemPool_attribute, value: *mut c_void);
    /// The allocation that an address lies in.
    fn address_range = cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr);
    /// Where physical memory lies.
    fn properties = cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);
    /// Several attributes of the memory that an address lies in; of unknown memory they are zero.
    fn pointer_attributes = cuPointerGetAttributes(count: c_uint, which: *mut CUpointer_attribute, out: *mut *mut c_void, address: CUdeviceptr);
    /// Memory that the driver moves between host and device.
    fn managed = cuMemAllocManaged(out: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    /// Where managed memory is to live.
    fn advise = cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: c_uint, device: CUdevice);
    /// In what steps a multicast object takes memory.
    fn multicast_granularity = cuMulticastGetGranularity(granularity: *mut usize, prop: *const CUmulticastObjectProp, option: c_uint);
    /// A graph's nodes.
    fn graph_nodes = cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    /// What a graph node is.
    fn node_type = cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType);
    /// A kernel node's launch.
    fn kernel_node = cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS);
    /// A kernel node's launch, before CUDA 12.
    fn kernel_node_v1 = cuGraphKernelNodeGetParams(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v1);
    /// What an array is like.
    fn array_shape = cuArray3DGetDescriptor_v2(shape: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray);
    /// How a sparse array is cut into tiles; an error for an array of another kind.
    fn array_tiles = cuArrayGetSparseProperties(properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray);
    /// The same of a mipmapped array.
    fn mipmap_tiles = cuMipmappedArrayGetSparseProperties(properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, mipmap: CUmipmappedArray);
    /// A copy node's copy.
    fn copy_node = cuGraphMemcpyNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMCPY3D);
    /// A memset node's memset.
    fn fill_node = cuGraphMemsetNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMSET_NODE_PARAMS);
    /// What an allocation node takes.
    fn alloc_node = cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
    /// What a free node gives back.
    fn free_node = cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr);
    /// What the graphs of a device use and have reserved.
    fn graph_memory = cuDeviceGetGraphMemAttribute(device: CUdevice, which: CUgraphMem_attribute, value: *mut c_void);
    /// A copy of a graph.
    fn clone_graph = cuGraphClone(copy: *mut CUgraph, graph: CUgraph);
    /// The copy of a node.
    fn node_in_clone = cuGraphNodeFindInClone(copy: *mut CUgraphNode, node: CUgraphNode, clone: CUgraph);
    /// Ends a node.
    fn destroy_node = cuGraphDestroyNode(node: CUgraphNode);
    /// Ends a graph.
    fn destroy_graph = cuGraphDestroy(graph: CUgraph);
    /// A graph's edges.
    fn edges = cuGraphGetEdges_v2(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut CUgraphEdgeData, count: *mut usize);
    /// A graph's edges, before CUDA 12.3.
    fn edges_v1 = cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
    /// Makes a graph executable.
    fn instantiate = cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
    /// Ends an executable graph.
    fn destroy_exec = cuGraphExecDestroy(exec: CUgraphExec);
    /// Launches an executable graph.
    fn launch_graph = cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    /// Launches an executable graph; the null stream means the thread's own.
    fn launch_graph_per_thread = cuGraphLaunch_ptsz(exec: CUgraphExec, stream: CUstream);
    /// Lets a stream wait for an event.
    fn stream_wait = cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    /// Lets a stream wait for an event; the null stream means the thread's own.
    fn stream_wait_per_thread = cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint);
    /// Puts a function of the host into a stream.
    fn host_function = cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);
    /// As above; the null stream means the thread's own.
    fn host_function_per_thread = cuLaunchHostFunc_ptsz(stream: CUstream, function: CUhostFn, data: *mut c_void);
    /// As above, of CUDA 13.1.
    fn host_function_v2 = cuLaunchHostFunc_v2(stream: CUstream, function: CUhostFn, data: *mut c_void, mode: c_uint);
    /// As above; the null stream means the thread's own.
    fn host_function_v2_per_thread = cuLaunchHostFunc_v2_ptsz(stream: CUstream, function: CUhostFn, data: *mut c_void, mode: c_uint);
    /// Puts a callback of the older kind into a stream.
    fn stream_callback = cuStreamAddCallback(stream: CUstream, function: CUstreamCallback, data: *mut c_void, flags: c_uint);
    /// As above; the null stream means the thread's own.
    fn stream_callback_per_thread = cuStreamAddCallback_ptsz(stream: CUstream, function: CUstreamCallback, data: *mut c_void, flags: c_uint);
    /// Ends an event.
    fn event_destroy = cuEventDestroy_v2(event: CUevent);
    /// The graph inside a child graph node.
    fn child_graph = cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph);
}

/// The driver's handle behind a number that the core keeps.
#[allow(clippy::cast_possible_truncation, reason = "x86-64 only: the number was a pointer")]
pub fn handle(number: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(number as usize)
}

/// How many devices there are.
pub fn devices() -> usize {
    let mut count = 0;
    let told = device_count(&raw mut count) == CUDA_SUCCESS;
    if told { usize::try_from(count).unwrap_or(0) } else { 0 }
}

/// Whether there is a context behind the handle, be it one that an error has broken.
pub fn context_exists(context: CUcontext) -> bool {
    let mut version = 0;
    let result = context_version(context, &raw mut version);
    result == CUDA_SUCCESS || result.is_sticky()
}

/// Whether an error has broken the context of this event.
pub fn is_broken(event: CUevent) -> bool {
    let _relaxed = Relaxed::enter();
    event_query(event).is_sticky()
}

/// What a stream was made with; not for default streams.
pub fn flags(stream: CUstream) -> Option<c_uint> {
    let mut flags = 0;
    (stream_flags(stream, &raw mut flags) == CUDA_SUCCESS).then_some(flags)
}

/// The null stream means either the legacy or the thread's own stream, depending on the symbol it came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullStream {
    /// The legacy default stream.
    Legacy,
    /// The calling thread's own default stream.
    PerThread,
}

/// A stream as a hooked call named it.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The handle, possibly null.
    pub handle: CUstream,
    /// What null means.
    pub null: NullStream,
}

impl Stream {
    /// The legacy default stream.
    pub const DEFAULT: Self = Self { handle: std::ptr::null_mut(), null: NullStream::Legacy };

    /// A stream of a call without suffix.
    #[inline]
    pub fn legacy(handle: CUstream) -> Self {
        Self { handle, null: NullStream::Legacy }
    }

    /// A stream of a `_ptsz` call.
    #[inline]
    pub fn per_thread(handle: CUstream) -> Self {
        Self { handle, null: NullStream::PerThread }
    }

    /// A number that tells streams of a process apart. Per-thread default streams get one each: the address of a
    /// thread-local.
    pub fn key(self) -> u64 {
        thread::with(|thread| self.key_on(thread))
    }

    /// The same where the calling thread's things are at hand.
    #[inline]
    pub fn key_on(self, thread: &Thread) -> u64 {
        let per_thread = self.null == NullStream::PerThread && self.handle.is_null();
        if per_thread || self.handle == CU_STREAM_PER_THREAD {
            return thread.address();
        }
        self.handle.addr() as u64
    }

    /// Whether it is one of the default streams, whose context is always the thread's.
    #[inline]
    pub fn is_default(self) -> bool {
        self.handle.is_null() || self.handle == CU_STREAM_LEGACY || self.handle == CU_STREAM_PER_THREAD
    }

    /// The context that it belongs to, if the driver tells. Not for default streams.
    pub fn context(self) -> Option<CUcontext> {
        let mut context: CUcontext = std::ptr::null_mut();
        let told = stream_context(self.handle, &raw mut context) == CUDA_SUCCESS;
        (told && !context.is_null()).then_some(context)
    }

    /// Where marks behind its work may be put. A mark in the legacy default stream would join all others, one in a
    /// thread's own default stream only that thread can put: both get theirs right behind their own launches.
    pub fn place(self) -> Place {
        joins::used(self);
        if self.is_default() { Place::NOWHERE } else { Place(self.handle.addr() as u64) }
    }

    /// Whether it captures now. An error (the legacy stream while another captures) counts as yes: nothing of ours
    /// may go there.
    pub fn is_capturing(self) -> bool {
        let mut status: CUstreamCaptureStatus = 0;
        let result = match self.null {
            NullStream::Legacy => stream_is_capturing(self.handle, &raw mut status),
            NullStream::PerThread => stream_is_capturing_per_thread(self.handle, &raw mut status),
        };
        result != CUDA_SUCCESS || status != 0
    }

    /// Lets the GPU write a word when it has come so far; says whether the driver agreed.
    pub fn write(self, address: CUdeviceptr, value: u64) -> bool {
        let result = match self.null {
            NullStream::Legacy => write_word(self.handle, address, value, 0),
            NullStream::PerThread => write_word_per_thread(self.handle, address, value, 0),
        };
        result == CUDA_SUCCESS
    }

    /// Has what comes behind wait until a word is at least `number`; says whether the driver agreed.
    pub fn wait_for_word(self, address: CUdeviceptr, number: u64) -> bool {
        const AT_LEAST: c_uint = 0; // CU_STREAM_WAIT_VALUE_GEQ
        let result = match self.null {
            NullStream::Legacy => wait_for_word(self.handle, address, number, AT_LEAST),
            NullStream::PerThread => wait_for_word_per_thread(self.handle, address, number, AT_LEAST),
        };
        result == CUDA_SUCCESS
    }

    /// Launches an executable graph into it.
    pub fn launch_graph(self, exec: CUgraphExec) -> CUresult {
        match self.null {
            NullStream::Legacy => launch_graph(exec, self.handle),
            NullStream::PerThread => launch_graph_per_thread(exec, self.handle),
        }
    }

    /// Lets what comes behind wait for an event; says whether the driver agreed.
    pub fn wait_for(self, event: CUevent) -> bool {
        let result = match self.null {
            NullStream::Legacy => stream_wait(self.handle, event, 0),
            NullStream::PerThread => stream_wait_per_thread(self.handle, event, 0),
        };
        result == CUDA_SUCCESS
    }

    /// Puts an event into it; says whether the driver agreed.
    pub fn record(self, event: CUevent) -> bool {
        let result = match self.null {
            NullStream::Legacy => event_record(event, self.handle),
            NullStream::PerThread => event_record_per_thread(event, self.handle),
        };
        result == CUDA_SUCCESS
    }
}

/// While it lives, another context than the application's is current on this thread.
pub struct Visit(());

impl Visit {
    /// Makes `context` current, if the driver agrees.
    pub fn to(context: CUcontext) -> Option<Self> {
        (push_context(context) == CUDA_SUCCESS).then_some(Self(()))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut visited: CUcontext = std::ptr::null_mut();
        pop_context(&raw mut visited);
    }
}

/// While it lives, the thread's driver calls do not disturb captures that run elsewhere (gpu-truths, rule 7).
pub struct Relaxed(Option<CUstreamCaptureMode>);

impl Relaxed {
    /// Enters relaxed mode, also where nothing captures yet: another thread may begin at any moment.
    pub fn enter() -> Self {
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        let entered = exchange_capture_mode(&raw mut mode) == CUDA_SUCCESS;
        Self(entered.then_some(mode))
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some(mut before) = self.0 {
            exchange_capture_mode(&raw mut before);
        }
    }
}
