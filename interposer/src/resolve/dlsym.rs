//! Our `dlsym` and `dlvsym`: for a hooked name the hook, for everything else the C library's function, reached by
//! a *jump*. The C library finds its caller by the return address (for `RTLD_NEXT`, and for the namespace), so a
//! wrapper that called it would become the caller and break every preload library behind us.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::elf;
use super::hook::{self, Hook};

/// The C library's `dlsym`; null until first use. Not exported: the jump needs a PC-relative address.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The C library's `dlvsym`; null until first use.
static DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// What a look-up comes to: returned in two registers.
#[repr(C)]
pub struct Selected {
    address: *const c_void,
    decided: u64, // 1: `address` is the answer; 0: the C library shall answer
}

impl Selected {
    const NOT_OURS: Self = Self { address: std::ptr::null(), decided: 0 };

    const fn answer(address: *const c_void) -> Self {
        Self { address, decided: 1 }
    }
}

/// The body of both functions: ask the selector; return its answer, or jump on to the C library's function as if we had
/// never been called. Three pushes keep the arguments, and leave the stack aligned to 16 bytes for the call.
macro_rules! select_or_jump_to {
    ($select:ident, $real:ident) => {
        naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "call {select}",
            "mov r11, rdx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "test r11, r11",
            "jnz 2f",
            "jmp qword ptr [rip + {real}]",
            "2: ret",
            select = sym $select,
            real = sym $real,
        )
    };
}

/// `void *dlsym(void *handle, const char *name)`
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(any(test, feature = "proxy")), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    select_or_jump_to!(select, DLSYM)
}

/// `void *dlvsym(void *handle, const char *name, const char *version)`
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(any(test, feature = "proxy")), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlvsym(
    _handle: *mut c_void,
    _name: *const c_char,
    _version: *const c_char,
) -> *mut c_void {
    select_or_jump_to!(select_versioned, DLVSYM)
}

/// Decides a look-up. May run before our constructors, in any thread, in programs that never see CUDA: names
/// that begin with neither `cu` nor `nv` cost two comparisons.
extern "C" fn select(handle: *mut c_void, name: *const c_char) -> Selected {
    decide(handle, name, None)
}

/// Decides a look-up by version: ours stands for the versions that the real library has, and for no other.
extern "C" fn select_versioned(handle: *mut c_void, name: *const c_char, version: *const c_char) -> Selected {
    decide(handle, name, Some(version))
}

fn decide(handle: *mut c_void, name: *const c_char, version: Option<*const c_char>) -> Selected {
    if !find_real() {
        return Selected::answer(std::ptr::null()); // no C library that we understand: nothing can be found
    }
    if name.is_null() || handle == libc::RTLD_NEXT {
        return Selected::NOT_OURS; // RTLD_NEXT: another interposer asks for what stands behind it
    }
    // SAFETY: not null, and a C string by the contract of `dlsym`; reading two bytes stops at the NUL.
    let first_two = unsafe { (*name, if *name == 0 { 0 } else { *name.add(1) }) };
    if !matches!((first_two.0 as u8, first_two.1 as u8), (b'c', b'u') | (b'n', b'v')) {
        return Selected::NOT_OURS;
    }
    // SAFETY: checked above.
    let name = unsafe { CStr::from_ptr(name) };
    catch_unwind(|| select_hook(handle, name, version)).unwrap_or(Selected::NOT_OURS)
}

fn select_hook(handle: *mut c_void, name: &CStr, version: Option<*const c_char>) -> Selected {
    let look_up = |handle| match version {
        None => real_dlsym(handle, name),
        Some(version) => real_dlvsym(handle, name, version),
    };
    let Some(hook) = hook::by_symbol(name.to_bytes()) else { return Selected::NOT_OURS };
    if handle == libc::RTLD_DEFAULT {
        // The global scope holds our own export, also where there is no driver: answer what stands behind it, or what the
        // caller may see in a scope of its own.
        // Our own has no version, so who asks for one does not find it.
        let otherwise =
            if version.is_none() { Selected::answer(std::ptr::null()) } else { Selected::NOT_OURS };
        let visible = || version.is_none().then(|| super::loaded_symbol(name)).flatten();
        let behind = look_up(libc::RTLD_NEXT).or_else(visible);
        return behind.map_or(otherwise, |real| found(hook, real));
    }
    match look_up(handle) {
        // A handle of the whole program finds our own export first.
        Some(real) if real == hook.ours() => match super::loaded_symbol(name) {
            Some(real) => found(hook, real),
            None => Selected::answer(std::ptr::null()),
        },
        Some(real) => {
            super::saw_driver(name, real);
            found(hook, real)
        }
        None => Selected::NOT_OURS, // the C library says so again, and sets its error text
    }
}

fn found(hook: &'static Hook, real: *const c_void) -> Selected {
    if real == hook.ours() {
        return Selected::answer(std::ptr::null());
    }
    hook.set_real(real);
    Selected::answer(hook.ours())
}

/// The C library's `dlvsym`, called from here.
fn real_dlvsym(handle: *mut c_void, name: &CStr, version: *const c_char) -> Option<*const c_void> {
    type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    if !find_real() {
        return None;
    }
    let address = DLVSYM.load(Ordering::Acquire);
    // SAFETY: `find_real` stored the address of the C library's dlvsym, whose type this is.
    let dlvsym = unsafe { std::mem::transmute::<*mut c_void, Dlvsym>(address) };
    // SAFETY: a handle that the caller got from the loader, and its own two C strings.
    let symbol = unsafe { dlvsym(handle, name.as_ptr(), version) };
    (!symbol.is_null()).then_some(symbol.cast_const())
}

/// The C library's `dlsym`, called from here.
pub fn real_dlsym(handle: *mut c_void, name: &CStr) -> Option<*const c_void> {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    if !find_real() {
        return None;
    }
    // Acquire: pairs with the release in `find_real`.
    let address = DLSYM.load(Ordering::Acquire);
    // SAFETY: `find_real` stored the address of the C library's dlsym, whose type this is.
    let dlsym = unsafe { std::mem::transmute::<*mut c_void, Dlsym>(address) };
    // SAFETY: a handle that the caller got from the loader, and a C string.
    let symbol = unsafe { dlsym(handle, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol.cast_const())
}

/// Looks the C library's functions up, once.
fn find_real() -> bool {
    if !DLSYM.load(Ordering::Acquire).is_null() {
        return true;
    }
    let find = |name| elf::find_in_c_library(name).map(<*const c_void>::cast_mut);
    let (Some(dlsym), Some(dlvsym)) = (find(c"dlsym"), find(c"dlvsym")) else { return false };
    // Two threads may both get here and store the same addresses. dlsym last: its presence says that both are.
    DLVSYM.store(dlvsym, Ordering::Release);
    DLSYM.store(dlsym, Ordering::Release);
    true
}
