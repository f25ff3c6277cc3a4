//! The driver's own look-up: what it would hand out is exchanged for our function, if there is one.
//!
//! The driver chooses among versions and stream flavours; we follow its choice by the address it returns. Only an
//! address that is none of its exports is judged by our table of (name, version, flags).

use std::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};

use weir_abi::CUresult;
use weir_abi::types::{CUDA_SUCCESS, CUdriverProcAddressQueryResult};

use super::exports;
use super::hook::{self, Hook};
use crate::guard::alone;

/// `cuGetProcAddress` of CUDA 11.3.
pub fn v1(
    call: impl FnOnce() -> CUresult,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
) -> CUresult {
    let result = call();
    exchange(result, symbol, pfn, version, flags);
    result
}

/// `cuGetProcAddress` since CUDA 12.
pub fn v2(
    call: impl FnOnce() -> CUresult,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
    _found: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    v1(call, symbol, pfn, version, flags)
}

fn exchange(
    result: CUresult,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
) {
    if result != CUDA_SUCCESS || symbol.is_null() || pfn.is_null() {
        return;
    }
    // SAFETY: the driver has just written through `pfn` and read `symbol`.
    let (real, name) = unsafe { ((*pfn).cast_const(), CStr::from_ptr(symbol)) };
    if real.is_null() {
        return; // the driver knows no such function: neither do we
    }
    let hook = alone(|| find(name, real, version, flags)).flatten();
    if let Some(hook) = hook {
        hook.set_real(real);
        // SAFETY: as above.
        unsafe { *pfn = hook.ours().cast_mut() };
    }
}

fn find(name: &CStr, real: *const c_void, version: c_int, flags: c_ulonglong) -> Option<&'static Hook> {
    let chosen = exports::hook_at(real);
    if chosen.is_some() {
        return chosen;
    }
    hook::by_base(name.to_str().ok()?, u32::try_from(version).ok()?, flags)
}
