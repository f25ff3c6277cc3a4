//! Sparse arrays, and arrays whose memory is mapped later: they have addresses and no device memory. Physical memory is
//! mapped to their tiles, and lives for as long as it lies in one.
//!
//! The reference of `cuMemMapArrayAsync` says which lists are refused; that nothing of such a list is done is our reading. A
//! change happens with the call, not in the stream's turn. What a client copies into an array stays in host memory of the
//! array's own: nobody sees one tile through two arrays.

use std::collections::BTreeMap;
use std::ffi::*;
use std::sync::Mutex;

use weir_abi::types::*;

use super::{LAYERED, MIPMAPS, bytes_of, element_bytes, level_of, of};
use crate::api::Driver;
use crate::context::Context;
use crate::edge::{Answer, list, put};
use crate::registry::Handle;
use crate::{locked, stream, vmm};

/// Flags of an array to which memory is mapped.
pub const MAPPED: c_uint = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
/// Bytes of a tile, as a power of two: the standard block of sparse images, 64 KiB for every format.
const TILE_BITS: u32 = 16;

static ARRAYS: Mutex<BTreeMap<usize, Sparse>> = Mutex::new(BTreeMap::new());

/// An array or a mipmapped array to which memory is mapped.
struct Sparse {
    shape: CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
    context: &'static Context,
    tiles: BTreeMap<Place, CUmemGenericAllocationHandle>,
}

/// Where a tile lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Level { level: u32, layer: u32, at: [usize; 3] },
    Tail { layer: u32, at: u64 },
    Whole,
}

/// One entry of a list.
struct Change {
    array: usize,
    places: Vec<Place>,
    memory: Option<CUmemGenericAllocationHandle>,
}

/// A new array, if it is one of these.
pub fn enter(array: Handle, shape: CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint, context: &'static Context) {
    if shape.flags & MAPPED != 0 {
        let sparse = Sparse { shape, levels, context: context.root(), tiles: BTreeMap::new() };
        locked(&ARRAYS).insert(array.raw().addr(), sparse);
    }
}

/// An array goes: what lies in it is let go.
pub fn forget(array: *mut c_void) -> Answer {
    let gone = locked(&ARRAYS).remove(&array.addr());
    gone.map_or(Ok(()), Sparse::empty)
}

/// The same for all arrays of a context.
pub fn forget_context(context: &Context) -> Answer {
    let of_context = |sparse: &Sparse| std::ptr::eq(sparse.context, context);
    let gone: Vec<_> = locked(&ARRAYS).extract_if(.., |_, sparse| of_context(sparse)).collect();
    gone.into_iter().try_for_each(|(_, sparse)| sparse.empty())
}

/// Sides of a tile in elements: as near to each other as powers of two can be, the longer ones first.
fn tile_sides(shape: &CUDA_ARRAY3D_DESCRIPTOR) -> [usize; 3] {
    let bits = TILE_BITS.saturating_sub(element_bytes(shape).max(1).ilog2());
    let flat = shape.depth == 0 || shape.flags & LAYERED != 0;
    let width = bits.div_ceil(if flat { 2 } else { 3 });
    let height = if flat { bits - width } else { (bits - width).div_ceil(2) };
    [1 << width, 1 << height, 1 << (bits - width - height)]
}

fn sides(shape: &CUDA_ARRAY3D_DESCRIPTOR) -> [usize; 3] {
    let depth = if shape.flags & LAYERED == 0 { shape.depth } else { 1 };
    [shape.width, shape.height, depth.max(1)]
}

impl Sparse {
    fn empty(self) -> Answer {
        self.tiles.into_values().try_for_each(vmm::let_go)
    }

    fn layers(&self) -> usize {
        if self.shape.flags & LAYERED == 0 { 1 } else { self.shape.depth }
    }

    /// The first level that is smaller than a tile; none if there is no such level.
    fn tail(&self) -> Option<c_uint> {
        let small = |level: &c_uint| {
            let (sides, tile) = (sides(&level_of(self.shape, *level)), tile_sides(&self.shape));
            sides.iter().zip(tile).any(|(side, tile)| *side < tile)
        };
        (0..self.levels).find(small)
    }

    /// Bytes of the levels that are smaller than a tile, in one layer, in whole tiles.
    fn tail_bytes(&self) -> Answer<u64> {
        let Some(first) = self.tail() else { return Ok(0) };
        let shape = CUDA_ARRAY3D_DESCRIPTOR { depth: self.shape.depth / self.layers(), ..self.shape };
        let bytes = (first..self.levels).map(|level| bytes_of(&level_of(shape, level)));
        let bytes = bytes.sum::<Answer<usize>>()? as u64;
        Ok(bytes.next_multiple_of(1 << TILE_BITS))
    }

    fn properties(&self, is_mipmap: bool) -> Answer<CUDA_ARRAY_SPARSE_PROPERTIES> {
        if self.shape.flags & CUDA_ARRAY3D_SPARSE == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let tile = tile_sides(&self.shape).map(|side| c_uint::try_from(side).unwrap_or(c_uint::MAX));
        let [tile_width, tile_height, tile_depth] = tile;
        let (first, size) = if is_mipmap { (self.tail().unwrap_or(0), self.tail_bytes()?) } else { (0, 0) };
        Ok(CUDA_ARRAY_SPARSE_PROPERTIES {
            tile_width,
            tile_height,
            tile_depth,
            miptail_first_level: first,
            miptail_size: size,
            ..Default::default()
        })
    }

