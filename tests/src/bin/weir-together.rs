//! A program whose kernels run on the first two visible GPUs at once, each launched with one call for both
//! (`cuLaunchCooperativeKernelMultiDevice`): as fast as it can, until its time is over. At the end one JSON line:
//! `{"pid": 7, "launches": 123}`.

use std::ffi::CStr;
use std::io::Write;
use std::process::ExitCode;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use clap::Parser;
use weir_abi::types::*;
use weir_tests::driver::{self, DriverError, check};
use weir_tests::driver_functions;

driver_functions! {
    cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuModuleLoadData, cuModuleGetFunction, cuStreamCreate,
    cuStreamSynchronize, cuLaunchCooperativeKernelMultiDevice,
}

/// Kernels on two GPUs at once.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// For so long, in milliseconds.
    #[arg(long)]
    milliseconds: u64,
}

/// PTX with the kernel; what it costs is the simulated GPU's configuration.
const IMAGE: &CStr =
    c".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry together()\n{\n\tret;\n}\n";

/// Launches that may be queued.
const QUEUED: u64 = 4;

/// Calls one of the functions; what it answers as a `Result`.
macro_rules! call {
    ($functions:expr, $function:ident($($argument:expr),*)) => {{
        let function = $functions.$function;
        // SAFETY: handles come from the driver and live as long as the process; places for answers are the caller's own.
        check(stringify!($function), unsafe { function($($argument),*) })
    }};
}

fn main() -> ExitCode {
    match run(Duration::from_millis(Cli::parse().milliseconds)) {
        Ok(launches) => {
            let said = serde_json::json!({ "pid": std::process::id(), "launches": launches });
            ExitCode::from(u8::from(writeln!(std::io::stdout(), "{said}").is_err()))
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "weir-together: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(time: Duration) -> Result<u64, DriverError> {
    let library = driver::open()?;
    let functions = Functions::find(&library)?;
    call!(functions, cuInit(0))?;
    let mut parts = [part(&functions, 0)?, part(&functions, 1)?];
    let (begun, mut launches) = (Instant::now(), 0);
    while begun.elapsed() < time {
        call!(functions, cuLaunchCooperativeKernelMultiDevice(parts.as_mut_ptr(), 2, 0))?;
        launches += 1;
        if launches % QUEUED == 0 {
            parts.iter().try_for_each(|part| call!(functions, cuStreamSynchronize(part.stream)))?;
        }
    }
    Ok(launches)
}

/// What is launched on one of the GPUs.
fn part(functions: &Functions, device: CUdevice) -> Result<CUDA_LAUNCH_PARAMS, DriverError> {
    let (mut context, mut module, mut function, mut stream) =
        (null_mut(), null_mut(), null_mut(), null_mut());
    call!(functions, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
    call!(functions, cuCtxSetCurrent(context))?;
    call!(functions, cuModuleLoadData(&raw mut module, IMAGE.as_ptr().cast()))?;
    call!(functions, cuModuleGetFunction(&raw mut function, module, c"together".as_ptr()))?;
    call!(functions, cuStreamCreate(&raw mut stream, 1))?;
    Ok(CUDA_LAUNCH_PARAMS {
        function,
        grid_dim_x: 108,
        grid_dim_y: 1,
        grid_dim_z: 1,
        block_dim_x: 128,
        block_dim_y: 1,
        block_dim_z: 1,
        shared_mem_bytes: 0,
        stream,
        kernel_params: null_mut(),
    })
}
