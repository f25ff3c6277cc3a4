//! Names of kernels: learnt where a program looks them up, or asked of the driver (since CUDA 12.3).

use std::ffi::{CStr, c_char, c_void};

use weir_abi::CUresult;
use weir_abi::types::CUDA_SUCCESS;

use crate::driver;
use crate::guard::after_success;
use crate::link::Client;

/// A function or kernel was looked up by name.
pub fn learn(handle: *mut *mut c_void, name: *const c_char, call: impl FnOnce() -> CUresult) -> CUresult {
    after_success(call, |client| {
        if handle.is_null() || name.is_null() {
            return;
        }
        // SAFETY: the driver has just read the name and written the handle.
        let (handle, name) = unsafe { (*handle, CStr::from_ptr(name)) };
        client.book.name(handle.addr() as u64, &name.to_string_lossy());
    })
}

/// Makes sure that the book knows the function's name, if the driver can tell it.
pub fn ensure(client: &Client, function: u64) {
    if client.book.knows_name(function) {
        return;
    }
    let handle = driver::handle(function);
    let mut name: *const c_char = std::ptr::null();
    let told = driver::function_name(&raw mut name, handle) == CUDA_SUCCESS
        || driver::kernel_name(&raw mut name, handle) == CUDA_SUCCESS;
    if told && !name.is_null() {
        // SAFETY: the driver's own string, which lives as long as the module.
        client.book.name(function, &unsafe { CStr::from_ptr(name) }.to_string_lossy());
    }
}
