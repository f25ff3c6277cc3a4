//! Look-up: however a program finds the driver's functions, for the hooked ones it gets ours.
//!
//! * by link: our exports come first in the loader's search;
//! * [`dlsym`]: `dlsym` and `dlvsym` on any handle;
//! * [`proc_address`]: the driver's own `cuGetProcAddress`, by name, version and flags.
//!
//! Each symbol keeps its own real function: `cuLaunchKernel` and `cuLaunchKernel_ptsz` never share one.

pub mod dlsym;
mod elf;
mod exports;
pub mod hook;
#[cfg(not(test))] // a test program is linked to the C library's own
mod old_glibc;
pub mod proc_address;

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The driver library, as the program opened it or as we did; null until then.
static DRIVER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The driver's symbol. The driver is opened on the first such look-up, never earlier.
pub fn driver_symbol(name: &CStr) -> Option<*const c_void> {
    let library = if name.to_bytes().starts_with(b"nv") { nvml_handle()? } else { driver()? };
    dlsym::real_dlsym(library, name)
}

/// The driver's symbol, if the driver is loaded; opens nothing, and asks nothing of the loader that it could not answer
/// while it loads a library itself.
pub fn loaded_symbol(name: &CStr) -> Option<*const c_void> {
    if cfg!(feature = "proxy") {
        let driver = DRIVER.load(Ordering::Acquire); // by its name the loader would find us
        return if driver.is_null() { None } else { dlsym::real_dlsym(driver, name) };
    }
    let library = if name.to_bytes().starts_with(b"nv") { c"libnvidia-ml.so.1" } else { c"libcuda.so.1" };
    elf::find_in(&[library], name)
}

/// Remembers the driver that the program itself uses, by the address of one of its functions: whatever it is
/// called and wherever it lies, our own calls go to the same one.
fn saw_driver(name: &CStr, real: *const c_void) {
    if !name.to_bytes().starts_with(b"cu") || !DRIVER.load(Ordering::Acquire).is_null() {
        return;
    }
    // SAFETY: all-zero is a valid `Dl_info`, and `dladdr` only writes to it.
    let (known, info) = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(real, &raw mut info) != 0, info)
    };
    if known && !info.dli_fname.is_null() {
        // SAFETY: the loader's name of an object that is loaded; the handle keeps it loaded.
        let handle = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        let _ = DRIVER.compare_exchange(std::ptr::null_mut(), handle, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The real driver; opened if it is not.
fn driver() -> Option<*mut c_void> {
    let known = DRIVER.load(Ordering::Acquire);
    if !known.is_null() {
        return Some(known);
    }
    #[cfg(all(feature = "proxy", not(test)))]
    let opened = crate::proxy::open_driver()?;
    #[cfg(not(all(feature = "proxy", not(test))))]
    let opened = open(c"libcuda.so.1")?;
    let _ = DRIVER.compare_exchange(std::ptr::null_mut(), opened, Ordering::AcqRel, Ordering::Acquire);
    Some(opened)
}

fn nvml_handle() -> Option<*mut c_void> {
    static NVML: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let known = NVML.load(Ordering::Acquire);
    if !known.is_null() {
        return Some(known);
    }
    #[cfg(all(feature = "proxy", not(test)))]
    let opened = crate::proxy::open_nvml()?;
    #[cfg(not(all(feature = "proxy", not(test))))]
    let opened = open(c"libnvidia-ml.so.1")?;
    NVML.store(opened, Ordering::Release);
    Some(opened)
}

fn open(library: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; opening the driver runs its constructors, as the program itself is about to.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(handle)
}
