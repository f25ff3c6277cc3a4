//! A client that gets and gives back device memory as it is told, one line on stdin at a time: for stories that say what
//! each call must cost. A line is a command and its numbers; the answer is one line of JSON with what the driver said and
//! the numbers that it gave out. Handles and pointers are numbers, so a story can pass them on, also to another process.

mod contexts;
mod device;
mod graphs;
mod pools;
mod shares;

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use weir_abi::types::*;
use weir_abi::{CUresult, fns};
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

/// The driver, with the primary context of the first GPU.
struct Client {
    library: Library,
    stream: CUstream,
}

/// What a command did: the driver's answer, and the numbers that it gave out.
type Done = (CUresult, Vec<u64>);

impl Client {
    fn start() -> Result<(Self, CUresult), libloading::Error> {
        // SAFETY: the driver's constructors do nothing but load it.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL) }?;
        let mut client = Self { library, stream: null_mut() };
        let mut context = null_mut();
        call!(client, cuInit(0));
        let result = call!(client, cuDevicePrimaryCtxRetain(&raw mut context, 0));
        if result == CUDA_SUCCESS {
            call!(client, cuCtxSetCurrent(context));
            call!(client, cuStreamCreate(&raw mut client.stream, 0));
        }
        Ok((client, result))
    }

    fn obey(&mut self, line: &str) -> Done {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        let n = |at: usize| numbers.get(at).copied().unwrap_or(0);
        device::obey(self, command, n)
            .or_else(|| pools::obey(self, command, n))
            .or_else(|| graphs::obey(self, command, n))
            .or_else(|| contexts::obey(self, command, n))
            .or_else(|| shares::obey(self, command, n))
            .unwrap_or_else(|| panic!("no such command: {line}"))
    }
}

/// A number of bytes as the driver takes it.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
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
            let _ = writeln!(std::io::stderr(), "weir-memory: {error}");
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
