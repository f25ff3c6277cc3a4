//! One rank: its GPU's primary context, a stream, a kernel and a collective.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

use libloading::os::unix::Library;
use weir_abi::types::*;
use weir_tests::driver::{self, DriverError, check};
use weir_tests::driver_functions;

use crate::Cli;

driver_functions! {
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

/// PTX with the two kernels; what they cost is the simulated GPU's configuration.
fn image(cli: &Cli) -> CString {
    let text = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry {}()\n{{\n\tret;\n}}\n\
         .visible .entry {}(.param .u64 word)\n{{\n\tret;\n}}\n",
        cli.kernel, cli.collective
    );
    CString::new(text).unwrap_or_default()
}

/// Calls one of the functions; what it answers as a `Result`.
macro_rules! call {
    ($functions:expr, $function:ident($($argument:expr),*)) => {{
        let function = $functions.$function;
        // SAFETY: handles come from the driver and live as long as the process; places for answers are the caller's own.
        check(stringify!($function), unsafe { function($($argument),*) })
    }};
}

impl<'a> Rank<'a> {
    /// Opens the rank's GPU on this thread; the words where ranks meet lie at this address.
    pub fn open(number: usize, cli: &'a Cli, words: usize) -> Result<Self, DriverError> {
        let library = driver::open()?;
        let functions = Functions::find(&library)?;
        let (mut context, mut module, mut stream) = (null_mut(), null_mut(), null_mut());
        let device = c_int::try_from(number).unwrap_or(-1);
        let image = image(cli);
        call!(functions, cuInit(0))?;
        call!(functions, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        call!(functions, cuCtxSetCurrent(context))?;
        call!(functions, cuModuleLoadData(&raw mut module, image.as_ptr().cast()))?;
        call!(functions, cuStreamCreate(&raw mut stream, 1))?;
        let place: *mut c_void = std::ptr::with_exposed_provenance_mut(words);
        match call!(functions, cuMemHostRegister_v2(place, cli.meeting_bytes(), 1)) {
            // Another rank of this process has registered it: portable memory is every context's.
            Err(DriverError::Call { result: CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, .. }) => {}
            registered => registered?,
        }
        let function = |name: &str| {
            let name = CString::new(name).unwrap_or_default();
            let mut function = null_mut();
            call!(functions, cuModuleGetFunction(&raw mut function, module, name.as_ptr())).map(|()| function)
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
    pub fn run(&self) -> Result<(), DriverError> {
        let graph = if self.cli.graph { Some(self.capture()?) } else { None };
        for step in 0..self.cli.steps {
            match graph {
                Some(graph) => call!(self.functions, cuGraphLaunch(graph, self.stream))?,
                None => self.kernels()?,
            }
            self.meet(step)?;
            if (step + 1) % self.cli.wait == 0 {
                self.wait()?;
            }
        }
        self.wait()
    }

    fn wait(&self) -> Result<(), DriverError> {
        call!(self.functions, cuStreamSynchronize(self.stream))
    }

    fn kernels(&self) -> Result<(), DriverError> {
        (0..self.cli.kernels).try_for_each(|_| self.launch(self.kernel, null_mut()))
    }

    /// A step's kernels as a graph, and a collective that nobody is late for.
    fn capture(&self) -> Result<CUgraphExec, DriverError> {
        let (mut graph, mut exec) = (null_mut(), null_mut());
        self.set(self.word(self.cli.steps, self.number))?;
        call!(self.functions, cuStreamBeginCapture_v2(self.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))?;
        self.kernels()?;
        self.spin(self.word(self.cli.steps, self.number))?;
        call!(self.functions, cuStreamEndCapture(self.stream, &raw mut graph))?;
        call!(self.functions, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0))?;
        Ok(exec)
    }

    /// The collective of a step.
    fn meet(&self, step: usize) -> Result<(), DriverError> {
        self.set(self.word(step, self.number))?;
        self.spin(self.word(step, 1 - self.number))
    }

    fn word(&self, step: usize, rank: usize) -> u64 {
        self.words + 4 * (2 * step + rank) as u64
    }

    fn set(&self, word: u64) -> Result<(), DriverError> {
        call!(self.functions, cuStreamWriteValue32_v2(self.stream, word, 1, 0))
    }

    fn spin(&self, mut word: u64) -> Result<(), DriverError> {
        let mut parameters = [(&raw mut word).cast::<c_void>()];
        self.launch(self.collective, parameters.as_mut_ptr())
    }

    fn launch(&self, function: CUfunction, parameters: *mut *mut c_void) -> Result<(), DriverError> {
        call!(
            self.functions,
            cuLaunchKernel(function, 108, 1, 1, 128, 1, 1, 0, self.stream, parameters, null_mut())
        )
    }
}
