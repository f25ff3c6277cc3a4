//! A client that builds, changes and launches graphs, and works in contexts and streams of all kinds, as it is told, one
//! line on stdin at a time: for stories that say what each must cost. It answers as
//! [`weir_tests::obeying`] says. Kernels are named
//! by their place in [`KERNELS`]; handles are numbers.

mod build;
mod change;
mod copy;
mod nodes;
mod orders;
mod places;
mod ways;

use std::ffi::c_void;
use std::process::ExitCode;
use std::ptr::null_mut;

use libloading::os::unix::Library;
use weir_abi::CUresult;
use weir_abi::types::*;
use weir_tests::graphs::KERNELS;
use weir_tests::obeying::{Done, Obeys, size};
use weir_tests::{call, driver, obeying};

/// Blocks of a launch, if nothing else is asked for: two for each SM.
const BLOCKS: u32 = 216;

/// Threads of a block: half an SM's.
const THREADS: u32 = 1_024;

/// The driver, with the primary context of the first GPU and a module of all kernels.
struct Client {
    library: Library,
    context: CUcontext,
    functions: Vec<CUfunction>,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Sync for Client {}

impl Obeys for Client {
    fn start() -> Result<(Self, CUresult), libloading::Error> {
        let mut client = Self { library: driver::open()?, context: null_mut(), functions: Vec::new() };
        call!(client, cuInit(0));
        let result = client.begin();
        Ok((client, result))
    }

    fn obey(&mut self, command: &str, numbers: &[u64]) -> Option<Done> {
        build::obey(self, command, numbers)
            .or_else(|| change::obey(self, command, numbers))
            .or_else(|| copy::obey(self, command, numbers))
            .or_else(|| nodes::obey(self, command, numbers))
            .or_else(|| orders::obey(self, command, numbers))
            .or_else(|| places::obey(self, command, numbers))
            .or_else(|| ways::obey(self, command, numbers))
    }
}

impl Client {
    /// Makes the primary context current, with the module in it.
    fn begin(&mut self) -> CUresult {
        let mut module = null_mut();
        let result = call!(self, cuDevicePrimaryCtxRetain(&raw mut self.context, 0));
        if result == CUDA_SUCCESS {
            call!(self, cuCtxSetCurrent(self.context));
            call!(self, cuModuleLoadData(&raw mut module, driver::image(KERNELS).as_ptr().cast()));
            self.functions.clear();
            for name in KERNELS {
                let (mut function, name) = (null_mut(), std::ffi::CString::new(name).unwrap_or_default());
                call!(self, cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
                self.functions.push(function);
            }
        }
        result
    }

    /// A kernel by its place in [`KERNELS`].
    fn function(&self, kernel: u64) -> CUfunction {
        self.functions.get(size(kernel)).copied().unwrap_or(null_mut())
    }

    /// Launches one kernel.
    fn kernel(&self, stream: CUstream, kernel: u64) -> CUresult {
        let (function, none) = (self.function(kernel), null_mut::<*mut c_void>());
        call!(self, cuLaunchKernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, none, none))
    }
}

fn main() -> ExitCode {
    obeying::run::<Client>("weir-graphs")
}
