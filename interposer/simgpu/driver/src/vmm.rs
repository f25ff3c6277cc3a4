//! Virtual memory management: addresses and physical memory apart.
//!
//! Physical memory is a memfd, so that it can be mapped anywhere, twice, and in another process. It is freed
//! when its last reference is gone: handles (create, retain, import) and mappings both count.

use std::collections::BTreeMap;
use std::ffi::*;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

use weir_abi::types::*;

use crate::api::Driver;
use crate::context::Context;
use crate::edge::{Answer, get, list, put};
use crate::memory::{self, Kind};
use crate::registry::Registry;
use crate::{backing, context, device, locked, memory::pointer, session};

/// Physical memory comes in multiples of this, bytes.
const GRANULARITY: usize = 2 << 20;

static PHYSICAL: Registry<Physical> = Registry::new(11, CUDA_ERROR_INVALID_VALUE);
static RESERVED: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());
static MAPPED: Mutex<BTreeMap<u64, Mapping>> = Mutex::new(BTreeMap::new());

/// A physical allocation.
struct Physical {
    bytes: usize,
    properties: Properties,
    /// Which device it is charged to; memory of the host and of other processes is not.
    charged: Option<CUdevice>,
    state: Mutex<State>,
}

/// The part of `CUmemAllocationProp` that is remembered.
#[derive(Clone, Copy)]
struct Properties {
    kind: CUmemAllocationType,
    handle_types: CUmemAllocationHandleType,
    location: CUmemLocation,
}

struct State {
    /// `None` when the last reference is gone.
    file: Option<OwnedFd>,
    handles: usize,
    mappings: usize,
}

#[derive(Clone, Copy)]
struct Mapping {
    bytes: usize,
    physical: CUmemGenericAllocationHandle,
    access: CUmemAccess_flags,
}

fn physical(handle: CUmemGenericAllocationHandle) -> Answer<&'static Physical> {
    PHYSICAL.get(pointer(handle))
}

impl Physical {
    fn enter(file: OwnedFd, bytes: usize, properties: Properties, charged: Option<CUdevice>) -> Answer<u64> {
        let state = Mutex::new(State { file: Some(file), handles: 1, mappings: 0 });
        let (handle, _) = PHYSICAL.insert(Physical { bytes, properties, charged, state })?;
        Ok(handle.raw().addr() as u64)
    }

    /// Its state, if it still has a handle that a client may use.
    fn held(&self) -> Answer<MutexGuard<'_, State>> {
        let state = locked(&self.state);
        if state.handles > 0 { Ok(state) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }

    /// Frees it if that was the last reference.
    fn settle(&self, mut state: MutexGuard<'_, State>) -> Answer {
        let last = state.handles + state.mappings == 0;
        if !last || state.file.take().is_none() {
            return Ok(());
        }
        self.charged.map_or(Ok(()), |device| session::current()?.release(device, self.bytes))
    }
}

fn create(bytes: usize, properties: &CUmemAllocationProp) -> Answer<u64> {
    let CUmemAllocationProp { kind, requested_handle_types, location, .. } = *properties;
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || kind != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let charged = match location.kind {
        CU_MEM_LOCATION_TYPE_DEVICE => Some(location.id),
        CU_MEM_LOCATION_TYPE_HOST
        | CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => None,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if let Some(device) = charged {
        device::check(device)?;
        session::current()?.reserve(device, bytes)?;
    }
    let properties = Properties { kind, handle_types: requested_handle_types, location };
    let made = backing::file(bytes).and_then(|file| Physical::enter(file, bytes, properties, charged));
    if let (Err(_), Some(device)) = (&made, charged) {
        session::current()?.release(device, bytes)?;
    }
    made
}

/// Takes memory in that another process has exported. It stays charged there.
fn import(file: c_int) -> Answer<u64> {
    // SAFETY: `fstat` fills the structure that `zeroed` makes a valid start of.
    let (status, failed) = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let failed = libc::fstat(file, &raw mut status) != 0;
        (status, failed)
    };
    let bytes = usize::try_from(status.st_size)
        .ok()
        .filter(|bytes| *bytes > 0 && !failed)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let properties = Properties {
        kind: CU_MEM_ALLOCATION_TYPE_PINNED,
        handle_types: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: context::current()?.device },
    };
    Physical::enter(duplicate(file)?, bytes, properties, None)
}

