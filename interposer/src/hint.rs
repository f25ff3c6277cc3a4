//! What a program may ask us: functions of our own, found by `dlsym`. A program that finds none runs without Weir.

use std::ffi::c_uint;

use weir_abi::types::CUfunction;

use crate::guard::alone;
use crate::hooks::launch_price;

/// What one launch of the kernel is charged now, in nanoseconds of the whole GPU; 0 if nothing was ever launched with
/// this signature, or no budget holds here. Changes as launches are measured.
///
/// `uint64_t weir_kernel_price_ns(CUfunction, unsigned blocks, unsigned threads, unsigned shared_bytes)`
#[cfg_attr(not(any(test, feature = "proxy")), unsafe(no_mangle))]
pub extern "C" fn weir_kernel_price_ns(
    function: CUfunction,
    blocks: c_uint,
    threads: c_uint,
    shared_bytes: c_uint,
) -> u64 {
    alone(|| launch_price(function, blocks, threads, shared_bytes)).flatten().unwrap_or(0)
}
