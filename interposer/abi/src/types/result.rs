//! `CUresult`: what every driver call answers, with names and one-line meanings in our own words.

use std::ffi::CStr;
use std::fmt;

/// The answer of a driver call. Any value is valid: newer drivers have codes that this list lacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CUresult(
    /// The code as the driver returns it.
    pub u32,
);

macro_rules! results {
    ($($name:ident = $code:literal, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $name: CUresult = CUresult($code);)*

        /// Every known code with its name and meaning, ascending by code.
        const KNOWN: &[(u32, &CStr, &CStr)] = &[$(($code, name(concat!(stringify!($name), "\0")), name(concat!($meaning, "\0")))),*];
    };
}

/// A C string from a literal that the macro has ended with a NUL.
const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"?",
    }
}

results! {
    CUDA_SUCCESS = 0, "no error";
    CUDA_ERROR_INVALID_VALUE = 1, "an argument is out of its range";
    CUDA_ERROR_OUT_OF_MEMORY = 2, "not enough memory for this request";
    CUDA_ERROR_NOT_INITIALIZED = 3, "the driver is not initialized in this process";
    CUDA_ERROR_DEINITIALIZED = 4, "the driver is shutting down";
    CUDA_ERROR_PROFILER_DISABLED = 5, "the profiler is disabled";
    CUDA_ERROR_PROFILER_NOT_INITIALIZED = 6, "the profiler is not initialized";
    CUDA_ERROR_PROFILER_ALREADY_STARTED = 7, "the profiler runs already";
    CUDA_ERROR_PROFILER_ALREADY_STOPPED = 8, "the profiler is stopped already";
    CUDA_ERROR_STUB_LIBRARY = 34, "the loaded driver library is a stub";
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36, "this call needs a newer driver";
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46, "the device is busy or unavailable";
    CUDA_ERROR_MULTICAST_RESOURCE_FULL = 47, "the device has no room for another multicast group";
    CUDA_ERROR_NO_DEVICE = 100, "no CUDA device was found";
    CUDA_ERROR_INVALID_DEVICE = 101, "no device has this number";
    CUDA_ERROR_DEVICE_NOT_LICENSED = 102, "the device has no valid licence";
    CUDA_ERROR_INVALID_IMAGE = 200, "the kernel image is not valid";
    CUDA_ERROR_INVALID_CONTEXT = 201, "there is no valid current context";
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT = 202, "the context is current already";
    CUDA_ERROR_MAP_FAILED = 205, "a mapping failed";
    CUDA_ERROR_UNMAP_FAILED = 206, "an unmapping failed";
    CUDA_ERROR_ARRAY_IS_MAPPED = 207, "the array is mapped";
    CUDA_ERROR_ALREADY_MAPPED = 208, "the resource is mapped already";
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209, "the image holds no code for this device";
    CUDA_ERROR_ALREADY_ACQUIRED = 210, "the resource is acquired already";
    CUDA_ERROR_NOT_MAPPED = 211, "the resource is not mapped";
    CUDA_ERROR_NOT_MAPPED_AS_ARRAY = 212, "the resource is not mapped as an array";
    CUDA_ERROR_NOT_MAPPED_AS_POINTER = 213, "the resource is not mapped as a pointer";
    CUDA_ERROR_ECC_UNCORRECTABLE = 214, "a memory error could not be corrected";
    CUDA_ERROR_UNSUPPORTED_LIMIT = 215, "the device does not have this limit";
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE = 216, "another thread uses this context";
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217, "the devices cannot reach each other's memory";
    CUDA_ERROR_INVALID_PTX = 218, "the PTX text does not compile";
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT = 219, "the graphics context is not valid";
    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220, "a link error could not be corrected";
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221, "the PTX compiler library was not found";
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222, "the PTX is newer than the compiler";
    CUDA_ERROR_JIT_COMPILATION_DISABLED = 223, "compiling PTX is disabled";
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY = 224, "the device does not support this execution affinity";
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC = 225, "the code synchronizes on the device, which is not supported";
    CUDA_ERROR_CONTAINED = 226, "a fault was contained to this process";
    CUDA_ERROR_INSUFFICIENT_LOADER_VERSION = 227, "the loader is too old for this module";
    CUDA_ERROR_INVALID_SOURCE = 300, "the kernel source is not valid";
    CUDA_ERROR_FILE_NOT_FOUND = 301, "the file was not found";
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = 302, "a shared object lacks a symbol";
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = 303, "a shared object did not initialize";
    CUDA_ERROR_OPERATING_SYSTEM = 304, "a call to the operating system failed";
    CUDA_ERROR_INVALID_HANDLE = 400, "the handle is not valid";
    CUDA_ERROR_ILLEGAL_STATE = 401, "the resource is in the wrong state for this";
    CUDA_ERROR_LOSSY_QUERY = 402, "the answer would lose information";
    CUDA_ERROR_NOT_FOUND = 500, "no symbol has this name";
    CUDA_ERROR_NOT_READY = 600, "the work has not finished yet";
    CUDA_ERROR_ILLEGAL_ADDRESS = 700, "a kernel touched an address that is not mapped";
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701, "the launch needs more registers, threads or shared memory than there are";
    CUDA_ERROR_LAUNCH_TIMEOUT = 702, "a kernel ran longer than the watchdog allows";
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING = 703, "the kernel uses an incompatible texturing mode";
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704, "peer access is enabled already";
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705, "peer access is not enabled";
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708, "the primary context is in use already";
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709, "the context was destroyed";
    CUDA_ERROR_ASSERT = 710, "a kernel's assertion failed";
    CUDA_ERROR_TOO_MANY_PEERS = 711, "no more peers can be enabled";
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712, "the host memory is registered already";
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713, "the host memory is not registered";
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714, "the device's call stack is broken";
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715, "a kernel met an illegal instruction";
    CUDA_ERROR_MISALIGNED_ADDRESS = 716, "a kernel touched a misaligned address";
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717, "a kernel used an address of the wrong space";
    CUDA_ERROR_INVALID_PC = 718, "a kernel's program counter left its code";
    CUDA_ERROR_LAUNCH_FAILED = 719, "a kernel failed while it ran";
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720, "the cooperative grid does not fit on the device at once";
    CUDA_ERROR_TENSOR_MEMORY_LEAK = 721, "a kernel ended without freeing its tensor memory";
    CUDA_ERROR_NOT_PERMITTED = 800, "this operation is not permitted";
    CUDA_ERROR_NOT_SUPPORTED = 801, "this operation is not supported";
    CUDA_ERROR_SYSTEM_NOT_READY = 802, "the system is not ready for CUDA";
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803, "the driver library and the kernel driver do not match";
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, "the device does not support forward compatibility";
    CUDA_ERROR_MPS_CONNECTION_FAILED = 805, "the MPS server cannot be reached";
    CUDA_ERROR_MPS_RPC_FAILURE = 806, "a call to the MPS server failed";
    CUDA_ERROR_MPS_SERVER_NOT_READY = 807, "the MPS server is not ready";
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED = 808, "the MPS server has no room for another client";
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED = 809, "the MPS server has no room for another connection";
    CUDA_ERROR_MPS_CLIENT_TERMINATED = 810, "the MPS server ended this client";
    CUDA_ERROR_CDP_NOT_SUPPORTED = 811, "the device cannot launch from kernels";
    CUDA_ERROR_CDP_VERSION_MISMATCH = 812, "launches from kernels of different versions were mixed";
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900, "this cannot be done while the stream captures";
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901, "the capture was invalidated by an earlier error";
    CUDA_ERROR_STREAM_CAPTURE_MERGE = 902, "this would merge two captures";
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903, "the capture did not begin in this stream";
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904, "a stream of the capture was not joined to its origin";
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905, "this would cross the border of a capture";
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906, "this would depend on a capture through the legacy stream";
    CUDA_ERROR_CAPTURED_EVENT = 907, "the event was last recorded in a capture";
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908, "another thread began this capture";
    CUDA_ERROR_TIMEOUT = 909, "the time given for the operation has passed";
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910, "the graph differs too much for an update";
    CUDA_ERROR_EXTERNAL_DEVICE = 911, "a device outside CUDA failed";
    CUDA_ERROR_INVALID_CLUSTER_SIZE = 912, "the cluster size is not valid";
    CUDA_ERROR_FUNCTION_NOT_LOADED = 913, "the function is not loaded";
    CUDA_ERROR_INVALID_RESOURCE_TYPE = 914, "the resource type is not valid here";
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915, "the resource configuration is not valid";
    CUDA_ERROR_KEY_ROTATION = 916, "a key rotation is in progress";
    CUDA_ERROR_STREAM_DETACHED = 917, "the stream is detached from its context";
    CUDA_ERROR_GRAPH_RECAPTURE_FAILURE = 918, "the recaptured graph differs from the first";
    CUDA_ERROR_FABRIC_NOT_READY = 919, "the fabric between the devices is not ready";
    CUDA_ERROR_UNKNOWN = 999, "an unknown error";
}

