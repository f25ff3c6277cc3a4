//! Virtual memory management: physical memory by handle, mapped elsewhere. It is held until the last reference
//! and the last mapping are gone (gpu-truths, rule 14), so both are counted. What is mapped to arrays: `tiles.rs`.

use std::collections::{BTreeMap, HashMap};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::lock::Lock;
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::shares::Opened;
use super::team::Team;
use super::{memory, multicast, vmm_shares};
use crate::guard::{after_success, guard};
use crate::link::{Client, Gpu};

/// Physical memory of this process, by handle, and where it is mapped.
#[derive(Default)]
pub struct VirtualMemory(Lock<Books>);

#[derive(Default)]
struct Books {
    handles: HashMap<u64, Physical>,
    mappings: BTreeMap<u64, Mapping>,
}

/// Physical memory, ours or another process's, or a multicast object.
pub struct Physical {
    gpu: usize,
    bytes: Bytes,    // charged to us
    references: u64, // handles and mappings
    foreign: Option<Foreign>,
    team: Option<Team>,
}

/// Memory of another process: how much it is, its first mapping tells.
struct Foreign {
    key: Option<u64>,
    opened: Option<Opened>,
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
                let bytes = reservation.commit();
                let physical = Physical { gpu: gpu.index, bytes, references: 1, foreign: None, team: None };
                // SAFETY: the driver has just written it.
                client.virtual_memory.0.lock().handles.insert(unsafe { *handle }, physical);
            }
        },
    )
}

