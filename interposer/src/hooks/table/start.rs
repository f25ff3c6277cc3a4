//! The rows of the start, of look-up, and of names.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use weir_abi::types::*;

use crate::hooks::{init, names};
use crate::resolve::proc_address;

driver_hooks! {
    // Start and look-up.

    /// Attaches to the node manager before the program can do anything on the GPU.
    fn cuInit(flags: c_uint) = |call| init::init(call);
    /// Hands out our function where the driver would hand out its own.
    fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: c_ulonglong)
        = |call| proc_address::v1(call, symbol, pfn, version, flags);
    /// As above, since CUDA 12.
    fn cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: c_ulonglong,
        found: *mut CUdriverProcAddressQueryResult)
        = |call| proc_address::v2(call, symbol, pfn, version, flags, found);

    // Names: what the operator's price table goes by.

    /// Learns the kernel's name.
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char)
        = |call| names::learn(function, name, call);
    /// Learns the kernel's name.
    fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char)
        = |call| names::learn(kernel, name, call);
}
