//! `weir-bench startup`: what a program pays at its start that has many libraries and looks many functions of the driver up, as
//! PyTorch does.

use std::ffi::CString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::ptr::null_mut;
use std::time::Instant;

use libloading::os::unix::Library;
use serde_json::json;
use weir_abi::fns::cuGetProcAddress_v2;
use weir_abi::types::CUDA_SUCCESS;
use weir_protocol::units::Bytes;

use crate::client::ClientError;
use crate::report::{Bar, Report};
use crate::rig::{Control, Rig};
use crate::sample::Spread;
use crate::stage::{self, THIS_PROGRAM};
use crate::{QuickOptions, load};

/// Libraries that the program has, and functions that it looks up.
const LIBRARIES: usize = 150;
const FUNCTIONS: usize = 450;

/// What version a program of CUDA 12.9 asks for.
const VERSION: i32 = 12_090;

/// Starts without Weir and with it, in turns.
const STARTS: usize = 15;
const QUICK_STARTS: usize = 1;

/// Measures and prints.
pub fn run(options: &QuickOptions) -> Result<ExitCode, io::Error> {
    let rig = Rig::simulated(&load::costs())?;
    let tenant = Control::of(&rig)?.create("one", 50, Bytes::gib(1))?;
    let libraries = libraries()?;
    let start = |preload: Option<PathBuf>| {
        let mut command = Command::new(THIS_PROGRAM);
        command.arg("startup-player").arg(libraries.path());
        rig.environment(&mut command);
        if let Some(preload) = preload {
            command.env("LD_PRELOAD", preload).env("WEIR_DIR", &tenant.dir);
        }
        told_ms(&mut command)
    };
    let (mut bare, mut weir) = (Vec::new(), Vec::new());
    for _ in 0..options.of(STARTS, QUICK_STARTS) {
        bare.push(start(None)?);
        weir.push(start(Some(rig.preload()))?);
    }
    let (bare, weir) = (Spread::of(&bare), Spread::of(&weir));
    let mut report = Report::new("startup", true);
    report.bar(Bar::at_most("startup.added_ms", weir.median - bare.median, "ms", 20.0));
    report.figure("libraries_and_look_ups", json!({"bare_ms": bare, "weir_ms": weir}));
    Ok(report.finish(options.common.json))
}

/// So many copies of a small library: the loader takes each for another one.
fn libraries() -> io::Result<tempfile::TempDir> {
    let (directory, original) = (tempfile::tempdir()?, stage::dist()?.join("floor/libcounter.so"));
    for n in 0..LIBRARIES {
        std::fs::copy(&original, directory.path().join(format!("lib{n}.so")))?;
    }
    Ok(directory)
}

fn told_ms(command: &mut Command) -> io::Result<f64> {
    let output = command.output()?;
    let told =
        String::from_utf8_lossy(&output.stdout).trim().parse().ok().filter(|_| output.status.success());
    told.ok_or_else(|| {
        io::Error::other(format!("the program failed: {}", String::from_utf8_lossy(&output.stderr)))
    })
}

/// Runs as the program: opens all libraries, looks the functions up, and prints in how many milliseconds.
pub fn play(libraries: &Path) -> ExitCode {
    match opens_and_looks_up(libraries) {
        Ok(ms) => {
            let _ = writeln!(io::stdout(), "{ms}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "startup: {error}");
            ExitCode::FAILURE
        }
    }
}

fn opens_and_looks_up(libraries: &Path) -> Result<f64, ClientError> {
    let mut names: Vec<&str> = weir_abi::SYMBOLS.iter().map(|symbol| symbol.base).collect();
    names.dedup();
    let names = names.into_iter().take(FUNCTIONS).map(|name| CString::new(name).unwrap_or_default());
    let (names, mut found): (Vec<CString>, _) = (names.collect(), 0);
    let began = Instant::now();
    let mut open = Vec::new();
    for entry in std::fs::read_dir(libraries)? {
        // SAFETY: a library without constructors of its own.
        open.push(unsafe { Library::new(entry?.path()) }?);
    }
    // SAFETY: the driver's constructors may run here as in any program.
    let driver = unsafe { Library::new("libcuda.so.1") }?;
    // SAFETY: the function's type is the one that is generated from NVIDIA's headers.
    let ask = unsafe { driver.get::<cuGetProcAddress_v2>(b"cuGetProcAddress_v2\0") }?;
    for name in &names {
        let mut address = null_mut();
        // SAFETY: a C string, and a place for an address.
        let result = unsafe { ask(name.as_ptr(), &raw mut address, VERSION, 0, null_mut()) };
        found += usize::from(result == CUDA_SUCCESS && !address.is_null());
    }
    let took = began.elapsed();
    if found * 2 < names.len() {
        return Err(io::Error::other(format!("{found} of {} functions were found", names.len())).into());
    }
    Ok(took.as_secs_f64() * 1e3)
}
