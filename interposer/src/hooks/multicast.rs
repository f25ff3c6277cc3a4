//! Multicast objects. One is counted with its size, in whole steps of the driver's, on every device that has joined it;
//! memory that is bound to it has one reference more. What that comes to where several processes have it: `team.rs`.

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::ledger::Reservation;
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::memory;
use super::team::Team;
use crate::driver;
use crate::guard::{alone, guard};
use crate::link::{Client, Gpu};
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
            let gpu = current.map_or(0, |current| current.gpu.index);
            client.virtual_memory.enter_team(object, gpu, Team::made(bytes));
        },
    )
}

/// It goes to another process; says whether there is such an object.
pub fn export(client: &Client, object: Object, by_file: Option<u64>) -> bool {
    let crossing = client.virtual_memory.with_team(object, |team| {
        team.cross(client, by_file);
        (team.key(), team.bound.values().map(|(_, memory)| *memory).collect::<Vec<_>>())
    });
    let Some((key, bound)) = crossing else { return false };
    bound.into_iter().for_each(|memory| keep(client, key, memory));
    true
}

/// It came from another process.
pub fn import(client: &'static Client, object: Object, by_file: Option<u64>) {
    let current = thread::with(|thread| thread.find_current(client));
    let gpu = current.map_or(0, |current| current.gpu.index);
    client.virtual_memory.enter_team(object, gpu, Team::imported(client, by_file));
}

/// Notes that an object which crosses processes holds memory of ours.
fn keep(client: &Client, key: Option<u64>, memory: u64) {
    let (Some(key), Some((gpu, bytes))) = (key, client.virtual_memory.charged(memory)) else { return };
    if let Some(gpu) = client.gpus.get(gpu) {
        client.shares.kept(gpu, memory, key, bytes);
    }
}

/// How far an object reaches, as a call shows that binds or maps a part of it, and what is to be charged for that.
pub struct Seen {
    object: Object,
    end: Bytes,
    charges: Vec<(&'static Gpu, Reservation<'static>)>,
}

impl Seen {
    /// Reserves what is charged if the driver agrees; nothing but for objects that came from another process.
    pub fn admit(client: &'static Client, object: Object, at: usize, bytes: usize) -> Result<Self, CUresult> {
        let end = Bytes((at as u64).saturating_add(bytes as u64));
        let missing = client.virtual_memory.with_team(object, |team| team.missing(end)).unwrap_or_default();
        let missing = missing.into_iter().filter_map(|(gpu, bytes)| Some((client.gpus.get(gpu)?, bytes)));
        let charges =
            missing.map(|(gpu, bytes)| Ok((gpu, memory::reserve(client, gpu, MemoryKind::Virtual, bytes)?)));
        Ok(Self { object, end, charges: charges.collect::<Result<_, CUresult>>()? })
    }

    /// The driver has agreed.
    pub fn settle(self, client: &Client) {
        let Self { object, end, charges } = self;
        let charged: Vec<_> = charges.into_iter().map(|(gpu, charge)| (gpu.index, charge.commit())).collect();
        let keys = client.virtual_memory.with_team(object, |team| {
            let before = team.key();
            team.reaches(client, end, charged);
            (before, team.key(), team.bound.iter().map(|(place, what)| (place.0, what.1)).collect::<Vec<_>>())
        });
        if let Some((_, key, bound)) = keys.filter(|(before, key, _)| before != key) {
            for (gpu, memory) in bound {
                client.gpus.get(gpu).into_iter().for_each(|gpu| client.shares.unkept(gpu, memory));
                keep(client, key, memory);
            }
        }
    }
}

/// A device joins: the object is charged there, as far as its size is known.
pub fn add_device(object: Object, device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| {
            let Some(gpu) = client.gpu_of_device(device) else { return Ok(None) };
            let bytes = client.virtual_memory.with_team(object, |team| team.bytes).unwrap_or(Bytes(0));
            Ok(Some((gpu, memory::reserve(client, gpu, MemoryKind::Virtual, bytes)?)))
        },
        call,
        |client, receipt, result| {
            if let (CUDA_SUCCESS, Some((gpu, reservation))) = (result, receipt) {
                client.virtual_memory.is_team(client, object);
                let bytes = reservation.commit();
                if client.virtual_memory.with_team(object, |team| team.join(gpu, bytes)).is_none() {
                    gpu.give_back(MemoryKind::Virtual, bytes); // not known here
                }
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
    guard(
        |client| Seen::admit(client, object, at, bytes),
        call,
        |client, seen, result| {
            if result != CUDA_SUCCESS {
                return;
            }
            client.virtual_memory.is_team(client, object);
            seen.settle(client);
            // Memory that was never charged is none of ours.
            let Some(gpu) = client.virtual_memory.gpu_of(memory) else {
                return;
            };
            let (place, what) = ((gpu, at as u64), (bytes as u64, memory));
            let bound = client.virtual_memory.with_team(object, |team| {
                team.bound.insert(place, what);
                team.key()
            });
            if let Some(key) = bound {
                client.virtual_memory.add_one(memory);
                keep(client, key, memory);
            }
        },
    )
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
                if result == CUDA_SUCCESS {
                    client.virtual_memory.unkeep(client, place.0, what.1); // before it may be let go
                } else {
                    client.virtual_memory.with_team(object, |team| team.bound.insert(place, what)); // still bound
                }
                client.virtual_memory.settle(client, what.1, gone, result);
            }
        },
    )
}
