//! A driver-API client as small as can be: it opens `libcuda.so.1` and looks functions up by `dlsym`, as most
//! programs do.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use weir_abi::types::*;
use weir_abi::{CUresult, fns};

use crate::kernels::{Kernel, image};

/// The functions that a worker calls.
pub struct Driver {
    launch: fns::cuLaunchKernel,
    alloc: fns::cuMemAlloc_v2,
    free: fns::cuMemFree_v2,
    alloc_async: fns::cuMemAllocAsync,
    free_async: fns::cuMemFreeAsync,
    synchronize: fns::cuCtxSynchronize,
    stream_create: fns::cuStreamCreate,
    graph_launch: fns::cuGraphLaunch,
    module: usize,
    get_function: fns::cuModuleGetFunction,
    _library: Library,
}

/// Threads of a block.
const BLOCK: c_uint = 128;

/// What libweir.so charges for a launch now, in nanoseconds; 0 if it was never asked to, or is not there.
pub fn price_ns(function: CUfunction, blocks: c_uint) -> u64 {
    type Ask = unsafe extern "C" fn(CUfunction, c_uint, c_uint, c_uint) -> u64;
    let this = Library::this();
    // SAFETY: the symbol has this type (interposer, `hint`).
    unsafe { this.get::<Ask>(b"weir_kernel_price_ns\0").map_or(0, |ask| ask(function, blocks, BLOCK, 0)) }
}

/// Tells libweir.so how long a request took, as `interposer/include/weir.h` does; without it, nobody.
pub fn tell_latency(metric: &CStr, ns: u64) {
    type Tell = unsafe extern "C" fn(*const c_char, u64) -> c_int;
    let this = Library::this();
    // SAFETY: the symbol has this type (interposer, `hint`), the name ends with a NUL.
    unsafe {
        if let Ok(tell) = this.get::<Tell>(b"weir_latency\0") {
            tell(metric.as_ptr(), ns);
        }
    }
}

