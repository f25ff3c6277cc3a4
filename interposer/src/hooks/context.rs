//! Contexts: which GPU a thread's calls mean, and what is given back when a context goes.

use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::*;

use weir_core::ledger::Entry;

use super::{context_memory, graph_memory, tiles};
use crate::driver;
use crate::guard::{after_success, alone, guard};
use crate::link::{Client, Gpu};
use crate::say::Once;
use crate::{stall, thread};

/// A context on `device`: refused where the tenant has no budget. Its memory limit there is zero, so the answer is
/// the one that the driver gives when a context does not fit.
pub fn create(context: *mut CUcontext, device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    alone(thread::leave_context);
    guard(
        |client| context_memory::expect(client, granted(client, device)?),
        call,
        |client, expected, result| {
            if result == CUDA_SUCCESS && !context.is_null() {
                // SAFETY: the driver has just written it.
                expected.charge(client, unsafe { *context });
                client.gpu_of_device(device).into_iter().for_each(stall::begin);
            }
        },
    )
}

/// A green context: a part of `device` inside of its primary context, which gets a user by it.
pub fn create_green(green: *mut CUgreenCtx, device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| {
            let gpu = granted(client, device)?;
            let expected = if is_active(device) { None } else { Some(context_memory::expect(client, gpu)?) };
            Ok((gpu, expected))
        },
        call,
        |client, (gpu, expected), result| {
            if result != CUDA_SUCCESS || green.is_null() {
                return;
            }
            let (mut primary, mut context): (CUcontext, CUcontext) =
                (std::ptr::null_mut(), std::ptr::null_mut());
            // There it is, so this makes nothing: it tells the handle.
            if driver::retain_primary(&raw mut primary, device) == CUDA_SUCCESS {
                driver::release_primary(device);
                gpu.primary.store(primary.addr() as u64, Ordering::Relaxed);
                if let Some(expected) = expected {
                    expected.charge(client, primary);
                }
            }
            // SAFETY: the driver has just written it.
            let green = unsafe { *green };
            if driver::context_of_green(&raw mut context, green) == CUDA_SUCCESS {
                gpu.add_green(green.addr() as u64, context.addr() as u64);
            }
        },
    )
}

/// A green context goes: nothing of it is waited for any more. Its primary context may go with it.
pub fn destroy_green(green: CUgreenCtx, call: impl FnOnce() -> CUresult) -> CUresult {
    alone(thread::leave_context);
    after_success(call, |client| {
        for gpu in &client.gpus {
            gpu.book_runs();
            if gpu.forget_green(green.addr() as u64) {
                close_primary(client, gpu, gpu.device.load(Ordering::Relaxed));
            }
        }
    })
}

/// The device's primary context gets a user.
pub fn retain_primary(
    context: *mut CUcontext,
    device: CUdevice,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| {
            let gpu = granted(client, device)?;
            let expected = if is_active(device) { None } else { Some(context_memory::expect(client, gpu)?) };
            Ok((gpu, expected))
        },
        call,
        |client, (gpu, expected), result| {
            if result == CUDA_SUCCESS && !context.is_null() {
                // SAFETY: the driver has just written it.
                let context = unsafe { *context };
                gpu.primary.store(context.addr() as u64, Ordering::Relaxed);
                stall::begin(gpu);
                if let Some(expected) = expected {
                    expected.charge(client, context);
                }
            }
        },
    )
}

/// Whether the device's primary context is there; yes, where the driver does not tell.
fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 1);
    driver::primary_state(device, &raw mut flags, &raw mut active) != CUDA_SUCCESS || active != 0
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
    alone(thread::leave_context);
    call()
}

/// A context goes, and with it all that was allocated in it. Its books are closed before the call: once the driver has
/// destroyed it, another thread may get a new context under the same handle.
pub fn destroy(context: CUcontext, call: impl FnOnce() -> CUresult) -> CUresult {
    lose(context, || true, call)
}

/// A context loses a user, perhaps the last, with whom it goes.
pub fn detach(context: CUcontext, call: impl FnOnce() -> CUresult) -> CUresult {
    lose(context, || !driver::context_exists(context), call)
}

fn lose(context: CUcontext, gone: impl FnOnce() -> bool, call: impl FnOnce() -> CUresult) -> CUresult {
    alone(|| {
        stall::leave();
        thread::leave_context();
    });
    guard(
        |client| Ok(Estate::of(client, context.addr() as u64)),
        call,
        |client, estate, result| {
            if result == CUDA_SUCCESS && gone() {
                estate.give_back(client);
            } else {
                estate.keep(client);
            }
        },
    )
}

/// A device's primary context loses a user, perhaps the last.
pub fn release_primary(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    alone(|| {
        stall::leave();
        thread::leave_context();
    });
    after_success(call, |client| {
        if let Some(gpu) = client.gpu_of_device(device) {
            close_primary(client, gpu, device);
        }
    })
}

/// Closes the books of a device's primary context if it has no user any more.
fn close_primary(client: &Client, gpu: &Gpu, device: CUdevice) {
    if !is_active(device) {
        let context = gpu.primary.swap(0, Ordering::Relaxed);
        Estate::of(client, context).give_back(client);
    }
}

/// What dies with a context, off the books.
struct Estate {
    context: u64,
    held: Vec<(u64, Entry)>,
    tiles: Vec<tiles::Taken>,
}

impl Estate {
    fn of(client: &Client, context: u64) -> Self {
        let held = client.ledger.remove_of_context(context);
        let tiles = tiles::of_estate(client, &held);
        Self { context, held, tiles }
    }

    /// The context is gone.
    fn give_back(self, client: &Client) {
        tiles::settle(client, self.tiles, CUDA_SUCCESS);
        for (handle, entry) in self.held {
            client.give_back(handle, entry);
        }
        // What pools and graphs have kept may have gone with the device's last context.
        client.pools.look(client);
        for gpu in &client.gpus {
            gpu.forget_context(self.context);
            graph_memory::settle(gpu, 0);
            context_memory::look(gpu);
        }
    }

    /// It is still there.
    fn keep(self, client: &Client) {
        tiles::settle(client, self.tiles, CUDA_ERROR_INVALID_CONTEXT);
        self.held.into_iter().for_each(|(handle, entry)| client.remember(handle, entry));
    }
}
