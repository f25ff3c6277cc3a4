//! Virtual memory management: physical memory by handle, mapped elsewhere. It is held until the last reference
//! and the last mapping are gone (gpu-truths, rule 14), so both are counted.

use std::collections::{BTreeMap, HashMap};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::lock::Lock;
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::memory;
use crate::guard::guard;
use crate::link::{Client, Gpu};

/// Physical memory of this process, by handle, and where it is mapped.
#[derive(Default)]
pub struct VirtualMemory(Lock<Books>);

#[derive(Default)]
struct Books {
    handles: HashMap<u64, Physical>,
    mappings: BTreeMap<u64, Mapping>,
}

struct Physical {
    gpu: usize,
    bytes: Bytes,
    references: u64, // handles and mappings
}

struct Mapping {
    bytes: u64,
    handle: u64,
}

/// Memory on the device that its properties name. Host memory is not the GPU's.
pub fn create(
    counted: usize,
    handle: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    prop: *const CUmemAllocationProp,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| {
            let Some(gpu) = device_of(client, prop) else { return Ok(None) };
            memory::count(gpu, counted);
            let reservation = memory::reserve(client, gpu, MemoryKind::Virtual, Bytes(bytes as u64))?;
            Ok(Some((gpu, reservation)))
        },
        call,
        |client, receipt, result| {
            let Some((gpu, reservation)) = receipt else { return };
            if result == CUDA_SUCCESS && !handle.is_null() {
                let physical = Physical { gpu: gpu.index, bytes: reservation.commit(), references: 1 };
                // SAFETY: the driver has just written it.
                client.virtual_memory.0.lock().handles.insert(unsafe { *handle }, physical);
            }
        },
    )
}

/// The tenant's GPU that the properties name.
fn device_of(client: &'static Client, prop: *const CUmemAllocationProp) -> Option<&'static Gpu> {
    // SAFETY: the caller passes properties or null; the driver reads the same fields.
    let location = unsafe { prop.as_ref() }?.location;
    if location.kind == CU_MEM_LOCATION_TYPE_DEVICE { client.gpu_of_device(location.id) } else { None }
}

/// A handle is released. It is taken off the books before the call: once the driver has let it go, another thread may
/// get the same one.
pub fn release(
    counted: usize,
    handle: CUmemGenericAllocationHandle,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| {
            client.virtual_memory.count(client, handle, counted);
            Ok(client.virtual_memory.drop_one(handle))
        },
        call,
        |client, gone, result| client.virtual_memory.settle(client, handle, gone, result),
    )
}

/// A handle is asked for by address: one reference more on what is mapped there.
pub fn retain(
    counted: usize,
    handle: *mut CUmemGenericAllocationHandle,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |_| Ok(()),
        call,
        |client, (), result| {
            if result == CUDA_SUCCESS && !handle.is_null() {
                // SAFETY: the driver has just written it.
                let handle = unsafe { *handle };
                client.virtual_memory.count(client, handle, counted);
                client.virtual_memory.add_one(handle);
            }
        },
    )
}

/// A handle is mapped.
pub fn map(
    counted: usize,
    address: CUdeviceptr,
    bytes: usize,
    handle: CUmemGenericAllocationHandle,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| {
            client.virtual_memory.count(client, handle, counted);
            Ok(())
        },
        call,
        |client, (), result| {
            if result == CUDA_SUCCESS {
                client.virtual_memory.add_one(handle);
                let mapping = Mapping { bytes: bytes as u64, handle };
                client.virtual_memory.0.lock().mappings.insert(address, mapping);
            }
        },
    )
}

/// All mappings in a range go; off the books before the call, as with a release.
pub fn unmap(
    counted: usize,
    address: CUdeviceptr,
    bytes: usize,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| {
            let memory = &client.virtual_memory;
            let mappings = memory.take_mappings(address, bytes as u64);
            if let Some((_, first)) = mappings.first() {
                memory.count(client, first.handle, counted);
            }
            let gone = mappings.into_iter().map(|(at, mapping)| {
                let gone = memory.drop_one(mapping.handle);
                (at, mapping, gone)
            });
            Ok(gone.collect::<Vec<_>>())
        },
        call,
        |client, gone, result| {
            for (at, mapping, gone) in gone {
                let handle = mapping.handle;
                if result != CUDA_SUCCESS {
                    client.virtual_memory.0.lock().mappings.insert(at, mapping); // still mapped
                }
                client.virtual_memory.settle(client, handle, gone, result);
            }
        },
    )
}

impl VirtualMemory {
    /// Counts a call on the GPU whose memory it concerns; host memory concerns none.
    fn count(&self, client: &Client, handle: u64, counted: usize) {
        let index = self.0.lock().handles.get(&handle).map(|physical| physical.gpu);
        if let Some(gpu) = index.and_then(|index| client.gpus.get(index)) {
            memory::count(gpu, counted);
        }
    }

    fn add_one(&self, handle: u64) {
        if let Some(physical) = self.0.lock().handles.get_mut(&handle) {
            physical.references += 1;
        }
    }

    /// One reference less; with the last one the memory is off the books, and handed out.
    fn drop_one(&self, handle: u64) -> Option<Physical> {
        let mut books = self.0.lock();
        let physical = books.handles.get_mut(&handle)?;
        physical.references -= 1;
        if physical.references > 0 { None } else { books.handles.remove(&handle) }
    }

    /// What a call meant that dropped a reference: if the driver agreed, the memory that has no reference left is given
    /// back; if not, the reference is there again.
    fn settle(&self, client: &Client, handle: u64, gone: Option<Physical>, result: CUresult) {
        match gone {
            Some(physical) if result == CUDA_SUCCESS => {
                if let Some(gpu) = client.gpus.get(physical.gpu) {
                    gpu.give_back(MemoryKind::Virtual, physical.bytes);
                }
            }
            Some(physical) => {
                self.0.lock().handles.insert(handle, Physical { references: 1, ..physical });
            }
            None if result != CUDA_SUCCESS => self.add_one(handle),
            None => {}
        }
    }

    /// Takes the mappings that begin in a range; the driver unmaps whole ones only.
    fn take_mappings(&self, address: u64, bytes: u64) -> Vec<(u64, Mapping)> {
        let mut books = self.0.lock();
        let end = address.saturating_add(bytes);
        let inside = books.mappings.range(address..end).filter(|(at, mapping)| *at + mapping.bytes <= end);
        let starts: Vec<u64> = inside.map(|(at, _)| *at).collect();
        starts.into_iter().filter_map(|at| Some((at, books.mappings.remove(&at)?))).collect()
    }
}
