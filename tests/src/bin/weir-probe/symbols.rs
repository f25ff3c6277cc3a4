//! The two functions that every route is asked for, and whose file an address lies in.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A driver function under the two names that it is asked by.
pub struct Symbol {
    /// As exported.
    pub exported: &'static CStr,
    /// As `cuGetProcAddress` is asked.
    pub base: &'static CStr,
}

/// One launch and one allocation; the second one's exported name differs from its base name.
pub const SYMBOLS: [Symbol; 2] = [
    Symbol { exported: c"cuLaunchKernel", base: c"cuLaunchKernel" },
    Symbol { exported: c"cuMemAlloc_v2", base: c"cuMemAlloc" },
];

/// The file that `address` was loaded from.
pub fn file_of(address: *const c_void) -> Option<PathBuf> {
    // SAFETY: all-zero is a valid `Dl_info` (null pointers).
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the answer has a place.
    let found = unsafe { libc::dladdr(address, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dladdr` succeeded: the name is a C string that lives as long as the object.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