/// The tenant's GPU that the properties name.
pub fn device_of(client: &'static Client, prop: *const CUmemAllocationProp) -> Option<&'static Gpu> {
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
    after_success(call, |client| {
        if !handle.is_null() {
            // SAFETY: the driver has just written it.
            let handle = unsafe { *handle };
            client.virtual_memory.count(client, handle, counted);
            client.virtual_memory.add_one(handle);
        }
    })
}

/// A handle is mapped.
pub fn map(
    counted: usize,
    address: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| {
            client.virtual_memory.count(client, handle, counted);
            multicast::Seen::admit(client, handle, offset, bytes)
        },
        call,
        |client, seen, result| {
            if result == CUDA_SUCCESS {
                seen.settle(client);
                client.virtual_memory.opened(client, handle, Bytes(bytes as u64));
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
            // The last one first: it may have taken the memory off the books, to which the others' references come back.
            for (at, mapping, gone) in gone.into_iter().rev() {
                let handle = mapping.handle;
                if result != CUDA_SUCCESS {
                    client.virtual_memory.0.lock().mappings.insert(at, mapping); // still mapped
                }
                client.virtual_memory.settle(client, handle, gone, result);
            }
        },
    )
}

impl Physical {
    /// The last reference of this process is gone. Memory that was given out lives on where it is open.
    fn go(self, client: &Client, handle: u64) {
        let Some(gpu) = client.gpus.get(self.gpu) else { return };
        if let Some(team) = self.team {
            let (bound, lives_on) = team.dissolve(client);
            return bound.into_iter().for_each(|(gpu, bound)| {
                if !lives_on {
                    client.virtual_memory.unkeep(client, gpu, bound);
                }
                let gone = client.virtual_memory.drop_one(bound);
                client.virtual_memory.settle(client, bound, gone, CUDA_SUCCESS);
            });
        }
        if let Some(foreign) = self.foreign {
            return foreign.opened.into_iter().for_each(|opened| opened.close(client));
        }
        client.shares.leave(gpu, handle);
        gpu.give_back(MemoryKind::Virtual, self.bytes);
    }
}

impl VirtualMemory {
    /// A multicast object was made.
    pub fn enter_team(&self, handle: u64, gpu: usize, team: Team) {
        let object = Physical { gpu, bytes: Bytes(0), references: 1, foreign: None, team: Some(team) };
        self.0.lock().handles.insert(handle, object);
    }

    /// What came from another process is a multicast object, as the driver has taken it for one.
    pub fn is_team(&self, client: &Client, handle: u64) {
        let mut books = self.0.lock();
        let Some(physical) = books.handles.get_mut(&handle) else { return };
        let Some(foreign) = physical.foreign.take() else { return };
        physical.team = Some(Team::imported(client, foreign.key));
        foreign.opened.into_iter().for_each(|opened| opened.close(client));
    }

    /// Memory was unbound: if nothing else of ours holds it for others, it is this process's alone.
    pub fn unkeep(&self, client: &Client, gpu: usize, handle: u64) {
        let books = self.0.lock();
        let teams = books.handles.values().filter_map(|physical| physical.team.as_ref());
        let mut crossing = teams.filter(|team| team.key().is_some());
        let held = crossing.any(|team| team.bound.values().any(|(_, bound)| *bound == handle));
        drop(books);
        if let Some(gpu) = client.gpus.get(gpu).filter(|_| !held) {
            client.shares.unkept(gpu, handle);
        }
    }

    /// Runs `ours` on a multicast object's team.
    pub fn with_team<R>(&self, handle: u64, ours: impl FnOnce(&mut Team) -> R) -> Option<R> {
        self.0.lock().handles.get_mut(&handle)?.team.as_mut().map(ours)
    }

    /// The GPU on which a handle's memory lies.
    pub fn gpu_of(&self, handle: u64) -> Option<usize> {
        self.0.lock().handles.get(&handle).map(|physical| physical.gpu)
    }

    /// The handle of what is mapped at an address.
    pub fn mapped_at(&self, address: u64) -> Option<u64> {
        let books = self.0.lock();
        let (start, mapping) = books.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some(mapping.handle)
    }

    /// Counts a call on the GPU whose memory it concerns; host memory concerns none.
    pub fn count(&self, client: &Client, handle: u64, counted: usize) {
        let index = self.0.lock().handles.get(&handle).map(|physical| physical.gpu);
        if let Some(gpu) = index.and_then(|index| client.gpus.get(index)) {
            memory::count(gpu, counted);
        }
    }

    /// Another process's memory is mapped; the first mapping shows it as shared.
    fn opened(&self, client: &Client, handle: u64, bytes: Bytes) {
        let mut books = self.0.lock();
        let Some(physical) = books.handles.get_mut(&handle) else { return };
        let (Some(foreign), Some(gpu)) = (&mut physical.foreign, client.gpus.get(physical.gpu)) else {
            return;
        };
        if foreign.opened.is_none() {
            let key = foreign.key.unwrap_or_else(|| vmm_shares::by_size(bytes));
            foreign.opened = Some(Opened::note(gpu, key, bytes, MemoryKind::Virtual));
        }
    }

    /// What of ours a handle stands for: GPU and bytes.
    pub fn charged(&self, handle: u64) -> Option<(usize, Bytes)> {
        let books = self.0.lock();
        let ours = |physical: &&Physical| physical.foreign.is_none() && physical.team.is_none();
        let physical = books.handles.get(&handle).filter(ours)?;
        Some((physical.gpu, physical.bytes))
    }

    /// A handle stands for memory of another process.
    pub fn enter_foreign(&self, handle: u64, gpu: usize, key: Option<u64>) {
        let foreign = Some(Foreign { key, opened: None });
        let physical = Physical { gpu, bytes: Bytes(0), references: 1, foreign, team: None };
        self.0.lock().handles.insert(handle, physical);
    }

    /// One reference more.
    pub fn add_one(&self, handle: u64) {
        if let Some(physical) = self.0.lock().handles.get_mut(&handle) {
            physical.references += 1;
        }
    }

    /// One reference less; with the last one the memory is off the books, and handed out.
    pub fn drop_one(&self, handle: u64) -> Option<Physical> {
        let mut books = self.0.lock();
        let physical = books.handles.get_mut(&handle)?;
        physical.references -= 1;
        if physical.references > 0 { None } else { books.handles.remove(&handle) }
    }

    /// What a call meant that dropped a reference: if the driver agreed, the memory that has no reference left is given
    /// back; if not, the reference is there again.
    pub fn settle(&self, client: &Client, handle: u64, gone: Option<Physical>, result: CUresult) {
        match gone {
            Some(physical) if result == CUDA_SUCCESS => physical.go(client, handle),
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
