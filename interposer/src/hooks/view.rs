//! The view: what the program is told about memory is its tenant's budget and use, never the neighbours'.

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_protocol::units::Bytes;

use super::memory;
use crate::guard::guard;
use crate::link::Gpu;
use crate::thread;

/// Free and total memory of the thread's GPU.
pub fn memory_info(
    counted: usize,
    free: *mut usize,
    total: *mut usize,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| Ok(thread::with(|thread| thread.find_current(client))),
        call,
        |_, current, result| {
            let Some(current) = current else { return };
            memory::count(current.gpu, counted);
            if result == CUDA_SUCCESS {
                let (left, limit) = left_and_limit(current.gpu);
                write(free, left);
                write(total, limit);
            }
        },
    )
}

/// Total memory of a device.
pub fn total_memory(
    counted: usize,
    bytes: *mut usize,
    device: CUdevice,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| Ok(client.gpu_of_device(device)),
        call,
        |_, gpu, result| {
            let Some(gpu) = gpu else { return };
            memory::count(gpu, counted);
            if result == CUDA_SUCCESS {
                write(bytes, left_and_limit(gpu).1);
            }
        },
    )
}

/// What the tenant may still take, and its limit. A limit below what is held leaves nothing, and never wraps.
pub fn left_and_limit(gpu: &Gpu) -> (Bytes, Bytes) {
    let (held, limit) = gpu.memory();
    (Bytes(limit.0.saturating_sub(held.0)), limit)
}

fn write(out: *mut usize, bytes: Bytes) {
    // SAFETY: the driver has just written through the same pointer, or found it null.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = usize::try_from(bytes.0).unwrap_or(usize::MAX);
    }
}
