//! Contexts: which GPU a thread's calls mean, and what is given back when a context goes.

use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::*;

use crate::driver;
use crate::guard::guard;
use crate::link::{Client, Gpu};
use crate::say::Once;
use crate::thread;

/// A context on `device`: refused where the tenant has no budget. Its memory limit there is zero, so the answer is
/// the one that the driver gives when a context does not fit.
pub fn create(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(|client| granted(client, device), call, |_, _, _| thread::forget_context())
}

/// The device's primary context gets a user.
pub fn retain_primary(
    context: *mut CUcontext,
    device: CUdevice,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| granted(client, device),
        call,
        |_, gpu, result| {
            if result == CUDA_SUCCESS && !context.is_null() {
                // SAFETY: the driver has just written it.
                gpu.primary.store(unsafe { *context }.addr() as u64, Ordering::Relaxed);
            }
        },
    )
}

fn granted(client: &'static Client, device: CUdevice) -> Result<&'static Gpu, CUresult> {
    static NOT_GRANTED: Once = Once::new();
    client.gpu_of_device(device).ok_or_else(|| {
        NOT_GRANTED.say(|| {
            format!(
                "device {device} is not granted to tenant `{}`: no context there. \
                 help: `weir run --gpu` names the GPUs",
                client.tenant
            )
        });
        CUDA_ERROR_OUT_OF_MEMORY
    })
}

/// Another context may be the thread's now.
pub fn switch(call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    thread::forget_context();
    result
}

/// A context goes, and with it all that was allocated in it.
pub fn destroy(context: CUcontext, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |_| Ok(()),
        call,
        |client, (), result| {
            thread::forget_context();
            if result == CUDA_SUCCESS {
                give_back(client, context.addr() as u64);
            }
        },
    )
}

/// A device's primary context loses a user, perhaps the last.
pub fn release_primary(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |_| Ok(()),
        call,
        |client, (), result| {
            thread::forget_context();
            let (mut flags, mut active) = (0, 1);
            let known = driver::primary_state(device, &raw mut flags, &raw mut active) == CUDA_SUCCESS;
            if result != CUDA_SUCCESS || !known || active != 0 {
                return; // other users keep it
            }
            if let Some(gpu) = client.gpu_of_device(device) {
                give_back(client, gpu.primary.swap(0, Ordering::Relaxed));
            }
        },
    )
}

fn give_back(client: &Client, context: u64) {
    client.ledger.remove_of_context(context, |entry| {
        if let Some(gpu) = client.gpus.get(entry.gpu) {
            gpu.give_back(entry.kind, entry.bytes);
        }
    });
    for gpu in &client.gpus {
        gpu.forget_context(context);
    }
}
