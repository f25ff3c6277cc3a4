//! The library in the driver's place: a `libcuda.so.1` of ours, in front of the real one in the search path or mounted
//! over it. Built from the same code with the feature `proxy`: then this module exports every name of the driver, and
//! nothing else is exported but `weir_latency`.
//!
//! ```text
//!   program -- link, dlsym, absolute path, ELF table --> cuX: one jump --+--> our hook --> the real driver
//!                                                                        +--> the real driver (no hook for X)
//! ```
//!
//! A name goes to its target from the second call on by one load and one jump; at the first call the target is found.
//! What the driver has and our table lacks is handed out by the driver's own `cuGetProcAddress` only.

#[macro_use]
mod forward;
mod driver;
mod nvml;
mod place;

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::resolve::{self, dlsym, hook};

pub use place::{open_driver, open_nvml};

/// Finds where the name numbered in r11 goes, and goes there as if nothing had happened: all that may hold an argument
/// is kept. Six pushes and 136 bytes leave the stack aligned to 16 for the call.
#[unsafe(naked)]
unsafe extern "C" fn first_call() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 136",
        "movups xmmword ptr [rsp], xmm0",
        "movups xmmword ptr [rsp + 16], xmm1",
        "movups xmmword ptr [rsp + 32], xmm2",
        "movups xmmword ptr [rsp + 48], xmm3",
        "movups xmmword ptr [rsp + 64], xmm4",
        "movups xmmword ptr [rsp + 80], xmm5",
        "movups xmmword ptr [rsp + 96], xmm6",
        "movups xmmword ptr [rsp + 112], xmm7",
        "mov edi, r11d",
        "call {find}",
        "movups xmm0, xmmword ptr [rsp]",
        "movups xmm1, xmmword ptr [rsp + 16]",
        "movups xmm2, xmmword ptr [rsp + 32]",
        "movups xmm3, xmmword ptr [rsp + 48]",
        "movups xmm4, xmmword ptr [rsp + 64]",
        "movups xmm5, xmmword ptr [rsp + 80]",
        "movups xmm6, xmmword ptr [rsp + 96]",
        "movups xmm7, xmmword ptr [rsp + 112]",
        "add rsp, 136",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        find = sym find,
    )
}

extern "C" fn find(index: u32) -> *const c_void {
    let Some(target) = driver::target(index).or_else(|| nvml::target(index)) else {
        return driver::absent as *const c_void;
    };
    let found = catch_unwind(|| target_of(target.name)).ok().flatten();
    if let Some(found) = found {
        // Release: what the loader did for the function is seen by whoever jumps there.
        target.place.store(found.cast_mut(), Ordering::Release);
    }
    found.unwrap_or(target.absent)
}

/// A name, where it goes, and what stands for it if there is nothing.
struct Target {
    name: &'static CStr,
    place: &'static AtomicPtr<c_void>,
    absent: *const c_void,
}

/// Our hook, unless a preloaded copy of us has these calls already; else the driver's function.
fn target_of(name: &CStr) -> Option<*const c_void> {
    let hook = hook::by_symbol(name.to_bytes()).filter(|_| !is_preloaded_too());
    hook.map(hook::Hook::ours).or_else(|| resolve::driver_symbol(name))
}

/// Whether `libweir.so` is in the process too: then each call comes from its hooks, and is charged there.
fn is_preloaded_too() -> bool {
    dlsym::real_dlsym(libc::RTLD_DEFAULT, c"weirPreload").is_some()
}

/// Tells that this library is ours, and which driver it stands before: its path, or null if none is found.
#[unsafe(no_mangle)]
pub extern "C" fn weirProxy() -> *const c_char {
    catch_unwind(place::path_of_driver).unwrap_or(std::ptr::null())
}
