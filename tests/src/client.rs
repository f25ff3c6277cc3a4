//! The few driver functions that a client calls which launches kernels and graphs and waits for them.

#![allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "handles: the driver knows them, nothing here follows them"
)]

use std::ffi::{CString, c_int};
use std::ptr::null_mut;

use libloading::os::unix::Library;
use weir_abi::types::*;

use crate::driver::{self, DriverError, check};
use crate::driver_functions;

driver_functions! {
    cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuCtxSynchronize, cuModuleLoadData, cuModuleGetFunction,
    cuStreamBeginCapture_v2, cuStreamEndCapture, cuGraphInstantiateWithFlags, cuGraphLaunch, cuStreamCreate, cuEventCreate, cuEventRecord, cuEventSynchronize, cuLaunchKernel, cuMemAlloc_v2, cuMemFree_v2,
}

/// The driver with the primary context of one GPU.
pub struct Driver {
    functions: Functions,
    context: CUcontext,
    module: CUmodule,
    _library: Library,
}

// SAFETY: the driver's functions may be called from any thread; contexts and modules are handles, not data.
unsafe impl Send for Driver {}

// SAFETY: as above: no call changes anything here.
unsafe impl Sync for Driver {}

impl Driver {
    /// Opens the driver, makes the GPU's primary context current and loads kernels of these names.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn open(gpu: c_int, kernels: &[String]) -> Result<Self, DriverError> {
        let library = driver::open()?;
        let functions = Functions::find(&library)?;
        let (mut context, mut module) = (null_mut(), null_mut());
        let image = driver::image(kernels.iter().map(String::as_str));
        // SAFETY: arguments as the driver's documentation wants them: places for answers, and an image that ends
        // with a NUL.
        unsafe {
            check("cuInit", (functions.cuInit)(0))?;
            check("cuDevicePrimaryCtxRetain", (functions.cuDevicePrimaryCtxRetain)(&raw mut context, gpu))?;
            check("cuCtxSetCurrent", (functions.cuCtxSetCurrent)(context))?;
            check("cuModuleLoadData", (functions.cuModuleLoadData)(&raw mut module, image.as_ptr().cast()))?;
        }
        Ok(Self { functions, context, module, _library: library })
    }

    /// Makes the context current in this thread too.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn use_context(&self) -> Result<(), DriverError> {
        // SAFETY: the context lives as long as this process.
        check("cuCtxSetCurrent", unsafe { (self.functions.cuCtxSetCurrent)(self.context) })
    }

    /// A kernel by name.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn function(&self, name: &str) -> Result<CUfunction, DriverError> {
        let name = CString::new(name).unwrap_or_default();
        let mut function = null_mut();
        // SAFETY: the module is loaded, the name a C string.
        let result =
            unsafe { (self.functions.cuModuleGetFunction)(&raw mut function, self.module, name.as_ptr()) };
        check("cuModuleGetFunction", result).map(|()| function)
    }

    /// A stream beside the default one.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn stream(&self) -> Result<CUstream, DriverError> {
        let mut stream = null_mut();
        // SAFETY: a place for the answer.
        check("cuStreamCreate", unsafe { (self.functions.cuStreamCreate)(&raw mut stream, 0) })
            .map(|()| stream)
    }

    /// An event.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn event(&self) -> Result<CUevent, DriverError> {
        let mut event = null_mut();
        // SAFETY: a place for the answer.
        check("cuEventCreate", unsafe { (self.functions.cuEventCreate)(&raw mut event, 0) }).map(|()| event)
    }

    /// Puts the event behind what is in the stream now.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn record(&self, event: CUevent, stream: CUstream) -> Result<(), DriverError> {
        // SAFETY: both were made above and are never destroyed.
        check("cuEventRecord", unsafe { (self.functions.cuEventRecord)(event, stream) })
    }

    /// Waits for the event.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn wait(&self, event: CUevent) -> Result<(), DriverError> {
        // SAFETY: as in `record`.
        check("cuEventSynchronize", unsafe { (self.functions.cuEventSynchronize)(event) })
    }

    /// Waits for everything.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: a context is current.
        check("cuCtxSynchronize", unsafe { (self.functions.cuCtxSynchronize)() })
    }

    /// Launches `blocks` blocks.
    ///
    /// # Errors
    /// What the driver does not like.
    #[inline]
    pub fn launch(&self, function: CUfunction, blocks: u32, stream: CUstream) -> Result<(), DriverError> {
        let null = null_mut();
        // SAFETY: the function is loaded and takes no parameters.
        let result = unsafe {
            (self.functions.cuLaunchKernel)(function, blocks, 1, 1, 128, 1, 1, 0, stream, null, null_mut())
        };
        check("cuLaunchKernel", result)
    }

    /// What `work` launches into the stream, as a graph that is ready.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn capture(
        &self,
        stream: CUstream,
        work: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<CUgraphExec, DriverError> {
        let (mut graph, mut ready) = (null_mut(), null_mut());
        let functions = &self.functions;
        // SAFETY: the stream was made above; places for answers; the graph is the one that was captured.
        unsafe {
            let begun = (functions.cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
            check("cuStreamBeginCapture", begun)?;
            work()?;
            check("cuStreamEndCapture", (functions.cuStreamEndCapture)(stream, &raw mut graph))?;
            check("cuGraphInstantiate", (functions.cuGraphInstantiateWithFlags)(&raw mut ready, graph, 0))?;
        }
        Ok(ready)
    }

    /// Launches a graph.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn launch_graph(&self, graph: CUgraphExec, stream: CUstream) -> Result<(), DriverError> {
        // SAFETY: both were made above and are never destroyed.
        check("cuGraphLaunch", unsafe { (self.functions.cuGraphLaunch)(graph, stream) })
    }

    /// Device memory.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn allocate(&self, bytes: u64) -> Result<CUdeviceptr, DriverError> {
        let mut pointer = 0;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: a place for the answer.
        check("cuMemAlloc_v2", unsafe { (self.functions.cuMemAlloc_v2)(&raw mut pointer, bytes) })
            .map(|()| pointer)
    }

    /// Gives it back.
    ///
    /// # Errors
    /// What the driver does not like.
    pub fn free(&self, pointer: CUdeviceptr) -> Result<(), DriverError> {
        // SAFETY: the pointer came from `allocate`.
        check("cuMemFree_v2", unsafe { (self.functions.cuMemFree_v2)(pointer) })
    }
}
