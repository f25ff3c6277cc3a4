//! Multicast objects: a range that stands for memory of several devices at once. The object has no memory of its own; what
//! is bound to it lives until it is unbound or the object is gone.

use std::collections::BTreeMap;
use std::ffi::*;
use std::sync::Mutex;

use weir_abi::types::*;

use super::{GRANULARITY, MAPPED, Physical, Properties, let_go, physical};
use crate::api::Driver;
use crate::edge::{Answer, get, put};
use crate::{backing, device, locked};

/// Who takes part, and with what.
pub struct Team {
    devices: usize,
    joined: Vec<CUdevice>,
    /// By device and offset in the object: bytes, and the physical memory.
    bound: BTreeMap<(CUdevice, usize), (usize, CUmemGenericAllocationHandle)>,
}

/// The object is gone: what is bound to it is let go.
pub fn dissolve(team: &Mutex<Team>) -> Answer {
    let bound = std::mem::take(&mut locked(team).bound);
    bound.into_values().try_for_each(|(_, handle)| let_go(handle))
}

fn team(handle: CUmemGenericAllocationHandle) -> Answer<(&'static Physical, &'static Mutex<Team>)> {
    let object = physical(handle)?;
    Ok((object, object.team.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?))
}

/// Binds part of a physical allocation. Every device must have joined before.
fn bind(
    object: CUmemGenericAllocationHandle,
    at: usize,
    memory: CUmemGenericAllocationHandle,
    offset: usize,
    bytes: usize,
) -> Answer {
    let ((object, team), memory_of) = (team(object)?, physical(memory)?);
    let whole = [at, offset, bytes].iter().all(|n| n.is_multiple_of(GRANULARITY)) && bytes > 0;
    let inside = |start: usize, length: usize| start.checked_add(bytes).is_some_and(|end| end <= length);
    if !whole || !inside(at, object.bytes) || !inside(offset, memory_of.bytes) || memory_of.team.is_some() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = memory_of.properties.location.id;
    let mut team = locked(team);
    let taken = team
        .bound
        .iter()
        .any(|((on, start), (length, _))| *on == device && *start < at + bytes && at < start + length);
    if team.joined.len() < team.devices || !team.joined.contains(&device) || taken {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    memory_of.held()?.mappings += 1;
    team.bound.insert((device, at), (bytes, memory));
    Ok(())
}

fn bind_address(object: u64, at: usize, address: CUdeviceptr, bytes: usize) -> Answer {
    let found = locked(&MAPPED).range(..=address).next_back().map(|(start, mapping)| (*start, *mapping));
    let (start, mapping) = found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let offset = usize::try_from(address - start).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    bind(object, at, mapping.physical, offset, bytes)
}

impl Driver {
    pub fn cuMulticastCreate(
        out: *mut CUmemGenericAllocationHandle,
        prop: *const CUmulticastObjectProp,
    ) -> Answer {
        let CUmulticastObjectProp { num_devices, size, .. } = get(prop)?;
        if num_devices == 0 || size == 0 || !size.is_multiple_of(GRANULARITY) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let properties = Properties {
            kind: CU_MEM_ALLOCATION_TYPE_PINNED,
            handle_types: CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
            usage: 0,
        };
        let team = Team { devices: num_devices as usize, joined: Vec::new(), bound: BTreeMap::new() };
        let file = backing::file(size)?;
        put(out, Physical::enter_team(file, size, properties, Some(Mutex::new(team)))?)
    }

    pub fn cuMulticastAddDevice(object: CUmemGenericAllocationHandle, device: CUdevice) -> Answer {
        device::check(device)?;
        let mut team = locked(team(object)?.1);
        if team.joined.contains(&device) || team.joined.len() == team.devices {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        team.joined.push(device);
        Ok(())
    }

    pub fn cuMulticastBindMem(
        object: CUmemGenericAllocationHandle,
        at: usize,
        memory: CUmemGenericAllocationHandle,
        offset: usize,
        bytes: usize,
        _flags: c_ulonglong,
    ) -> Answer {
        bind(object, at, memory, offset, bytes)
    }

    pub fn cuMulticastBindMem_v2(
        object: CUmemGenericAllocationHandle,
        _device: CUdevice,
        at: usize,
        memory: CUmemGenericAllocationHandle,
        offset: usize,
        bytes: usize,
        _flags: c_ulonglong,
    ) -> Answer {
        bind(object, at, memory, offset, bytes)
    }

    pub fn cuMulticastBindAddr(
        object: CUmemGenericAllocationHandle,
        at: usize,
        address: CUdeviceptr,
        bytes: usize,
        _flags: c_ulonglong,
    ) -> Answer {
        bind_address(object, at, address, bytes)
    }

    pub fn cuMulticastBindAddr_v2(
        object: CUmemGenericAllocationHandle,
        _device: CUdevice,
        at: usize,
        address: CUdeviceptr,
        bytes: usize,
        _flags: c_ulonglong,
    ) -> Answer {
        bind_address(object, at, address, bytes)
    }

    pub fn cuMulticastUnbind(
        object: CUmemGenericAllocationHandle,
        device: CUdevice,
        at: usize,
        bytes: usize,
    ) -> Answer {
        let end = at.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let inside = |(on, start): &(CUdevice, usize), length: usize| {
            *on == device && *start >= at && start + length <= end
        };
        let mut team = locked(team(object)?.1);
        let gone: Vec<_> = team.bound.extract_if(.., |place, (length, _)| inside(place, *length)).collect();
        drop(team);
        if gone.is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        gone.into_iter().try_for_each(|(_, (_, handle))| let_go(handle))
    }

    pub fn cuMulticastGetGranularity(
        out: *mut usize,
        prop: *const CUmulticastObjectProp,
        _option: c_uint,
    ) -> Answer {
        get(prop)?;
        put(out, GRANULARITY)
    }
}
