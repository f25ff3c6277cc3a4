//! Start and end, versions, error texts.

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::edge::{self, Answer, put, put_text};
use crate::{nvml, session};

/// Driver branches by the CUDA version they brought. Source: the release notes of each CUDA toolkit.
const BRANCHES: &[(u32, u32)] = &[
    (11000, 450),
    (11010, 455),
    (11020, 460),
    (11030, 465),
    (11040, 470),
    (11050, 495),
    (11060, 510),
    (11070, 515),
    (11080, 520),
    (12000, 525),
    (12010, 530),
    (12020, 535),
    (12030, 545),
    (12040, 550),
    (12050, 555),
    (12060, 560),
    (12080, 570),
    (12090, 575),
    (13000, 580),
    (13010, 590),
];

/// The branch that a CUDA version belongs to.
fn branch(cuda: u32) -> u32 {
    BRANCHES.iter().rev().find(|row| row.0 <= cuda).map_or(BRANCHES[0].1, |row| row.1)
}

fn driver_version() -> Answer<u32> {
    Ok(session::current()?.config().driver_version)
}

nvml! {
    /// Begins.
    fn nvmlInit() { session::open() }
    /// Begins.
    fn nvmlInit_v2() { session::open() }
    /// Begins; the flags choose what happens without GPUs, and there is always one.
    fn nvmlInitWithFlags(_flags: c_uint) { session::open() }
    /// Ends.
    fn nvmlShutdown() { session::close() }

    /// The driver's version: its branch is right, the rest says that it is nobody's release.
    fn nvmlSystemGetDriverVersion(out: *mut c_char, capacity: c_uint) {
        put_text(out, capacity, &format!("{}.00.00", branch(driver_version()?)))
    }
    /// This library's version.
    fn nvmlSystemGetNVMLVersion(out: *mut c_char, capacity: c_uint) {
        let cuda = driver_version()?;
        put_text(out, capacity, &format!("{}.{}.00.00", cuda / 1000, branch(cuda)))
    }
    /// The CUDA version of the driver.
    fn nvmlSystemGetCudaDriverVersion(out: *mut c_int) { put(out, driver_version()?.cast_signed()) }
    /// The CUDA version of the driver.
    fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) { put(out, driver_version()?.cast_signed()) }
    /// The program of a process.
    fn nvmlSystemGetProcessName(pid: c_uint, out: *mut c_char, capacity: c_uint) {
        let path = std::fs::read_link(format!("/proc/{pid}/exe")).map_err(|_| edge::NOT_FOUND)?;
        let shown = path.to_string_lossy();
        // As NVML does, a long path is cut at the buffer's end.
        let fits = shown.floor_char_boundary((capacity as usize).saturating_sub(1));
        put_text(out, capacity, &shown[..fits])
    }
}

/// What an error code means. Never null.
///
/// # Safety
/// None is asked of the caller.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported names are NVML's")]
pub unsafe extern "C" fn nvmlErrorString(code: c_uint) -> *const c_char {
    let text: &CStr = match code {
        edge::SUCCESS => c"Success",
        edge::UNINITIALIZED => c"Uninitialized",
        edge::INVALID_ARGUMENT => c"Invalid Argument",
        edge::NOT_SUPPORTED => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        edge::NOT_FOUND => c"Not Found",
        edge::INSUFFICIENT_SIZE => c"Insufficient Size",
        edge::DRIVER_NOT_LOADED => c"Driver Not Loaded",
        10 => c"Timeout",
        13 => c"Function Not Found",
        15 => c"GPU is lost",
        edge::ARGUMENT_VERSION_MISMATCH => c"Argument Version Mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