fn duplicate(file: c_int) -> Answer<OwnedFd> {
    // SAFETY: a descriptor number is all that is passed; what comes back is ours alone.
    match unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) } {
        -1 => Err(CUDA_ERROR_OPERATING_SYSTEM),
        // SAFETY: the fresh descriptor of the line above.
        file => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
    }
}

/// Refuses a range that is not reserved as a whole.
fn check_reserved(address: u64, bytes: usize) -> Answer {
    let reserved = locked(&RESERVED);
    let inside = |(start, length): (&u64, &usize)| address + bytes as u64 <= start + *length as u64;
    if reserved.range(..=address).next_back().is_some_and(inside) {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

fn any_context() -> Answer<&'static Context> {
    context::current().or_else(|refusal| context::all().next().ok_or(refusal))
}

fn map(address: u64, bytes: usize, offset: usize, handle: u64) -> Answer {
    check_reserved(address, bytes)?;
    let physical = physical(handle)?;
    let mut state = physical.held()?;
    let inside = offset.checked_add(bytes).is_some_and(|end| end <= physical.bytes);
    if !inside || !address.is_multiple_of(GRANULARITY as u64) || locked(&MAPPED).contains_key(&address) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let file = state.file.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?.as_raw_fd();
    backing::lay(address, bytes, file, offset as u64)?;
    state.mappings += 1;
    locked(&MAPPED)
        .insert(address, Mapping { bytes, physical: handle, access: CU_MEM_ACCESS_FLAGS_PROT_NONE });
    memory::enter(address, bytes, 0, any_context()?, Kind::Mapped);
    Ok(())
}

/// Unmaps every mapping in a range; a range that cuts one in two is refused.
fn unmap(address: u64, bytes: usize) -> Answer {
    let end = address.checked_add(bytes as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut mapped = locked(&MAPPED);
    let whole: Vec<(u64, Mapping)> =
        mapped.range(address..end).map(|(at, mapping)| (*at, *mapping)).collect();
    let covered: u64 = whole.iter().map(|(_, mapping)| mapping.bytes as u64).sum();
    if covered != bytes as u64 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for (at, mapping) in whole {
        mapped.remove(&at);
        memory::remove(at, |kind| matches!(kind, Kind::Mapped))?;
        backing::lift(at, mapping.bytes)?;
        // The handle may be released already; the object behind it is not, as this mapping held it.
        let physical = PHYSICAL.get(pointer(mapping.physical))?;
        let mut state = locked(&physical.state);
        state.mappings -= 1;
        physical.settle(state)?;
    }
    Ok(())
}

fn allow(address: u64, bytes: usize, access: &CUmemAccessDesc) -> Answer {
    let end = address.checked_add(bytes as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut mapped = locked(&MAPPED);
    let covered: usize = mapped.range(address..end).map(|(_, mapping)| mapping.bytes).sum();
    if covered != bytes {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    backing::allow(address, bytes, access.flags)?;
    mapped.range_mut(address..end).for_each(|(_, mapping)| mapping.access = access.flags);
    Ok(())
}

impl Driver {
    pub fn cuMemAddressReserve(
        out: *mut CUdeviceptr,
        bytes: usize,
        alignment: usize,
        _wish: CUdeviceptr,
        _flags: c_ulonglong,
    ) -> Answer {
        if bytes == 0
            || !bytes.is_multiple_of(GRANULARITY)
            || (alignment != 0 && !alignment.is_power_of_two())
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let address = backing::reserve(bytes, alignment.max(GRANULARITY))?;
        locked(&RESERVED).insert(address, bytes);
        put(out, address)
    }

    pub fn cuMemAddressFree(address: CUdeviceptr, bytes: usize) -> Answer {
        let mut reserved = locked(&RESERVED);
        let mapped = locked(&MAPPED).range(address..address.saturating_add(bytes as u64)).next().is_some();
        if reserved.get(&address) != Some(&bytes) || mapped {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        reserved.remove(&address);
        backing::give_back(address, bytes);
        Ok(())
    }

    pub fn cuMemCreate(
        out: *mut CUmemGenericAllocationHandle,
        bytes: usize,
        properties: *const CUmemAllocationProp,
        _flags: c_ulonglong,
    ) -> Answer {
        put(out, create(bytes, &get(properties)?)?)
    }

    pub fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> Answer {
        let physical = physical(handle)?;
        let mut state = physical.held()?;
        state.handles -= 1;
        physical.settle(state)
    }

    pub fn cuMemMap(
        address: CUdeviceptr,
        bytes: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        _flags: c_ulonglong,
    ) -> Answer {
        map(address, bytes, offset, handle)
    }

    pub fn cuMemUnmap(address: CUdeviceptr, bytes: usize) -> Answer {
        unmap(address, bytes)
    }

    pub fn cuMemSetAccess(
        address: CUdeviceptr,
        bytes: usize,
        access: *const CUmemAccessDesc,
        count: usize,
    ) -> Answer {
        list(access, count)?.iter().try_for_each(|access| allow(address, bytes, access))
    }

    pub fn cuMemGetAccess(
        out: *mut c_ulonglong,
        location: *const CUmemLocation,
        address: CUdeviceptr,
    ) -> Answer {
        get(location)?;
        let mapped = locked(&MAPPED);
        let (start, mapping) = mapped.range(..=address).next_back().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if address - start >= mapping.bytes as u64 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, mapping.access.into())
    }

    pub fn cuMemRetainAllocationHandle(
        out: *mut CUmemGenericAllocationHandle,
        address: *mut c_void,
    ) -> Answer {
        let address = address.addr() as u64;
        let mapping =
            locked(&MAPPED).range(..=address).next_back().map(|(start, mapping)| (*start, *mapping));
        let (start, mapping) = mapping.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if address - start >= mapping.bytes as u64 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        locked(&physical(mapping.physical)?.state).handles += 1;
        put(out, mapping.physical)
    }

    pub fn cuMemGetAllocationGranularity(
        out: *mut usize,
        properties: *const CUmemAllocationProp,
        _which: CUmemAllocationGranularity_flags,
    ) -> Answer {
        get(properties)?;
        put(out, GRANULARITY)
    }

    pub fn cuMemGetAllocationPropertiesFromHandle(
        out: *mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle,
    ) -> Answer {
        let Properties { kind, handle_types, location } = physical(handle)?.properties;
        put(
            out,
            CUmemAllocationProp {
                kind,
                requested_handle_types: handle_types,
                location,
                win32_handle_meta_data: std::ptr::null_mut(),
                compression_type: 0,
                gpu_direct_rdma_capable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        )
    }

    pub fn cuMemExportToShareableHandle(
        out: *mut c_void,
        handle: CUmemGenericAllocationHandle,
        kind: CUmemAllocationHandleType,
        _flags: c_ulonglong,
    ) -> Answer {
        let physical = physical(handle)?;
        let state = physical.held()?;
        let offered = physical.properties.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || offered == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let file = state.file.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        put(out.cast::<c_int>(), duplicate(file.as_raw_fd())?.into_raw_fd())
    }

    pub fn cuMemImportFromShareableHandle(
        out: *mut CUmemGenericAllocationHandle,
        handle: *mut c_void,
        kind: CUmemAllocationHandleType,
    ) -> Answer {
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        put(out, import(c_int::try_from(handle.addr()).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)?)
    }
}