/// See [`CUresult::is_sticky`].
const STICKY: [CUresult; 15] = [
    CUDA_ERROR_ECC_UNCORRECTABLE,
    CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUDA_ERROR_CONTAINED,
    CUDA_ERROR_ILLEGAL_ADDRESS,
    CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_ASSERT,
    CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_MISALIGNED_ADDRESS,
    CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUDA_ERROR_INVALID_PC,
    CUDA_ERROR_LAUNCH_FAILED,
    CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUDA_ERROR_MPS_CLIENT_TERMINATED,
    CUDA_ERROR_EXTERNAL_DEVICE,
];

impl CUresult {
    /// The name in `cuda.h`, or `None` for a code that this list lacks.
    pub fn name(self) -> Option<&'static CStr> {
        self.known().map(|&(_, name, _)| name)
    }

    /// What it means, in one line.
    pub fn meaning(self) -> Option<&'static CStr> {
        self.known().map(|&(_, _, meaning)| meaning)
    }

    /// Whether the call succeeded.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// `Ok` for success, else the code: lets Rust code use `?` on a driver call.
    ///
    /// # Errors
    /// Every code but `CUDA_SUCCESS`.
    pub const fn ok(self) -> Result<(), CUresult> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }

    /// Whether `cuda.h` says of this code that it leaves a context, or the whole process, unusable: every call that needs the
    /// context answers it from then on. Of the errors that could not be corrected it does not say so; they are taken for such,
    /// too. A driver may answer such a code once: only another call tells.
    pub fn is_sticky(self) -> bool {
        STICKY.contains(&self)
    }

    fn known(self) -> Option<&'static (u32, &'static CStr, &'static CStr)> {
        KNOWN.binary_search_by_key(&self.0, |row| row.0).ok().map(|at| &KNOWN[at])
    }
}

impl fmt::Debug for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(&name.to_string_lossy()),
            None => write!(f, "CUresult({})", self.0),
        }
    }
}