    /// The tiles that an entry means.
    fn places(&self, info: &CUarrayMapInfo, is_mipmap: bool) -> Answer<Vec<Place>> {
        if self.shape.height == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if self.shape.flags & CUDA_ARRAY3D_DEFERRED_MAPPING != 0 {
            return Ok(vec![Place::Whole]);
        }
        match info.subresource_type {
            CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL => {
                // SAFETY: the type says which member holds; every bit pattern is a value of either.
                self.of_level(&unsafe { info.subresource.sparse_level }, is_mipmap)
            }
            // SAFETY: as above.
            CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL => self.of_tail(&unsafe { info.subresource.miptail }),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn of_level(&self, part: &CUarrayMapInfo_level, is_mipmap: bool) -> Answer<Vec<Place>> {
        let CUarrayMapInfo_level { level, layer, .. } = *part;
        let in_tail = is_mipmap && self.tail().is_some_and(|first| level >= first);
        if level >= self.levels || layer as usize >= self.layers() || in_tail {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (sides, tile) = (sides(&level_of(self.shape, level)), tile_sides(&self.shape));
        let offsets = [part.offset_x, part.offset_y, part.offset_z].map(|n| n as usize);
        let extents = [part.extent_width, part.extent_height, part.extent_depth].map(|n| n as usize);
        let mut spans = [(0, 0); 3];
        for (axis, span) in spans.iter_mut().enumerate() {
            let (offset, end) = (offsets[axis], offsets[axis] + extents[axis]);
            let whole = offset.is_multiple_of(tile[axis]) && end.is_multiple_of(tile[axis]) && end > offset;
            if !whole || end > sides[axis].next_multiple_of(tile[axis]) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            *span = (offset / tile[axis], end / tile[axis]);
        }
        let [along_x, along_y, along_z] = spans.map(|(first, end)| first..end);
        let rows = along_z.flat_map(|z| along_y.clone().map(move |y| (z, y)));
        let tiles = rows.flat_map(|(z, y)| along_x.clone().map(move |x| [x, y, z]));
        Ok(tiles.map(|at| Place::Level { level, layer, at }).collect())
    }

    fn of_tail(&self, part: &CUarrayMapInfo_miptail) -> Answer<Vec<Place>> {
        let CUarrayMapInfo_miptail { layer, offset, size } = *part;
        let end = offset.checked_add(size).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let whole = [offset, size].iter().all(|n| n.is_multiple_of(1 << TILE_BITS)) && size > 0;
        if !whole || end > self.tail_bytes()? || layer as usize >= self.layers() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok((offset >> TILE_BITS..end >> TILE_BITS).map(|at| Place::Tail { layer, at }).collect())
    }
}

impl Change {
    fn of(info: &CUarrayMapInfo, device: CUdevice) -> Answer<Self> {
        // SAFETY: both members are a pointer.
        let array = unsafe { info.resource.array };
        let is_mipmap = match info.resource_type {
            CU_RESOURCE_TYPE_ARRAY => of(array).map(|_| false)?,
            CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => MIPMAPS.get(array).map(|_| true)?,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        if info.flags != 0 || info.reserved != [0; 2] || info.device_bit_mask != 1 << device {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let arrays = locked(&ARRAYS);
        let sparse = arrays.get(&array.addr()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let places = sparse.places(info, is_mipmap)?;
        let memory = match (info.mem_operation_type, info.mem_handle_type, info.mem_handle) {
            (CU_MEM_OPERATION_TYPE_MAP, CU_MEM_HANDLE_TYPE_GENERIC, memory) => {
                let whole = bytes_of(&sparse.shape)? as u64;
                let bytes = if places == [Place::Whole] { whole } else { (places.len() as u64) << TILE_BITS };
                vmm::check_tile_pool(memory, device, info.offset, bytes)?;
                Some(memory)
            }
            (CU_MEM_OPERATION_TYPE_UNMAP, _, 0) => None,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        Ok(Self { array: array.addr(), places, memory })
    }

    fn happen(self) -> Answer {
        let mut arrays = locked(&ARRAYS);
        let tiles = &mut arrays.get_mut(&self.array).ok_or(CUDA_ERROR_INVALID_HANDLE)?.tiles;
        for place in self.places {
            let before = match self.memory {
                Some(memory) => {
                    vmm::hold(memory)?;
                    tiles.insert(place, memory)
                }
                None => tiles.remove(&place),
            };
            before.map_or(Ok(()), vmm::let_go)?;
        }
        Ok(())
    }
}

fn properties_of(array: *mut c_void, is_mipmap: bool) -> Answer<CUDA_ARRAY_SPARSE_PROPERTIES> {
    locked(&ARRAYS).get(&array.addr()).ok_or(CUDA_ERROR_INVALID_VALUE)?.properties(is_mipmap)
}

impl Driver {
    pub fn cuMemMapArrayAsync(infos: *mut CUarrayMapInfo, count: c_uint, stream: CUstream) -> Answer {
        let device = stream::of(stream)?.context.device;
        let infos = list(infos.cast_const(), count as usize)?;
        let changes = infos.iter().map(|info| Change::of(info, device)).collect::<Answer<Vec<_>>>()?;
        changes.into_iter().try_for_each(Change::happen)
    }

    pub fn cuArrayGetSparseProperties(out: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray) -> Answer {
        of(array)?;
        put(out, properties_of(array, false)?)
    }

    pub fn cuMipmappedArrayGetSparseProperties(
        out: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
        mipmap: CUmipmappedArray,
    ) -> Answer {
        MIPMAPS.get(mipmap)?;
        put(out, properties_of(mipmap, true)?)
    }
}
