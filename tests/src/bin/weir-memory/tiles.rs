//! Arrays, those that have no memory of their own among them, and what is mapped to these. Elements are four bytes.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number, size};

use crate::Client;

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, n: impl Fn(usize) -> u64) -> Option<Done> {
    Some(match command {
        "array" => array(client, shape([n(0), n(1), 0], 0)),
        "array_flat" => {
            let (mut array, width, height) = (null_mut(), size(n(0)), size(n(1)));
            let shape = CUDA_ARRAY_DESCRIPTOR { width, height, format: CU_AD_FORMAT_FLOAT, num_channels: 1 };
            (call!(client, cuArrayCreate_v2(&raw mut array, &raw const shape)), vec![number(array)])
        }
        "levels" => {
            let (mut mipmap, shape) = (null_mut(), shape([n(0), n(1), 0], 0));
            let result =
                call!(client, cuMipmappedArrayCreate(&raw mut mipmap, &raw const shape, small(n(2))));
            (result, vec![number(mipmap)])
        }
        "sparse" => array(client, shape([n(0), n(1), n(2)], CUDA_ARRAY3D_SPARSE)),
        "deferred" => array(client, shape([n(0), n(1), 0], CUDA_ARRAY3D_DEFERRED_MAPPING)),
        "array_destroy" => (call!(client, cuArrayDestroy(handle(n(0)))), Vec::new()),
        "sparse_levels" => {
            let (mut mipmap, shape) = (null_mut(), shape([n(0), n(1), 0], CUDA_ARRAY3D_SPARSE));
            let result =
                call!(client, cuMipmappedArrayCreate(&raw mut mipmap, &raw const shape, small(n(2))));
            (result, vec![number(mipmap)])
        }
        "levels_destroy" => (call!(client, cuMipmappedArrayDestroy(handle(n(0)))), Vec::new()),
        "tiling" => tiling(client, handle(n(0)), n(1) != 0),
        // Entries of an array, the row of elements where they begin, the one before which they end, and memory, or 0 to unmap.
        "tiles" => {
            let entries = (0..).map(|entry| 4 * entry).take_while(|at| n(*at) != 0);
            let infos = entries.map(|at| rows(n(at), small(n(at + 1)), small(n(at + 2)), n(at + 3)));
            map(client, infos.collect())
        }
        "tiles_of_thread" => {
            let mut info = rows(n(0), small(n(1)), small(n(2)), n(3));
            (call!(client, cuMemMapArrayAsync_ptsz(&raw mut info, 1, null_mut())), Vec::new())
        }
        // The mipmapped array, its level, and the memory.
        "level" => {
            let info = rows(n(0), 0, TILE, n(2));
            let level = CUarrayMapInfo_level { level: small(n(1)), ..part(0, TILE) };
            let subresource = CUarrayMapInfo_subresource { sparse_level: level };
            let resource_type = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
            map(client, vec![CUarrayMapInfo { resource_type, subresource, ..info }])
        }
        // The mipmapped array, the bytes of its tail, and the memory.
        "tail" => {
            let miptail = CUarrayMapInfo_miptail { layer: 0, offset: 0, size: n(1) };
            let subresource = CUarrayMapInfo_subresource { miptail };
            let (resource_type, subresource_type) =
                (CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL);
            let info = rows(n(0), 0, TILE, n(2));
            map(client, vec![CUarrayMapInfo { resource_type, subresource_type, subresource, ..info }])
        }
        _ => return None,
    })
}

/// Side of a flat tile of four-byte elements, and so the rows of which each tile is.
const TILE: c_uint = 128;

fn small(number: u64) -> c_uint {
    c_uint::try_from(number).unwrap_or(c_uint::MAX)
}

fn shape([width, height, depth]: [u64; 3], flags: c_uint) -> CUDA_ARRAY3D_DESCRIPTOR {
    let (width, height, depth) = (size(width), size(height), size(depth));
    CUDA_ARRAY3D_DESCRIPTOR { width, height, depth, format: CU_AD_FORMAT_FLOAT, num_channels: 1, flags }
}

fn array(client: &Client, shape: CUDA_ARRAY3D_DESCRIPTOR) -> Done {
    let mut array = null_mut();
    (call!(client, cuArray3DCreate_v2(&raw mut array, &raw const shape)), vec![number(array)])
}

/// Sides of a tile, the first level that is smaller, and the bytes of such levels.
fn tiling(client: &Client, array: *mut c_void, is_mipmap: bool) -> Done {
    let mut properties = CUDA_ARRAY_SPARSE_PROPERTIES::default();
    let result = match is_mipmap {
        true => call!(client, cuMipmappedArrayGetSparseProperties(&raw mut properties, array)),
        false => call!(client, cuArrayGetSparseProperties(&raw mut properties, array)),
    };
    let CUDA_ARRAY_SPARSE_PROPERTIES { tile_width, tile_height, tile_depth, .. } = properties;
    let words = [tile_width, tile_height, tile_depth, properties.miptail_first_level].map(u64::from);
    (result, words.into_iter().chain([properties.miptail_size]).collect())
}

/// The left column of tiles, from one row of elements to behind another.
fn part(from: c_uint, end: c_uint) -> CUarrayMapInfo_level {
    CUarrayMapInfo_level {
        level: 0,
        layer: 0,
        offset_x: 0,
        offset_y: from,
        offset_z: 0,
        extent_width: TILE,
        extent_height: end.saturating_sub(from),
        extent_depth: 1,
    }
}

fn rows(array: u64, from: c_uint, end: c_uint, memory: u64) -> CUarrayMapInfo {
    CUarrayMapInfo {
        resource_type: CU_RESOURCE_TYPE_ARRAY,
        resource: CUarrayMapInfo_resource { array: handle(array) },
        subresource_type: CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
        subresource: CUarrayMapInfo_subresource { sparse_level: part(from, end) },
        mem_operation_type: match memory {
            0 => CU_MEM_OPERATION_TYPE_UNMAP,
            _ => CU_MEM_OPERATION_TYPE_MAP,
        },
        mem_handle_type: CU_MEM_HANDLE_TYPE_GENERIC,
        mem_handle: memory,
        offset: 0,
        device_bit_mask: 1,
        flags: 0,
        reserved: [0; 2],
    }
}

fn map(client: &Client, mut infos: Vec<CUarrayMapInfo>) -> Done {
    let (list, count) = (infos.as_mut_ptr(), small(infos.len() as u64));
    (call!(client, cuMemMapArrayAsync(list, count, client.stream)), Vec::new())
}
