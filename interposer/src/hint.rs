//! What a program may ask us or tell us: functions of our own, found by `dlsym` (`include/weir.h`). A program that finds none
//! runs without Weir.

use std::ffi::{CStr, c_char, c_int, c_uint};

use weir_abi::types::CUfunction;
use weir_protocol::units::Nanos;

use crate::guard::alone;
use crate::hooks::launch_price;
use crate::link::{self, Client};

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

/// What became of a latency that was told; the numbers stand in `include/weir.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Told {
    /// It counts.
    Taken = 0,
    /// The tenant promises nothing by this name.
    NotAsked = 1,
    /// The process is nobody's tenant.
    Unattached = 2,
    /// There is no name.
    Wrong = 3,
}

/// Tells that a request took so long. Costs a comparison of names and one atomic addition; only a process that made no
/// call into the driver yet, such as a server in front of others, says hello to the node manager first.
///
/// `int weir_latency(const char *metric, uint64_t nanoseconds)`
///
/// # Safety
/// `metric` is null or ends with a zero.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn weir_latency(metric: *const c_char, nanoseconds: u64) -> c_int {
    if metric.is_null() {
        return Told::Wrong as c_int;
    }
    // SAFETY: the caller's promise.
    let metric = unsafe { CStr::from_ptr(metric) };
    if Client::get().is_none() {
        alone(link::attach).unwrap_or_else(link::fault);
    }
    alone(|| tell(metric, Nanos(nanoseconds))).unwrap_or(Told::Unattached) as c_int
}

fn tell(metric: &CStr, latency: Nanos) -> Told {
    let Some(client) = Client::get() else { return Told::Unattached };
    let asked = client.latency_metric.as_ref().is_some_and(|asked| asked.as_bytes() == metric.to_bytes());
    match client.gpus.first() {
        Some(gpu) if asked => {
            gpu.usage.told.add(latency);
            Told::Taken
        }
        _ => Told::NotAsked,
    }
}
