//! Multicast objects: a range that stands for memory of several devices at once. The object has no memory of its own; what
//! is bound to it lives until it is unbound or the object is gone, which is when no process has it any more. So the broker has
//! the object, and here is what this process does with it.
//!
//! It travels like memory, as a descriptor. Behind the range, which is there to be mapped, its file says which object it is.
//!
//! That the broker counts an object with its size on each device that has joined is our reading of "it takes memory there";
//! that what is bound outlives the process that has bound it is what NVIDIA's open kernel module does. The reference says that
//! binding and mapping wait until all devices have joined.

use std::collections::BTreeMap;
use std::ffi::*;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::time::Duration;

use weir_abi::types::*;

use super::{GRANULARITY, MAPPED, Physical, Properties, leave, let_go, physical};
use crate::api::Driver;
use crate::edge::{Answer, get, put};
use crate::session::{self, Binding, TeamRequest};
use crate::{backing, device, locked};

/// "WEIRTEAM": tells our files from others.
const MAGIC: u64 = u64::from_le_bytes(*b"WEIRTEAM");
/// Bytes behind the range.
const TAIL: usize = 4096;
/// Between two looks whether all devices have joined.
const LOOK: Duration = Duration::from_millis(1);

/// What this process does with an object.
pub struct Team {
    /// Its number at the broker.
    id: u32,
    /// By device and offset in the object.
    bound: Mutex<BTreeMap<(CUdevice, usize), Place>>,
}

/// What is bound in a place.
struct Place {
    memory: CUmemGenericAllocationHandle,
    binding: Binding,
}

/// What the file of an object says.
pub struct Ticket {
    team: u32,
    bytes: usize,
}

impl Ticket {
    /// Of a file of this length, if it is an object's.
    pub fn of(file: c_int, length: libc::off_t) -> Option<Self> {
        let bytes = usize::try_from(length).ok()?.checked_sub(TAIL)?;
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return None;
        }
        // SAFETY: the caller's descriptor, which stays open for this call.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let file = std::fs::File::from(file.try_clone_to_owned().ok()?);
        let word = |place: usize| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, (bytes + place * 8) as u64).ok()?;
            Some(u64::from_le_bytes(word))
        };
        let team = u32::try_from(word(1)?).ok()?;
        (word(0)? == MAGIC).then_some(Self { team, bytes })
    }

    fn write(&self, file: &OwnedFd) -> Answer {
        let words = [MAGIC, self.team.into()].map(u64::to_le_bytes).concat();
        let written = file.try_clone().map(std::fs::File::from);
        let written = written.and_then(|file| file.write_all_at(&words, self.bytes as u64));
        written.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Another process's object is this one's too.
    pub fn open(&self, file: OwnedFd) -> Answer<u64> {
        session::current()?.team(TeamRequest::Open { team: self.team })?;
        let handle = self.enter(file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)?;
        physical(handle)?.held()?.cross();
        Ok(handle)
    }

    fn enter(&self, file: OwnedFd, handle_types: CUmemAllocationHandleType) -> Answer<u64> {
        let properties = Properties {
            kind: CU_MEM_ALLOCATION_TYPE_PINNED,
            handle_types,
            location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
            usage: 0,
        };
        let team = Team { id: self.team, bound: Mutex::new(BTreeMap::new()) };
        Physical::enter_team(file, self.bytes, properties, team)
    }
}

impl Team {
    /// Waits until all devices have joined, as the reference says.
    pub fn wait(&self) -> Answer {
        ready(TeamRequest::Ready { team: self.id })
    }

    /// This process has it no more. What was bound stays so where another one has it.
    pub fn dissolve(&self) -> Answer {
        session::current()?.team(TeamRequest::Close { team: self.id })?;
        let bound = std::mem::take(&mut *locked(&self.bound));
        bound.into_values().try_for_each(|Place { memory, binding }| leave(memory, binding))
    }
}

/// Asks the broker for something that has to wait until all devices have joined.
fn ready(request: TeamRequest) -> Answer {
    loop {
        match session::current()?.team(request) {
            Err(CUDA_ERROR_NOT_READY) => std::thread::sleep(LOOK),
            answer => return answer,
        }
    }
}

fn team(handle: CUmemGenericAllocationHandle) -> Answer<&'static Team> {
    physical(handle)?.team.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Binds part of a physical allocation of a device.
fn bind(
    object: CUmemGenericAllocationHandle,
    at: usize,
    memory: CUmemGenericAllocationHandle,
    offset: usize,
    bytes: usize,
) -> Answer {
    let (team, memory_of) = (team(object)?, physical(memory)?);
    let whole = [at, offset, bytes].iter().all(|n| n.is_multiple_of(GRANULARITY)) && bytes > 0;
    let inside = offset.checked_add(bytes).is_some_and(|end| end <= memory_of.bytes);
    let CUmemLocation { kind, id: device } = memory_of.properties.location;
    if !whole || !inside || kind != CU_MEM_LOCATION_TYPE_DEVICE || memory_of.team.is_some() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let binding = Binding {
        team: team.id,
        device: session::current()?.number(device)?,
        at: at as u64,
        length: bytes as u64,
        memory,
        bytes: if memory_of.charged.is_some() { memory_of.bytes as u64 } else { 0 },
    };
    memory_of.held()?.mappings += 1;
    if let Err(refusal) = ready(TeamRequest::Bind(binding)) {
        let_go(memory)?;
        return Err(refusal);
    }
    locked(&team.bound).insert((device, at), Place { memory, binding });
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
        let CUmulticastObjectProp { num_devices, size, handle_types, flags } = get(prop)?;
        let whole = size > 0 && size.is_multiple_of(GRANULARITY);
        let handle_types = CUmemAllocationHandleType::try_from(handle_types);
        let (true, 1.., 0, Ok(handle_types)) = (whole, num_devices, flags, handle_types) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let file = backing::file(size + TAIL)?;
        let ticket = Ticket { team: session::current()?.create_team(num_devices, size)?, bytes: size };
        ticket.write(&file)?;
        put(out, ticket.enter(file, handle_types)?)
    }

    pub fn cuMulticastAddDevice(object: CUmemGenericAllocationHandle, device: CUdevice) -> Answer {
        device::check(device)?;
        let (team, session) = (team(object)?.id, session::current()?);
        session.team(TeamRequest::Join { team, device: session.number(device)? })
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
        let inside = |(on, start): &(CUdevice, usize), length: u64| {
            *on == device && *start >= at && *start as u64 + length <= end as u64
        };
        let (found, session) = (team(object)?, session::current()?);
        let (at, bytes) = (at as u64, bytes as u64);
        session.team(TeamRequest::Unbind { team: found.id, device: session.number(device)?, at, bytes })?;
        let gone: Vec<_> =
            locked(&found.bound).extract_if(.., |place, bound| inside(place, bound.binding.length)).collect();
        gone.into_iter().try_for_each(|(_, Place { memory, .. })| let_go(memory))
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
