//! A preload library that counts: every allocation and every mutex taken by the process, whoever asks for it. The
//! benchmark reads the sums before and after the measured part.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LOCKS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    fn __libc_realloc(pointer: *mut c_void, bytes: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, bytes: usize) -> *mut c_void;
}

/// Allocations so far.
#[unsafe(no_mangle)]
pub extern "C" fn weir_counter_allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Locks taken so far.
#[unsafe(no_mangle)]
pub extern "C" fn weir_counter_locks() -> u64 {
    LOCKS.load(Ordering::Relaxed)
}

/// Counts and allocates.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the C library's own function behind `malloc`.
    unsafe { __libc_malloc(bytes) }
}

/// Counts and allocates.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the C library's own function behind `calloc`.
    unsafe { __libc_calloc(count, bytes) }
}

/// Counts and reallocates.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(pointer: *mut c_void, bytes: usize) -> *mut c_void {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the C library's own function behind `realloc`.
    unsafe { __libc_realloc(pointer, bytes) }
}

/// Counts and allocates.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the C library's own function behind it; `out` is the caller's place for the answer.
    unsafe {
        *out = __libc_memalign(alignment, bytes);
        if (*out).is_null() { libc::ENOMEM } else { 0 }
    }
}

/// Counts and locks.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> c_int {
    type Lock = unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> c_int;
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    LOCKS.fetch_add(1, Ordering::Relaxed);
    if REAL.load(Ordering::Relaxed).is_null() {
        // SAFETY: a C string; the C library's function stands behind ours.
        let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_mutex_lock".as_ptr()) };
        REAL.store(real, Ordering::Relaxed);
    }
    // SAFETY: the C library's function has this type.
    unsafe { std::mem::transmute::<*mut c_void, Lock>(REAL.load(Ordering::Relaxed))(mutex) }
}
