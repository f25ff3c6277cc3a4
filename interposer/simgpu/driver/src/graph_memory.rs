//! Memory of graphs: an allocation node has its address from the start, and takes memory when it runs.
//!
//! A device keeps what its graphs have once taken until it is trimmed, as drivers do.

use std::ffi::*;
use std::sync::Mutex;

use weir_abi::types::*;

use crate::api::Driver;
use crate::context::Context;
use crate::edge::{Answer, get, put};
use crate::memory::{self, Allocation, GRANULE, Kind};
use crate::{backing, device, locked, session};

/// Memory behind graphs comes in multiples of this, bytes: the granularity of physical memory.
const GRANULARITY: usize = 2 << 20;

static USE: [Mutex<Use>; device::MOST] =
    [const { Mutex::new(Use { used: [0; 2], reserved: [0; 2] }) }; device::MOST];

/// What the graphs of one device use and have reserved, bytes: now, and at the highest.
#[derive(Clone, Copy)]
struct Use {
    used: [usize; 2],
    reserved: [usize; 2],
}

/// Picks the address for an allocation node.
pub fn plan(context: &'static Context, bytes: usize) -> Answer<CUdeviceptr> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let charged = bytes.checked_next_multiple_of(GRANULE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let address = backing::take(bytes)?;
    memory::enter(address, bytes, charged, context, Kind::Graph);
    Ok(address)
}

/// Sees to it that a graph's nodes find memory, before any of them runs: `nodes` are its allocations and frees, in order.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`; nothing has changed then.
pub fn back(nodes: impl Iterator<Item = Node>) -> Answer {
    let mut needs = [(0usize, 0usize); device::MOST]; // now, and at the most
    for node in nodes {
        let (Node::Takes(address) | Node::Gives(address)) = node;
        let Allocation { context, charged, .. } = memory::require(address, 0)?;
        let (now, most) = &mut needs[device::check(context.device)?];
        match node {
            Node::Takes(_) => *now += charged,
            Node::Gives(_) => *now = now.saturating_sub(charged),
        }
        *most = (*most).max(*now);
    }
    for (place, (_, most)) in needs.into_iter().enumerate().filter(|(_, need)| need.1 > 0) {
        let mut usage = locked(&USE[place]);
        let wanted = (usage.used[0] + most).checked_next_multiple_of(GRANULARITY);
        let wanted = wanted.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        if let Some(more) = wanted.checked_sub(usage.reserved[0]).filter(|more| *more > 0) {
            let device = CUdevice::try_from(place).map_err(|_| CUDA_ERROR_INVALID_DEVICE)?;
            session::current()?.reserve(device, more)?;
            usage.reserved = [wanted, usage.reserved[1].max(wanted)];
        }
    }
    Ok(())
}

/// An allocation or a free node, by its address.
#[derive(Clone, Copy)]
pub enum Node {
    /// Takes memory.
    Takes(CUdeviceptr),
    /// Gives it back.
    Gives(CUdeviceptr),
}

/// The allocation node runs; [`back`] has seen to its memory.
pub fn take(address: CUdeviceptr) -> Answer {
    let Allocation { context, charged, .. } = memory::require(address, 0)?;
    let mut usage = locked(&USE[device::check(context.device)?]);
    let used = usage.used[0] + charged;
    usage.used = [used, usage.used[1].max(used)];
    Ok(())
}

/// The free node runs, or the client frees what a graph has left allocated.
pub fn give_back(address: CUdeviceptr) -> Answer {
    forget(&memory::require(address, 0)?)
}

/// As [`give_back`], for an allocation that is out of the books already.
pub fn forget(allocation: &Allocation) -> Answer {
    let mut usage = locked(&USE[device::check(allocation.context.device)?]);
    usage.used[0] = usage.used[0].saturating_sub(allocation.charged);
    Ok(())
}

impl Driver {
    pub fn cuDeviceGetGraphMemAttribute(
        device: CUdevice,
        which: CUgraphMem_attribute,
        out: *mut c_void,
    ) -> Answer {
        let usage = *locked(&USE[device::check(device)?]);
        let value = match which {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => usage.used[0],
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => usage.used[1],
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => usage.reserved[0],
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => usage.reserved[1],
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        put(out.cast(), value as u64)
    }

    pub fn cuDeviceSetGraphMemAttribute(
        device: CUdevice,
        which: CUgraphMem_attribute,
        value: *mut c_void,
    ) -> Answer {
        let mut usage = locked(&USE[device::check(device)?]);
        match (which, get(value.cast::<u64>().cast_const())?) {
            (CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, 0) => usage.used[1] = usage.used[0],
            (CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, 0) => usage.reserved[1] = usage.reserved[0],
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }

    pub fn cuDeviceGraphMemTrim(device: CUdevice) -> Answer {
        let mut usage = locked(&USE[device::check(device)?]);
        let kept = usage.used[0].next_multiple_of(GRANULARITY);
        let spare = usage.reserved[0].saturating_sub(kept);
        usage.reserved[0] -= spare;
        if spare == 0 { Ok(()) } else { session::current()?.release(device, spare) }
    }
}