/// What the driver did not like.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No driver, or one without a function.
    #[error("cannot use libcuda.so.1: {0}")]
    Library(#[from] libloading::Error),
    /// A call failed.
    #[error("{call}: {result:?}")]
    Call {
        /// Which.
        call: &'static str,
        /// What it answered.
        result: CUresult,
    },
    /// What goes between the two processes of a job.
    #[error("the job's other process: {0}")]
    Peer(#[from] std::io::Error),
}

pub fn check(call: &'static str, result: CUresult) -> Result<(), ClientError> {
    if result == CUDA_SUCCESS { Ok(()) } else { Err(ClientError::Call { call, result }) }
}

impl Driver {
    /// Opens the driver, makes device 0's primary context current, and loads a module with kernels that do nothing.
    pub fn open(kernels: &[&str]) -> Result<Self, ClientError> {
        Self::open_with(&kernels.iter().map(|name| Kernel::nothing(name)).collect::<Vec<_>>())
    }

    /// The same with kernels that do something, where the GPU is real.
    pub fn open_with(kernels: &[Kernel<'_>]) -> Result<Self, ClientError> {
        let image = image(kernels);
        // SAFETY: every symbol is given the type that weir-abi's table has for it; arguments follow the driver's
        // documentation.
        unsafe {
            let library = Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL)?;
            let init: fns::cuInit = *library.get(b"cuInit\0")?;
            let retain: fns::cuDevicePrimaryCtxRetain = *library.get(b"cuDevicePrimaryCtxRetain\0")?;
            let set_current: fns::cuCtxSetCurrent = *library.get(b"cuCtxSetCurrent\0")?;
            let load: fns::cuModuleLoadData = *library.get(b"cuModuleLoadData\0")?;
            check("cuInit", init(0))?;
            let (mut context, mut module) = (null_mut(), null_mut());
            check("cuDevicePrimaryCtxRetain", retain(&raw mut context, 0))?;
            check("cuCtxSetCurrent", set_current(context))?;
            check("cuModuleLoadData", load(&raw mut module, image.as_ptr().cast()))?;
            Ok(Self {
                launch: *library.get(b"cuLaunchKernel\0")?,
                alloc: *library.get(b"cuMemAlloc_v2\0")?,
                free: *library.get(b"cuMemFree_v2\0")?,
                alloc_async: *library.get(b"cuMemAllocAsync\0")?,
                free_async: *library.get(b"cuMemFreeAsync\0")?,
                synchronize: *library.get(b"cuCtxSynchronize\0")?,
                stream_create: *library.get(b"cuStreamCreate\0")?,
                graph_launch: *library.get(b"cuGraphLaunch\0")?,
                get_function: *library.get(b"cuModuleGetFunction\0")?,
                module: module.expose_provenance(),
                _library: library,
            })
        }
    }

    /// A kernel by name. The floor driver hands out none; a made-up handle then tells kernels apart.
    pub fn function(&self, name: &str, number: usize) -> Result<CUfunction, ClientError> {
        let name = std::ffi::CString::new(name).unwrap_or_default();
        let mut function: CUfunction = std::ptr::without_provenance_mut::<c_void>(0x1_0000 + number * 0x100);
        // SAFETY: the module is loaded, the name a C string.
        check("cuModuleGetFunction", unsafe {
            (self.get_function)(
                &raw mut function,
                std::ptr::with_exposed_provenance_mut(self.module),
                name.as_ptr(),
            )
        })?;
        Ok(function)
    }

    /// Launches `blocks` blocks on the legacy stream.
    #[inline]
    pub fn launch(&self, function: CUfunction, blocks: c_uint) -> CUresult {
        // SAFETY: the function is loaded and takes no parameters.
        unsafe { (self.launch)(function, blocks, 1, 1, BLOCK, 1, 1, 0, null_mut(), null_mut(), null_mut()) }
    }

    /// Launches `blocks` blocks into a stream.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn launch_into(
        &self,
        stream: CUstream,
        function: CUfunction,
        blocks: c_uint,
    ) -> Result<(), ClientError> {
        // SAFETY: as above; the stream is the driver's.
        let result =
            unsafe { (self.launch)(function, blocks, 1, 1, BLOCK, 1, 1, 0, stream, null_mut(), null_mut()) };
        check("cuLaunchKernel", result)
    }

    /// A stream that takes no notice of the legacy default stream.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn stream(&self) -> Result<CUstream, ClientError> {
        let mut stream = null_mut();
        // SAFETY: a place for the answer.
        check("cuStreamCreate", unsafe { (self.stream_create)(&raw mut stream, CU_STREAM_NON_BLOCKING) })?;
        Ok(stream)
    }

    /// Launches a graph.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn launch_graph(&self, stream: CUstream, exec: CUgraphExec) -> Result<(), ClientError> {
        // SAFETY: the graph and the stream are the driver's.
        check("cuGraphLaunch", unsafe { (self.graph_launch)(exec, stream) })
    }

    /// Allocates and frees.
    #[inline]
    pub fn alloc_free(&self, bytes: usize) -> CUresult {
        let mut pointer = 0;
        // SAFETY: a place for the answer, and the pointer that came from it.
        unsafe {
            let result = (self.alloc)(&raw mut pointer, bytes);
            if result == CUDA_SUCCESS { (self.free)(pointer) } else { result }
        }
    }

    /// Allocates from the device's pool, and frees, in stream order.
    #[inline]
    pub fn alloc_free_async(&self, bytes: usize) -> CUresult {
        let mut pointer = 0;
        // SAFETY: as above; the legacy stream.
        unsafe {
            let result = (self.alloc_async)(&raw mut pointer, bytes, null_mut());
            if result == CUDA_SUCCESS { (self.free_async)(pointer, null_mut()) } else { result }
        }
    }

    /// Allocates pieces of `bytes` until the driver says that there is no more, frees them, and says how many it were.
    pub fn fill(&self, bytes: usize) -> Result<usize, ClientError> {
        let mut pieces = Vec::new();
        let refusal = loop {
            let mut pointer = 0;
            // SAFETY: a place for the answer.
            match unsafe { (self.alloc)(&raw mut pointer, bytes) } {
                CUDA_SUCCESS => pieces.push(pointer),
                refusal => break refusal,
            }
        };
        for pointer in &pieces {
            // SAFETY: a pointer that the driver handed out, freed once.
            check("cuMemFree_v2", unsafe { (self.free)(*pointer) })?;
        }
        let full = if refusal == CUDA_ERROR_OUT_OF_MEMORY { CUDA_SUCCESS } else { refusal };
        check("cuMemAlloc_v2", full).map(|()| pieces.len())
    }

    /// Waits for everything.
    pub fn synchronize(&self) -> Result<(), ClientError> {
        // SAFETY: a context is current.
        check("cuCtxSynchronize", unsafe { (self.synchronize)() })
    }
}
