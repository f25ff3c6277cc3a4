//! Multicast objects. One is counted with its size, in whole steps of the driver's, on every device that has joined it;
//! memory that is bound to it has one reference more.

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::memory;
use crate::driver;
use crate::guard::{after_success, alone, guard};
use crate::link::Client;
use crate::thread;

type Object = CUmemGenericAllocationHandle;

/// An object was made; it costs nothing before a device joins.
pub fn create(
    object: *mut Object,
    prop: *const CUmulticastObjectProp,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |_| {
            // SAFETY: the caller passes properties or null; the driver reads the same fields.
            Ok(unsafe { prop.as_ref() }.map_or(Bytes(0), |p| Bytes(p.size as u64)))
        },
        call,
        |client, bytes, result| {
            if result != CUDA_SUCCESS || object.is_null() {
                return;
            }
            let mut step = 1;
            if driver::multicast_granularity(&raw mut step, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM)
                != CUDA_SUCCESS
            {
                step = 1;
            }
            let bytes = Bytes(bytes.0.checked_next_multiple_of(step.max(1) as u64).unwrap_or(u64::MAX));
            let current = thread::with(|thread| thread.find_current(client));
            // SAFETY: the driver has just written it.
            let object = unsafe { *object };
            client.virtual_memory.enter_team(object, current.map_or(0, |current| current.gpu.index), bytes);
        },
    )
}

/// A device joins: the object is charged there.
pub fn add_device(object: Object, device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| {
            let Some(gpu) = client.gpu_of_device(device) else { return Ok(None) };
            let Some(bytes) = client.virtual_memory.with_team(object, |team| team.bytes) else {
                return Ok(None);
            };
            Ok(Some((gpu, memory::reserve(client, gpu, MemoryKind::Virtual, bytes)?)))
        },
        call,
        |client, receipt, result| {
            if let (CUDA_SUCCESS, Some((gpu, reservation))) = (result, receipt) {
                reservation.commit();
                client.virtual_memory.with_team(object, |team| team.charged.push(gpu.index));
            }
        },
    )
}

/// Memory is bound by its handle.
pub fn bind(
    object: Object,
    at: usize,
    memory: CUmemGenericAllocationHandle,
    bytes: usize,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    after_success(call, |client| {
        // Memory that was never charged is none of ours.
        let Some(gpu) = client.virtual_memory.gpu_of(memory) else {
            return;
        };
        let (place, what) = ((gpu, at as u64), (bytes as u64, memory));
        if client.virtual_memory.with_team(object, |team| team.bound.insert(place, what)).is_some() {
            client.virtual_memory.add_one(memory);
        }
    })
}

/// Memory is bound by the address where it is mapped.
pub fn bind_address(
    object: Object,
    at: usize,
    address: CUdeviceptr,
    bytes: usize,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    match alone(|| Client::get()?.virtual_memory.mapped_at(address)).flatten() {
        Some(memory) => bind(object, at, memory, bytes, call),
        None => call(),
    }
}

/// What is bound in a range is let go; off the books before the call, as with an unmapping.
pub fn unbind(
    object: Object,
    device: CUdevice,
    at: usize,
    bytes: usize,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| {
            let Some(gpu) = client.gpu_of_device(device) else { return Ok(Vec::new()) };
            let (at, end) = (at as u64, (at as u64).saturating_add(bytes as u64));
            let gone = client.virtual_memory.with_team(object, |team| {
                let range = (gpu.index, at)..(gpu.index, end);
                team.bound
                    .extract_if(range, |(_, start), (bytes, _)| *start + *bytes <= end)
                    .collect::<Vec<_>>()
            });
            let gone = gone.unwrap_or_default().into_iter();
            Ok(gone.map(|bound| (bound, client.virtual_memory.drop_one(bound.1.1))).collect::<Vec<_>>())
        },
        call,
        |client, gone, result| {
            // The last one first, as with an unmapping.
            for ((place, what), gone) in gone.into_iter().rev() {
                if result != CUDA_SUCCESS {
                    client.virtual_memory.with_team(object, |team| team.bound.insert(place, what)); // still bound
                }
                client.virtual_memory.settle(client, what.1, gone, result);
            }
        },
    )
}
