//! Handles, scalars and callbacks: everything that crosses the edge by value and is no structure.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::CUresult;

/// A device's number.
pub type CUdevice = c_int;
/// A device address, 64 bits.
pub type CUdeviceptr = c_ulonglong;
/// A device address of the entry points before CUDA 3.2, 32 bits.
pub type CUdeviceptr_v1 = c_uint;
/// A physical allocation of the virtual memory calls.
pub type CUmemGenericAllocationHandle = c_ulonglong;
/// A texture object.
pub type CUtexObject = c_ulonglong;
/// A surface object.
pub type CUsurfObject = c_ulonglong;
/// A conditional graph node's switch.
pub type CUgraphConditionalHandle = c_ulonglong;
/// A position in the driver's log.
pub type CUlogIterator = c_uint;
/// A logical endpoint of the fabric.
pub type CUlogicalEndpointId = c_uint;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => { $($(#[$doc])* pub type $name = *mut c_void;)* };
}

handles! {
    /// A context.
    CUcontext;
    /// A loaded module.
    CUmodule;
    /// A kernel within one context.
    CUfunction;
    /// A loaded library, not bound to a context.
    CUlibrary;
    /// A kernel of a library, not bound to a context.
    CUkernel;
    /// A stream, or one of the special streams `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
    CUstream;
    /// An event.
    CUevent;
    /// An array.
    CUarray;
    /// A mipmapped array.
    CUmipmappedArray;
    /// A memory pool.
    CUmemoryPool;
    /// A graph.
    CUgraph;
    /// A node of a graph.
    CUgraphNode;
    /// An instantiated graph.
    CUgraphExec;
    /// A user object, kept alive by graphs.
    CUuserObject;
    /// A green context.
    CUgreenCtx;
    /// A linker's state.
    CUlinkState;
    /// A texture reference.
    CUtexref;
    /// A surface reference.
    CUsurfref;
    /// A resource shared with a graphics interface.
    CUgraphicsResource;
    /// Memory of another interface.
    CUexternalMemory;
    /// A semaphore of another interface.
    CUexternalSemaphore;
}

/// The legacy default stream.
pub const CU_STREAM_LEGACY: CUstream = std::ptr::without_provenance_mut(1);
/// The calling thread's own default stream.
pub const CU_STREAM_PER_THREAD: CUstream = std::ptr::without_provenance_mut(2);

/// A host function in a stream.
pub type CUhostFn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;
/// A callback in a stream, which hears the stream's status.
pub type CUstreamCallback =
    Option<unsafe extern "C" fn(stream: CUstream, status: CUresult, user_data: *mut c_void)>;
/// Shared memory for a block of the given size, in bytes.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(block_size: c_int) -> usize>;

macro_rules! enumerations {
    ($($(#[$doc:meta])* $name:ident { $($constant:ident = $value:literal),* $(,)? })*) => {
        $($(#[$doc])* pub type $name = c_uint;
          $(#[doc = concat!("A value of [`", stringify!($name), "`].")] pub const $constant: $name = $value;)*)*
    };
}

enumerations! {
    /// What to ask of a device.
    CUdevice_attribute {
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS = 122,
        CU_DEVICE_ATTRIBUTE_MPS_ENABLED = 133,
    }
    /// What to ask of a pair of devices.
    CUdevice_P2PAttribute {
        CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK = 1,
        CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED = 2,
        CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED = 3,
        CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED = 4,
    }
    /// How a capture treats calls of other threads.
    CUstreamCaptureMode {
        CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
        CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    }
    /// Whether a stream captures.
    CUstreamCaptureStatus {
        CU_STREAM_CAPTURE_STATUS_NONE = 0,
        CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
        CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
    }
    /// What a look-up of a driver function found.
    CUdriverProcAddressQueryResult {
        CU_GET_PROC_ADDRESS_SUCCESS = 0,
        CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
        CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
    }
    /// What to ask of a function.
    CUfunction_attribute {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
        CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
        CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
        CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
        CU_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
    }
    /// What to ask of a pointer.
    CUpointer_attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT = 1,
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
        CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
        CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
        CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
        CU_POINTER_ATTRIBUTE_MAPPED = 13,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,
        CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20,
    }
    /// A context's limit.
    CUlimit {
        CU_LIMIT_STACK_SIZE = 0,
        CU_LIMIT_PRINTF_FIFO_SIZE = 1,
        CU_LIMIT_MALLOC_HEAP_SIZE = 2,
    }
    /// What kind of work a graph node is.
    CUgraphNodeType {
        CU_GRAPH_NODE_TYPE_KERNEL = 0,
        CU_GRAPH_NODE_TYPE_MEMCPY = 1,
        CU_GRAPH_NODE_TYPE_MEMSET = 2,
        CU_GRAPH_NODE_TYPE_HOST = 3,
        CU_GRAPH_NODE_TYPE_GRAPH = 4,
        CU_GRAPH_NODE_TYPE_EMPTY = 5,
        CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6,
        CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL = 8,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT = 9,
        CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
        CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
        CU_GRAPH_NODE_TYPE_BATCH_MEM_OP = 12,
        CU_GRAPH_NODE_TYPE_CONDITIONAL = 13,
    }
    /// Where memory lives.
    CUmemLocationType {
        CU_MEM_LOCATION_TYPE_INVALID = 0,
        CU_MEM_LOCATION_TYPE_DEVICE = 1,
        CU_MEM_LOCATION_TYPE_HOST = 2,
        CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
        CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 4,
    }
    /// What a physical allocation can become.
    CUmemAllocationType {
        CU_MEM_ALLOCATION_TYPE_PINNED = 1,
        CU_MEM_ALLOCATION_TYPE_MANAGED = 2,
    }
    /// How an allocation is handed to another process (a set of bits).
    CUmemAllocationHandleType {
        CU_MEM_HANDLE_TYPE_NONE = 0,
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
        CU_MEM_HANDLE_TYPE_FABRIC = 8,
    }
    /// Which granularity is asked.
    CUmemAllocationGranularity_flags {
        CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
        CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1,
    }
    /// What a location may do with memory.
    CUmemAccess_flags {
        CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
        CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
    }
    /// What to ask of a memory pool.
    CUmemPool_attribute {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = 2,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
        CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
        CU_MEMPOOL_ATTR_ALLOCATION_TYPE = 9,
        CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES = 10,
        CU_MEMPOOL_ATTR_LOCATION_ID = 11,
        CU_MEMPOOL_ATTR_LOCATION_TYPE = 12,
        CU_MEMPOOL_ATTR_MAX_POOL_SIZE = 13,
        CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED = 14,
    }
    /// What to ask about the memory of graphs.
    CUgraphMem_attribute {
        CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0,
        CU_GRAPH_MEM_ATTR_USED_MEM_HIGH = 1,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH = 3,
    }
    /// Which kind of memory a copy touches.
    CUmemorytype {
        CU_MEMORYTYPE_HOST = 1,
        CU_MEMORYTYPE_DEVICE = 2,
        CU_MEMORYTYPE_ARRAY = 3,
        CU_MEMORYTYPE_UNIFIED = 4,
    }
    /// What an array's elements are.
    CUarray_format {
        CU_AD_FORMAT_UNSIGNED_INT8 = 1,
        CU_AD_FORMAT_UNSIGNED_INT16 = 2,
        CU_AD_FORMAT_UNSIGNED_INT32 = 3,
        CU_AD_FORMAT_SIGNED_INT8 = 8,
        CU_AD_FORMAT_SIGNED_INT16 = 9,
        CU_AD_FORMAT_SIGNED_INT32 = 10,
        CU_AD_FORMAT_HALF = 16,
        CU_AD_FORMAT_FLOAT = 32,
    }
    /// A kind of resource.
    CUresourcetype {
        CU_RESOURCE_TYPE_ARRAY = 0,
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY = 1,
        CU_RESOURCE_TYPE_LINEAR = 2,
        CU_RESOURCE_TYPE_PITCH2D = 3,
    }
    /// Which part of a sparse array is meant.
    CUarraySparseSubresourceType {
        CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL = 0,
        CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL = 1,
    }
    /// What to do with a part of a sparse array.
    CUmemOperationType {
        CU_MEM_OPERATION_TYPE_MAP = 1,
        CU_MEM_OPERATION_TYPE_UNMAP = 2,
    }
    /// What a memory handle is.
    CUmemHandleType {
        CU_MEM_HANDLE_TYPE_GENERIC = 0,
    }
    /// Which property of a launch an attribute sets.
    CUlaunchAttributeID {
        CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW = 1,
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
        CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY = 3,
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT = 7,
        CU_LAUNCH_ATTRIBUTE_PRIORITY = 8,
        CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT = 12,
    }
    /// What a batched memory operation does.
    CUstreamBatchMemOpType {
        CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1,
        CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2,
        CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES = 3,
        CU_STREAM_MEM_OP_WAIT_VALUE_64 = 4,
        CU_STREAM_MEM_OP_WRITE_VALUE_64 = 5,
        CU_STREAM_MEM_OP_BARRIER = 6,
    }
    /// Why an instantiation failed.
    CUgraphInstantiateResult {
        CUDA_GRAPH_INSTANTIATE_SUCCESS = 0,
        CUDA_GRAPH_INSTANTIATE_ERROR = 1,
        CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE = 2,
        CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED = 3,
        CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED = 4,
        CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED = 5,
    }
    /// What a conditional node does with its bodies.
    CUgraphConditionalNodeType {
        CU_GRAPH_COND_TYPE_IF = 0,
        CU_GRAPH_COND_TYPE_WHILE = 1,
        CU_GRAPH_COND_TYPE_SWITCH = 2,
    }
    /// A kind of resource of a device.
    CUdevResourceType {
        CU_DEV_RESOURCE_TYPE_INVALID = 0,
        CU_DEV_RESOURCE_TYPE_SM = 1,
    }
    /// Why an executable graph could not be updated.
    CUgraphExecUpdateResult {
        CU_GRAPH_EXEC_UPDATE_SUCCESS = 0,
        CU_GRAPH_EXEC_UPDATE_ERROR = 1,
        CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2,
        CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED = 3,
    }
}

/// Flag of `cuGetProcAddress`: prefer the flavour for the legacy default stream.
pub const CU_GET_PROC_ADDRESS_LEGACY_STREAM: c_ulonglong = 1;
/// Flag of `cuGetProcAddress`: prefer the flavour for per-thread default streams.
pub const CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: c_ulonglong = 2;

/// Flag of a stream: it does not wait for the legacy stream.
pub const CU_STREAM_NON_BLOCKING: c_uint = 1;
/// The GPU may use the registered memory.
pub const CU_MEMHOSTREGISTER_DEVICEMAP: c_uint = 2;
/// Flag of an event: it takes no time stamp.
pub const CU_EVENT_DISABLE_TIMING: c_uint = 2;
/// Flag of an event: it can be opened by another process.
pub const CU_EVENT_INTERPROCESS: c_uint = 4;
/// Flag of an event record or wait: it is a node of its own in a capture.
pub const CU_EVENT_RECORD_EXTERNAL: c_uint = 1;

/// Ends the older way to pass a kernel's arguments as one buffer.
pub const CU_LAUNCH_PARAM_END: *mut c_void = std::ptr::null_mut();
/// The next word of `extra` points at the argument buffer.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: *mut c_void = std::ptr::without_provenance_mut(1);
/// The next word of `extra` points at the argument buffer's size.
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: *mut c_void = std::ptr::without_provenance_mut(2);

/// Flag of an instantiation: what the graph has left allocated is freed when it is launched again.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH: c_ulonglong = 1;
/// Flag of an instantiation with parameters: upload at once.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD: c_ulonglong = 2;
/// Flag of an instantiation: kernels on the device may launch the graph too.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH: c_ulonglong = 4;
/// Flag of an instantiation: nodes have priorities of their own.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY: c_ulonglong = 8;
/// Flag of a conditional handle: each launch begins with the default value.
pub const CU_GRAPH_COND_ASSIGN_DEFAULT: c_uint = 1;
/// Flag of a split of SMs: finer pieces, without clusters.
pub const CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING: c_uint = 1;
/// Flag of a green context: it has a default stream.
pub const CU_GREEN_CTX_DEFAULT_STREAM: c_uint = 1;
