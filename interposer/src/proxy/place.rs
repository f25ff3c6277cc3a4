//! Where the real driver is when we are in its place. In this order:
//!
//! 1. the file that `$WEIR_DRIVER` names: a place, for tests and for whoever has no root;
//! 2. `/run/weir/driver/libcuda.so.1`: where it is mounted by who mounts us over its own name;
//! 3. a `libcuda.so.1`, or the file with a version in its name that this one points to, that is not ours: in the
//!    directories of `$LD_LIBRARY_PATH`, then where drivers are installed.
//!
//! NVML, in whose place we may be too, is looked for in the same places by its own name.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::resolve::{self, dlsym};
use crate::say::Once;

const MOUNTED: &str = "/run/weir/driver";
const DRIVER: &str = "libcuda.so.1";
const NVML: &str = "libnvidia-ml.so.1";

/// Where distributions, container runtimes and WSL put the driver.
const INSTALLED: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib64",
];

/// Opens the first driver that is none of ours.
pub fn open_driver() -> Option<*mut c_void> {
    static NOT_FOUND: Once = Once::new();
    let handle = candidates(DRIVER).find_map(|path| open(&path));
    if handle.is_none() {
        NOT_FOUND.say(|| {
            format!(
                "the libcuda.so.1 of Weir finds no driver to stand before. \
                 help: mount the driver's file at {MOUNTED}/{DRIVER}, or name it in WEIR_DRIVER"
            )
        });
    }
    handle
}

/// Opens the first NVML that is none of ours: beside the driver, or wherever one may be.
pub fn open_nvml() -> Option<*mut c_void> {
    // By its name first, as the program would: where that is us, the loader then knows us by this name. Else, with the real
    // one loaded, it would give the program that.
    let named = CString::new(NVML).ok().and_then(|name| load(&name));
    named.filter(|handle| !is_ours(*handle)).or_else(|| candidates(NVML).find_map(|path| open(&path)))
}

/// The path of the driver, for who asks what we stand before; the string stays.
pub fn path_of_driver() -> *const c_char {
    resolve::driver_symbol(c"cuInit").map_or(std::ptr::null(), file_of)
}

/// The file that an address was loaded from, as the loader names it; null if it lies in none.
fn file_of(address: *const c_void) -> *const c_char {
    // SAFETY: all-zero is a valid `Dl_info`, and `dladdr` only writes to it.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &raw mut info) == 0 { std::ptr::null() } else { info.dli_fname }
    }
}

fn candidates(name: &'static str) -> impl Iterator<Item = PathBuf> {
    let named = std::env::var_os("WEIR_DRIVER").map(PathBuf::from);
    let named = named.map(|driver| if name == DRIVER { driver } else { driver.with_file_name(name) });
    let search = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let searched: Vec<_> =
        search.as_bytes().split(|byte| matches!(byte, b':' | b';')).map(directory).collect();
    let directories = searched.into_iter().flatten().chain(INSTALLED.iter().map(PathBuf::from));
    named
        .into_iter()
        .chain([Path::new(MOUNTED).join(name)])
        .chain(directories.flat_map(|directory| libraries_in(&directory, name)))
}

fn directory(name: &[u8]) -> Option<PathBuf> {
    (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name)))
}

/// `libcuda.so.1` and `libcuda.so.550.54.14`.
fn libraries_in(directory: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = vec![directory.join(name)];
    let stem = name.as_bytes().strip_suffix(b"1").unwrap_or_default();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let versioned = entries.filter(|entry| {
        let version = entry.file_name().as_bytes().strip_prefix(stem).map(<[u8]>::to_vec);
        version.is_some_and(|version| {
            version.contains(&b'.') && version.iter().all(|c| c.is_ascii_digit() || *c == b'.')
        })
    });
    found.extend(versioned.map(|entry| entry.path()));
    found
}

fn open(path: &Path) -> Option<*mut c_void> {
    if !path.is_absolute() || is_this_file(path) {
        return None;
    }
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // Another copy of us would look for a driver in turn, and find this one.
    load(&path).filter(|handle| !is_ours(*handle))
}

fn load(library: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; opening the driver runs its constructors, as the program itself is about to.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(handle)
}

fn is_ours(handle: *mut c_void) -> bool {
    dlsym::real_dlsym(handle, c"weirProxy").is_some()
}

/// Whether the file is the one that this code was loaded from.
fn is_this_file(path: &Path) -> bool {
    let ours = file_of(is_this_file as *const c_void);
    if ours.is_null() {
        return false;
    }
    // SAFETY: a C string of the loader's that lives as long as we do.
    let ours = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(ours) }.to_bytes()));
    let identity = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    identity(ours).is_some() && identity(ours) == identity(path)
}
