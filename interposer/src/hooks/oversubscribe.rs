//! Plain allocations and padded rows; with `weir run --oversubscribe`, beyond the limit too: as managed memory that lives on
//! the host and that the GPU reads from there, over a bus that neighbours use as well. So only fillers may, and only until the
//! tenant holds twice its limit. It is counted, and shown, as managed memory beyond the limit; the flag is the tenant's, for all
//! its processes. What only works on plain memory (`cuIpcGetMemHandle`) the driver then refuses.
//!
//! Not what is allocated in stream order (`cuMemAllocAsync`, pools): managed memory cannot be freed in stream order, and
//! freed at once it would be gone while kernels before it in the stream still use it. Nor what is allocated by handle
//! (`cuMemCreate`) and arrays: the driver has no managed form of them. For these the limit holds.

use std::cell::Cell;
use std::ffi::c_uint;
use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::ledger::Reservation;
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::memory::{self, Ask};
use crate::driver;
use crate::guard::guard;
use crate::link::{Client, Gpu};
use crate::say::Once;
use crate::thread;

/// `CU_MEM_ATTACH_GLOBAL`: every stream may use it.
const ATTACH_GLOBAL: c_uint = 1;
/// `CU_MEM_ADVISE_SET_PREFERRED_LOCATION`
const PREFERRED_LOCATION: c_uint = 3;
/// `CU_MEM_ADVISE_SET_ACCESSED_BY`
const ACCESSED_BY: c_uint = 5;
/// `CU_DEVICE_CPU`
const HOST: CUdevice = -1;

/// Allocates within the tenant's limit, or beyond it where that is allowed.
#[inline]
pub fn allocate(
    counted: usize,
    bytes: usize,
    out: *mut CUdeviceptr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    match Client::get() {
        Some(client) if client.oversubscribe => beyond(counted, Ask::plain(bytes), out, call),
        _ => memory::allocate(counted, Ask::plain(bytes), out, call),
    }
}

/// The same for rows that the driver pads: beyond the limit they are as far apart as it would put them.
pub fn allocate_rows(
    counted: usize,
    [width, height]: [usize; 2],
    element: c_uint,
    out: *mut CUdeviceptr,
    pitch: *mut usize,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let ask = Ask::pitched(width, height);
    // What the driver would refuse, it shall refuse itself.
    let sound = width > 0 && height > 0 && matches!(element, 4 | 8 | 16) && !pitch.is_null();
    if !sound || !Client::get().is_some_and(|client| client.oversubscribe) {
        return memory::allocate(counted, ask, out, call);
    }
    let written = Cell::new(false);
    let result = beyond(counted, ask, out, || {
        written.set(true);
        call()
    });
    if result == CUDA_SUCCESS && !written.get() {
        // SAFETY: not null, and an argument of the call in progress.
        unsafe { *pitch = usize::try_from(memory::padded(width as u64)).unwrap_or(usize::MAX) };
    }
    result
}

fn beyond(counted: usize, ask: Ask, out: *mut CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    let managed_on: Cell<Option<&'static Gpu>> = Cell::new(None);
    let asked = ask.bytes();
    guard(
        |client| {
            let Some(current) = thread::with(|thread| thread.find_current(client)) else { return Ok(None) };
            memory::count(current.gpu, counted);
            if let Some(reservation) = memory::take(client, current.gpu, MemoryKind::Plain, asked) {
                reservation.commit();
                return Ok(Some((current, MemoryKind::Plain)));
            }
            take_beyond(client, current.gpu, asked)?;
            managed_on.set(Some(current.gpu));
            BEYOND.say(|| {
                let limit = current.gpu.grant.read().memory_limit;
                format!("the limit of {limit} is reached: further allocations are managed memory on the host")
            });
            Ok(Some((current, MemoryKind::Managed)))
        },
        || match managed_on.get() {
            Some(gpu) => managed(gpu, usize::try_from(asked.0).unwrap_or(usize::MAX), out),
            None => call(),
        },
        |client, receipt, result| {
            let Some((current, kind)) = receipt else { return };
            if result == CUDA_SUCCESS && !out.is_null() {
                // SAFETY: the driver has just written it.
                memory::remember(client, current, unsafe { *out }, kind, asked);
            } else {
                current.gpu.give_back(kind, asked);
            }
        },
    )
}

/// Charges memory on the host, unless the tenant holds too much there.
fn take_beyond(client: &Client, gpu: &'static Gpu, asked: Bytes) -> Result<(), CUresult> {
    let (granted, limit) = (gpu.grant.read().memory_limit, gpu.memory_limit());
    // Without a manager for long a strict tenant gets nothing new on the host either.
    let most = if limit < granted { limit } else { Bytes(limit.0.saturating_mul(MOST_TIMES)) };
    let Some(reservation) = Reservation::take(&gpu.usage, gpu.slot_index(), MemoryKind::Managed, asked, most)
    else {
        return Err(memory::refuse(client, gpu, asked));
    };
    reservation.commit();
    Ok(())
}

/// A tenant holds so many times its limit at most: as much on the host as on the card.
const MOST_TIMES: u64 = 2;

static BEYOND: Once = Once::new();

/// Managed memory that is to live on the host. Where there is none, the limit holds.
fn managed(gpu: &Gpu, bytes: usize, out: *mut CUdeviceptr) -> CUresult {
    match driver::managed(out, bytes, ATTACH_GLOBAL) {
        CUDA_SUCCESS if !out.is_null() => {}
        CUDA_ERROR_NOT_SUPPORTED | CUDA_ERROR_NOT_FOUND => return CUDA_ERROR_OUT_OF_MEMORY,
        result => return result,
    }
    // SAFETY: the driver has just written it.
    let address = unsafe { *out };
    // Advice: where it is not taken, the memory is there all the same.
    driver::advise(address, bytes, PREFERRED_LOCATION, HOST);
    driver::advise(address, bytes, ACCESSED_BY, gpu.device.load(Ordering::Relaxed));
    CUDA_SUCCESS
}
