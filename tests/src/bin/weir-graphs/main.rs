//! A client that builds, changes and launches graphs, and works in contexts and streams of all kinds, as it is told, one
//! line on stdin at a time: for stories that say what each must cost. It answers as `weir-memory` does. Kernels are named
//! by their place in [`KERNELS`]; handles are numbers.

mod build;
mod change;
mod copy;
mod places;

use std::ffi::c_void;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use weir_abi::types::*;
use weir_abi::{CUresult, fns};
use weir_tests::graphs::KERNELS;
use weir_tests::memory::Answer;

/// Calls a driver function of a [`Client`], found by `dlsym`.
macro_rules! call {
    ($client:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the symbol is given the type that weir-abi's table has for it.
        let function = unsafe { $client.library.get::<fns::$function>(concat!(stringify!($function), "\0").as_bytes()) };
        let function = function.unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: arguments as the driver's documentation wants them: handles that it gave out, places for answers.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use call;

/// The driver, with the primary context of the first GPU and a module of all kernels.
struct Client {
    library: Library,
    context: CUcontext,
    functions: Vec<CUfunction>,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Sync for Client {}

/// What a command did: the driver's answer, and the numbers that it gave out.
type Done = (CUresult, Vec<u64>);

impl Client {
    fn start() -> Result<(Self, CUresult), libloading::Error> {
        // SAFETY: the driver's constructors do nothing but load it.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL) }?;
        let mut client = Self { library, context: null_mut(), functions: Vec::new() };
        let mut module = null_mut();
        call!(client, cuInit(0));
        let result = call!(client, cuDevicePrimaryCtxRetain(&raw mut client.context, 0));
        if result == CUDA_SUCCESS {
            call!(client, cuCtxSetCurrent(client.context));
            call!(client, cuModuleLoadData(&raw mut module, image().as_ptr().cast()));
            for name in KERNELS {
                let (mut function, name) = (null_mut(), std::ffi::CString::new(name).unwrap_or_default());
                call!(client, cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
                client.functions.push(function);
            }
        }
        Ok((client, result))
    }

    fn obey(&mut self, line: &str) -> Done {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        build::obey(self, command, &numbers)
            .or_else(|| change::obey(self, command, &numbers))
            .or_else(|| copy::obey(self, command, &numbers))
            .or_else(|| places::obey(self, command, &numbers))
            .unwrap_or_else(|| panic!("no such command: {line}"))
    }

    /// A kernel by its place in [`KERNELS`].
    fn function(&self, kernel: u64) -> CUfunction {
        self.functions.get(size(kernel)).copied().unwrap_or(null_mut())
    }

    /// Launches one kernel of 216 blocks, two for each SM.
    fn kernel(&self, stream: CUstream, kernel: u64) -> CUresult {
        let (function, none) = (self.function(kernel), null_mut::<*mut c_void>());
        call!(self, cuLaunchKernel(function, 216, 1, 1, 1024, 1, 1, 0, stream, none, none))
    }
}

/// PTX of a module whose kernels do nothing; what they cost is a matter of the simulated GPU's table.
fn image() -> std::ffi::CString {
    let entries: String =
        KERNELS.iter().map(|name| format!(".visible .entry {name}() {{ ret; }}\n")).collect();
    let text = format!(".version 7.0\n.target sm_80\n.address_size 64\n{entries}");
    std::ffi::CString::new(text).unwrap_or_default()
}

/// A number as the driver takes it.
fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A handle as a number, and back.
fn number<T>(handle: *mut T) -> u64 {
    handle.expose_provenance() as u64
}

fn handle<T>(number: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(size(number))
}

fn say(done: Done) {
    let answer = Answer { pid: std::process::id(), result: format!("{:?}", done.0), values: done.1 };
    let mut out = std::io::stdout().lock();
    let _ =
        serde_json::to_writer(&mut out, &answer).map_err(std::io::Error::from).and_then(|()| writeln!(out));
    let _ = out.flush();
}

fn main() -> ExitCode {
    let (mut client, started) = match Client::start() {
        Ok(started) => started,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "weir-graphs: {error}");
            return ExitCode::FAILURE;
        }
    };
    say((started, Vec::new()));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let done = client.obey(&line);
        say(done);
    }
    ExitCode::SUCCESS
}
