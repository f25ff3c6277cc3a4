//! Virtual memory management: addresses and physical memory apart.
//!
//! Physical memory is a memfd, so that it can be mapped anywhere, twice, and in another process. It is freed
//! when its last reference is gone: handles (create, retain, import) and mappings both count.

mod calls;
mod multicast;

use std::collections::BTreeMap;
use std::ffi::*;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

use weir_abi::types::*;

use crate::context::Context;
use crate::edge::Answer;
use crate::memory::{self, Kind};
use crate::registry::Registry;
use crate::session::{Binding, Obstacle, TeamRequest};
use crate::{backing, checkpoint, context, device, locked, memory::pointer, session};

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
    /// A multicast object has a team in place of memory.
    team: Option<multicast::Team>,
    state: Mutex<State>,
}

/// The part of `CUmemAllocationProp` that is remembered.
#[derive(Clone, Copy)]
struct Properties {
    kind: CUmemAllocationType,
    handle_types: CUmemAllocationHandleType,
    location: CUmemLocation,
    usage: c_ushort,
}

struct State {
    /// `None` when the last reference is gone.
    file: Option<OwnedFd>,
    handles: usize,
    mappings: usize,
    /// Given to another process, or taken from one.
    crosses: bool,
    /// Where it is still bound to a multicast object that this process has closed.
    left: Option<Binding>,
}

#[derive(Clone, Copy)]
struct Mapping {
    bytes: usize,
    physical: CUmemGenericAllocationHandle,
    access: CUmemAccess_flags,
}

impl State {
    /// It is another process's memory too from now on.
    fn cross(&mut self) {
        if !std::mem::replace(&mut self.crosses, true) {
            checkpoint::count_obstacle(Obstacle::Ipc, true);
        }
    }
}

fn physical(handle: CUmemGenericAllocationHandle) -> Answer<&'static Physical> {
    PHYSICAL.get(pointer(handle))
}

impl Physical {
    fn enter(file: OwnedFd, bytes: usize, properties: Properties, charged: Option<CUdevice>) -> Answer<u64> {
        Self::insert(file, bytes, properties, charged, None)
    }

    fn enter_team(file: OwnedFd, bytes: usize, properties: Properties, team: multicast::Team) -> Answer<u64> {
        Self::insert(file, bytes, properties, None, Some(team))
    }

    fn insert(
        file: OwnedFd,
        bytes: usize,
        properties: Properties,
        charged: Option<CUdevice>,
        team: Option<multicast::Team>,
    ) -> Answer<u64> {
        if team.is_some() {
            checkpoint::count_obstacle(Obstacle::Multicast, true);
        }
        let state =
            Mutex::new(State { file: Some(file), handles: 1, mappings: 0, crosses: false, left: None });
        let (handle, _) = PHYSICAL.insert(Physical { bytes, properties, charged, team, state })?;
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
        let left = state.left.take();
        if state.crosses {
            checkpoint::count_obstacle(Obstacle::Ipc, false);
        }
        drop(state);
        if self.team.is_some() {
            checkpoint::count_obstacle(Obstacle::Multicast, false);
        }
        self.team.as_ref().map_or(Ok(()), multicast::Team::dissolve)?;
        let Some(device) = self.charged else { return Ok(()) };
        match left {
            Some(binding) => session::current()?.team(TeamRequest::HandOver(binding)),
            None => session::current()?.release(device, self.bytes),
        }
    }
}

fn create(bytes: usize, properties: &CUmemAllocationProp) -> Answer<u64> {
    let CUmemAllocationProp { kind, requested_handle_types, location, usage, .. } = *properties;
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
    let properties = Properties { kind, handle_types: requested_handle_types, location, usage };
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
    if let Some(team) = multicast::Ticket::of(file, status.st_size) {
        return team.open(duplicate(file)?);
    }
    let bytes = usize::try_from(status.st_size)
        .ok()
        .filter(|bytes| *bytes > 0 && !failed)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let properties = Properties {
        kind: CU_MEM_ALLOCATION_TYPE_PINNED,
        handle_types: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: context::current()?.device },
        usage: 0,
    };
    let handle = Physical::enter(duplicate(file)?, bytes, properties, None)?;
    physical(handle)?.held()?.cross();
    Ok(handle)
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
    if let Some(team) = &physical.team {
        team.wait()?;
    }
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
        let_go(mapping.physical)?;
    }
    Ok(())
}

/// Refuses what is no memory for tiles on a device, or does not hold so many bytes.
pub fn check_tile_pool(
    handle: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: u64,
    bytes: u64,
) -> Answer {
    let physical = physical(handle)?;
    drop(physical.held()?);
    let Properties { location, usage, .. } = physical.properties;
    let here = location == CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device };
    let inside = offset.checked_add(bytes).is_some_and(|end| end <= physical.bytes as u64);
    if here && inside && usage & CU_MEM_CREATE_USAGE_TILE_POOL != 0 {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// Physical memory is mapped once more.
pub fn hold(handle: CUmemGenericAllocationHandle) -> Answer {
    physical(handle)?.held()?.mappings += 1;
    Ok(())
}

/// One mapping less. The handle may be released already; the object behind it is not, as the mapping held it.
pub fn let_go(handle: CUmemGenericAllocationHandle) -> Answer {
    let physical = physical(handle)?;
    let mut state = locked(&physical.state);
    state.mappings -= 1;
    physical.settle(state)
}

/// One mapping less, and the last one of a multicast object that this process has closed: somebody else may have it still.
fn leave(handle: CUmemGenericAllocationHandle, binding: Binding) -> Answer {
    let physical = physical(handle)?;
    let mut state = locked(&physical.state);
    state.mappings -= 1;
    state.left = Some(binding);
    physical.settle(state)
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
