//! Sparse arrays: physical memory that is mapped to parts of an array, which has none of its own. A tile is a reference to
//! its memory like a mapping at an address (`vmm.rs`), until other memory is mapped over it, it is unmapped, or its array is
//! gone. It counts from the call on, not from its turn in the stream, as with a free in stream order.

mod area;

use std::collections::HashMap;
use std::ffi::c_uint;

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::ledger::Entry;
use weir_core::lock::Lock;
use weir_protocol::pages::MemoryKind;

use self::area::{Area, Tile, Tiling};
use super::copy_pieces::list;
use super::memory::Freed;
use super::vmm::Physical;
use crate::driver;
use crate::guard::guard;
use crate::link::Client;

/// What is mapped to the arrays of this process, by the array's handle.
#[derive(Default)]
pub struct Tiles(Lock<HashMap<u64, Tiling>>);

/// A tile that is off the books for a call that takes it off.
pub struct Taken {
    array: u64,
    tile: Tile,
    gone: Option<Physical>,
}

/// One entry of a list: what is to lie in an area from now on, or nothing.
struct Wish {
    array: u64,
    area: Area,
    memory: Option<u64>,
}

/// Maps and unmaps. Whatever lay in an area that the list names is off the books before the call, as with an unmapping of
/// addresses; what is to lie there comes onto them after it, in the order of the list.
pub fn map(infos: *const CUarrayMapInfo, count: c_uint, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| {
            let wishes: Vec<_> = list(infos, count as usize).iter().map(Wish::of).collect();
            let taken = wishes.iter().flat_map(|wish| client.tiles.take(client, wish.array, &wish.area));
            let taken: Vec<_> = taken.collect();
            Ok((wishes, taken))
        },
        call,
        |client, (wishes, taken), result| {
            settle(client, taken, result);
            if result == CUDA_SUCCESS {
                wishes.into_iter().for_each(|wish| wish.come_true(client));
            }
        },
    )
}

/// An array goes, with what it held and what was mapped to it.
pub fn destroy(counted: usize, array: CUarray, call: impl FnOnce() -> CUresult) -> CUresult {
    let key = array.addr() as u64;
    guard(
        |client| Ok((Freed::of(client, counted, key), client.tiles.take_array(client, key))),
        call,
        |client, (freed, taken), result| {
            freed.settle(client, result);
            settle(client, taken, result);
        },
    )
}

/// What is mapped to arrays among what dies with a context, off the books.
pub fn of_estate(client: &Client, held: &[(u64, Entry)]) -> Vec<Taken> {
    let arrays = held.iter().filter(|(_, entry)| entry.kind == MemoryKind::Array);
    arrays.flat_map(|(array, _)| client.tiles.take_array(client, *array)).collect()
}

/// What a call meant that takes tiles off: if the driver agreed, their memory has references less; if not, they lie there
/// still. The last one first: it may have taken the memory off the books, to which the others' references come back.
pub fn settle(client: &Client, taken: Vec<Taken>, result: CUresult) {
    for Taken { array, tile, gone } in taken.into_iter().rev() {
        if result != CUDA_SUCCESS {
            client.tiles.lay(client, array, tile);
        }
        client.virtual_memory.settle(client, tile.memory, gone, result);
    }
}

impl Wish {
    fn of(info: &CUarrayMapInfo) -> Self {
        // SAFETY: both members are a pointer.
        let array = unsafe { info.resource.array };
        let area = if is_sparse(info.resource_type, array) { Area::of(info) } else { Area::WHOLE };
        let memory = (info.mem_operation_type == CU_MEM_OPERATION_TYPE_MAP).then_some(info.mem_handle);
        Self { array: array.addr() as u64, area, memory }
    }

    fn come_true(self, client: &Client) {
        let before = client.tiles.take(client, self.array, &self.area); // by an earlier entry of the same list
        settle(client, before, CUDA_SUCCESS);
        // Memory that was never charged is none of ours.
        let Some(memory) = self.memory.filter(|memory| client.virtual_memory.gpu_of(*memory).is_some())
        else {
            return;
        };
        client.virtual_memory.add_one(memory);
        client.tiles.lay(client, self.array, Tile { area: self.area, memory });
    }
}

/// Whether memory is mapped to parts of an array. The other kind has it deferred, and gets it as a whole, whatever part an
/// entry names.
fn is_sparse(kind: CUresourcetype, array: CUarray) -> bool {
    let mut properties = CUDA_ARRAY_SPARSE_PROPERTIES::default();
    let result = match kind {
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => driver::mipmap_tiles(&raw mut properties, array),
        _ => driver::array_tiles(&raw mut properties, array),
    };
    result == CUDA_SUCCESS
}

impl Tiles {
    /// Lays a tile, which has a reference to its memory.
    fn lay(&self, client: &Client, array: u64, tile: Tile) {
        let others = self.take(client, array, &tile.area); // of another thread, meanwhile
        self.0.lock().entry(array).or_default().lay(tile);
        settle(client, others, CUDA_SUCCESS);
    }

    /// Takes off what lies in an area of an array.
    fn take(&self, client: &Client, array: u64, area: &Area) -> Vec<Taken> {
        let cut = |tiling: &mut Tiling| tiling.cut(area, |memory| client.virtual_memory.add_one(memory));
        let off = self.0.lock().get_mut(&array).map(cut).unwrap_or_default();
        off.into_iter().map(|tile| Taken::of(client, array, tile)).collect()
    }

    /// Takes off all that lies in an array.
    fn take_array(&self, client: &Client, array: u64) -> Vec<Taken> {
        let tiling = self.0.lock().remove(&array).unwrap_or_default();
        tiling.all().map(|tile| Taken::of(client, array, tile)).collect()
    }
}

impl Taken {
    fn of(client: &Client, array: u64, tile: Tile) -> Self {
        Self { array, tile, gone: client.virtual_memory.drop_one(tile.memory) }
    }
}
