//! Calls every function by which a program can launch, get device memory, or copy and set it, by its exported name, and prints how
//! often it called each, how much memory each seemed to take and which were refused: for stories that compare this with what
//! Weir and the driver counted.

mod copies;
mod launches;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::ExitCode;
use std::ptr::null_mut;

use libloading::os::unix::Library;
use serde::Serialize;
use weir_abi::types::*;
use weir_tests::driver;

/// Calls a driver function of a [`Sweep`], and counts the call.
macro_rules! call {
    ($sweep:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        *$sweep.made.calls.entry(stringify!($function)).or_default() += 1;
        weir_tests::call!($sweep, $function($($argument),*))
    }};
}
pub(crate) use call;

/// What was done.
#[derive(Default, Serialize)]
struct Made {
    /// Calls by exported name.
    calls: BTreeMap<&'static str, u64>,
    /// By how much the free memory fell, in bytes, by the function that took it.
    took_bytes: BTreeMap<&'static str, u64>,
    /// Those of them that were refused for want of memory.
    refused: BTreeSet<&'static str>,
    /// Copies and memsets, by the way that they went.
    copied: BTreeMap<&'static str, Copied>,
    /// Free memory before the first and after the last of them, in bytes.
    free_bytes: [u64; 2],
}

/// What went one way.
#[derive(Default, Serialize)]
struct Copied {
    calls: u64,
    bytes: u64,
}

/// The driver, ready, and what was done with it.
struct Sweep {
    library: Library,
    function: CUfunction,
    stream: CUstream,
    /// Bytes of the last copy.
    next: usize,
    made: Made,
}

const PTX: &[u8] =
    b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n\0";

impl Sweep {
    fn start() -> Result<Self, libloading::Error> {
        let library = driver::open()?;
        let (function, stream) = (null_mut(), null_mut());
        let mut sweep = Self { library, function, stream, next: 0, made: Made::default() };
        let (mut context, mut module) = (null_mut(), null_mut());
        call!(sweep, cuInit(0));
        call!(sweep, cuDevicePrimaryCtxRetain(&raw mut context, 0));
        call!(sweep, cuCtxSetCurrent(context));
        call!(sweep, cuModuleLoadData(&raw mut module, PTX.as_ptr().cast()));
        call!(sweep, cuModuleGetFunction(&raw mut sweep.function, module, c"nothing".as_ptr()));
        call!(sweep, cuStreamCreate(&raw mut sweep.stream, 0));
        Ok(sweep)
    }
}

fn main() -> ExitCode {
    let mut sweep = match Sweep::start() {
        Ok(sweep) => sweep,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "weir-sweep: {error}");
            return ExitCode::FAILURE;
        }
    };
    launches::all(&mut sweep);
    memory::all(&mut sweep);
    copies::all(&mut sweep);
    call!(sweep, cuCtxSynchronize());
    match serde_json::to_string(&sweep.made).map(|line| writeln!(std::io::stdout(), "{line}")) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
