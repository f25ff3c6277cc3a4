//! Functions that glibc before 2.34 keeps in libpthread and libdl.
//!
//! A library that names them needs both, and on today's glibc, where both are empty shells, loading the shells costs
//! every program 43 us (`weir-bench spawn`). So the few that the standard library, the unwinder and we ourselves
//! call are defined here, hidden, as jumps to whatever the C library has under that name. They are found on first
//! use, never at load: a program without CUDA never gets there.

use std::arch::global_asm;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::elf;

/// The jumps, in the order of `NAMES`.
static TARGETS: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; NAMES.len()];

const NAMES: [&CStr; 8] = [
    c"pthread_key_create",
    c"pthread_key_delete",
    c"pthread_setspecific",
    c"pthread_rwlock_rdlock",
    c"pthread_rwlock_wrlock",
    c"pthread_rwlock_unlock",
    c"dlopen",
    c"dladdr",
];

macro_rules! jump {
    ($name:literal, $at:literal) => {
        global_asm!(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "mov rax, qword ptr [rip + {targets} + {offset}]",
            "test rax, rax",
            "jnz 2f",
            "push rdi",
            "push rsi",
            "push rdx",
            "mov edi, {at}",
            "call {find}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "2: jmp rax",
            targets = sym TARGETS,
            offset = const $at * 8,
            at = const $at,
            find = sym find,
        );
    };
}

jump!("pthread_key_create", 0);
jump!("pthread_key_delete", 1);
jump!("pthread_setspecific", 2);
jump!("pthread_rwlock_rdlock", 3);
jump!("pthread_rwlock_wrlock", 4);
jump!("pthread_rwlock_unlock", 5);
jump!("dlopen", 6);
jump!("dladdr", 7);

/// Where a jump goes.
extern "C" fn find(at: usize) -> *const c_void {
    let (Some(name), Some(target)) = (NAMES.get(at), TARGETS.get(at)) else { return absent as *const c_void };
    let found = elf::find_in_c_library(name).unwrap_or(absent as *const c_void);
    // Relaxed: everyone finds the same address, and the code behind it has been there since the program began.
    target.store(found.cast_mut(), Ordering::Relaxed);
    found
}

/// Stands in for a function that this C library does not have loaded: no lock, no key, no library.
extern "C" fn absent() -> usize {
    0
}
