//! One rank: its GPU's primary context, a stream, a kernel and a collective.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use weir_abi::types::*;
use weir_abi::{CUresult, fns};

use crate::Cli;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No driver, or one without a function.
    #[error("cannot use libcuda.so.1: {0}")]
    Library(#[from] libloading::Error),
    /// A call failed.
    #[error("{0}: {1:?}")]
    Call(&'static str, CUresult),
    /// No place to meet.
    #[error("cannot use the place where ranks meet: {0}")]
    Io(std::io::Error),
    /// A rank's thread panicked.
    #[error("a rank panicked")]
    Panic,
}

macro_rules! driver {
    ($($function:ident,)*) => {
        /// The functions, by their exported names.
        #[allow(non_snake_case, reason = "a field is named as the function it holds")]
        struct Functions { $($function: fns::$function,)* }

        impl Functions {
            fn find(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: every symbol is given the type that weir-abi's table has for it.
                Ok(unsafe { Self { $($function: *library.get(concat!(stringify!($function), "\0").as_bytes())?,)* } })
            }
        }
    };
}

driver! {
    cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuModuleLoadData, cuModuleGetFunction, cuStreamCreate,
    cuStreamSynchronize, cuMemHostRegister_v2, cuStreamWriteValue32_v2, cuLaunchKernel, cuStreamBeginCapture_v2,
    cuStreamEndCapture, cuGraphInstantiateWithFlags, cuGraphLaunch,
}

/// A rank that is ready.
pub struct Rank<'a> {
    functions: Functions,
    cli: &'a Cli,
    number: usize,
    stream: CUstream,
    kernel: CUfunction,
    collective: CUfunction,
    words: u64,
    _library: Library,
}

fn check(call: &'static str, result: CUresult) -> Result<(), Failure> {
    if result == CUDA_SUCCESS { Ok(()) } else { Err(Failure::Call(call, result)) }
}

/// PTX with the two kernels; what they cost is the simulated GPU's configuration.
fn image(cli: &Cli) -> CString {
    let text = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry {}()\n{{\n\tret;\n}}\n\
         .visible .entry {}(.param .u64 word)\n{{\n\tret;\n}}\n",
        cli.kernel, cli.collective
    );
    CString::new(text).unwrap_or_default()
}

// SAFETY (of every call below): handles come from the driver and live as long as the process; places for answers are this
// frame's own.
#[allow(clippy::undocumented_unsafe_blocks, reason = "said once above for all of them")]
impl<'a> Rank<'a> {
    /// Opens the rank's GPU on this thread; the words where ranks meet lie at this address.
    pub fn open(number: usize, cli: &'a Cli, words: usize) -> Result<Self, Failure> {
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL)? };
        let functions = Functions::find(&library)?;
        let (mut context, mut module, mut stream) = (null_mut(), null_mut(), null_mut());
        let device = c_int::try_from(number).unwrap_or(-1);
        let image = image(cli);
        unsafe {
            check("cuInit", (functions.cuInit)(0))?;
            check(
                "cuDevicePrimaryCtxRetain",
                (functions.cuDevicePrimaryCtxRetain)(&raw mut context, device),
            )?;
            check("cuCtxSetCurrent", (functions.cuCtxSetCurrent)(context))?;
            check("cuModuleLoadData", (functions.cuModuleLoadData)(&raw mut module, image.as_ptr().cast()))?;
            check("cuStreamCreate", (functions.cuStreamCreate)(&raw mut stream, 1))?;
            let place: *mut c_void = std::ptr::with_exposed_provenance_mut(words);
            // Another rank of this process may have registered it: portable memory is every context's.
            let registered = (functions.cuMemHostRegister_v2)(place, cli.meeting_bytes(), 1);
            if registered != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED {
                check("cuMemHostRegister", registered)?;
            }
        }
        let function = |name: &str| {
            let name = CString::new(name).unwrap_or_default();
            let mut function = null_mut();
            let result = unsafe { (functions.cuModuleGetFunction)(&raw mut function, module, name.as_ptr()) };
            check("cuModuleGetFunction", result).map(|()| function)
        };
        let (kernel, collective) = (function(&cli.kernel)?, function(&cli.collective)?);
        Ok(Self {
            functions,
            cli,
            number,
            stream,
            kernel,
            collective,
            words: words as u64,
            _library: library,
        })
    }

    /// All steps.
    pub fn run(&self) -> Result<(), Failure> {
        let graph = if self.cli.graph { Some(self.capture()?) } else { None };
        for step in 0..self.cli.steps {
            match graph {
                Some(graph) => {
                    check("cuGraphLaunch", unsafe { (self.functions.cuGraphLaunch)(graph, self.stream) })?
                }
                None => self.kernels()?,
            }
            self.meet(step)?;
            if (step + 1) % self.cli.wait == 0 {
                self.wait()?;
            }
        }
        self.wait()
    }

    fn wait(&self) -> Result<(), Failure> {
        check("cuStreamSynchronize", unsafe { (self.functions.cuStreamSynchronize)(self.stream) })
    }

    fn kernels(&self) -> Result<(), Failure> {
        (0..self.cli.kernels).try_for_each(|_| self.launch(self.kernel, null_mut()))
    }

    /// A step's kernels as a graph, and a collective that nobody is late for.
    fn capture(&self) -> Result<CUgraphExec, Failure> {
        let (mut graph, mut exec) = (null_mut(), null_mut());
        self.set(self.word(self.cli.steps, self.number))?;
        let functions = &self.functions;
        unsafe {
            let mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            check("cuStreamBeginCapture", (functions.cuStreamBeginCapture_v2)(self.stream, mode))?;
            self.kernels()?;
            self.spin(self.word(self.cli.steps, self.number))?;
            check("cuStreamEndCapture", (functions.cuStreamEndCapture)(self.stream, &raw mut graph))?;
            let made = (functions.cuGraphInstantiateWithFlags)(&raw mut exec, graph, 0);
            check("cuGraphInstantiate", made)?;
        }
        Ok(exec)
    }

    /// The collective of a step.
    fn meet(&self, step: usize) -> Result<(), Failure> {
        self.set(self.word(step, self.number))?;
        self.spin(self.word(step, 1 - self.number))
    }

    fn word(&self, step: usize, rank: usize) -> u64 {
        self.words + 4 * (2 * step + rank) as u64
    }

    fn set(&self, word: u64) -> Result<(), Failure> {
        let set = unsafe { (self.functions.cuStreamWriteValue32_v2)(self.stream, word, 1, 0) };
        check("cuStreamWriteValue32", set)
    }

    fn spin(&self, mut word: u64) -> Result<(), Failure> {
        let mut parameters = [(&raw mut word).cast::<c_void>()];
        self.launch(self.collective, parameters.as_mut_ptr())
    }

    fn launch(&self, function: CUfunction, parameters: *mut *mut c_void) -> Result<(), Failure> {
        let launch = self.functions.cuLaunchKernel;
        let result =
            unsafe { launch(function, 108, 1, 1, 128, 1, 1, 0, self.stream, parameters, null_mut()) };
        check("cuLaunchKernel", result)
    }
}
