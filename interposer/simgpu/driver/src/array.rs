//! Arrays and mipmapped arrays: rows in device memory, reached through a handle only.

pub mod sparse;

use std::ffi::*;

use weir_abi::types::*;

use crate::api::Driver;
use crate::edge::{Answer, get, put};
use crate::registry::{Handle, Registry};
use crate::{capture, context, memory};

static ARRAYS: Registry<Array> = Registry::new(8, CUDA_ERROR_INVALID_HANDLE);
static MIPMAPS: Registry<Vec<Handle>> = Registry::new(9, CUDA_ERROR_INVALID_HANDLE);
/// Flags of an array under which `depth` counts layers: layered, or a cube map.
const LAYERED: c_uint = 0x01 | 0x04;

/// An array.
pub struct Array {
    shape: CUDA_ARRAY3D_DESCRIPTOR,
    address: u64,
    row_bytes: usize,
}

/// The array behind a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn of(handle: CUarray) -> Answer<&'static Array> {
    ARRAYS.get(handle)
}

impl Array {
    /// Where its first row begins.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes of an element, all its channels.
    pub fn element_bytes(&self) -> usize {
        element_bytes(&self.shape)
    }

    /// Address, bytes of a row, rows of a slice.
    pub fn strides(&self) -> (u64, usize, usize) {
        (self.address, self.row_bytes, self.shape.height.max(1))
    }
}

/// Bytes of one channel of this format; 0 for a format that is not simulated.
fn channel_bytes(format: CUarray_format) -> usize {
    match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        _ => 0,
    }
}

fn element_bytes(shape: &CUDA_ARRAY3D_DESCRIPTOR) -> usize {
    channel_bytes(shape.format) * shape.num_channels as usize
}

/// Bytes of an array of this shape, or of a level.
fn bytes_of(shape: &CUDA_ARRAY3D_DESCRIPTOR) -> Answer<usize> {
    let sides = [shape.width, shape.height.max(1), shape.depth.max(1)];
    let elements = sides.iter().try_fold(1usize, |product, side| product.checked_mul(*side));
    elements.and_then(|n| n.checked_mul(element_bytes(shape))).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// An array, or a level: rows, with device memory unless memory is mapped to it.
fn create(shape: CUDA_ARRAY3D_DESCRIPTOR) -> Answer<Handle> {
    let context = context::current()?;
    capture::forbid_unsafe()?;
    let element = element_bytes(&shape);
    if element == 0 || ![1, 2, 4].contains(&shape.num_channels) || shape.width == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = bytes_of(&shape)?;
    let address = match shape.flags & sparse::MAPPED {
        0 => memory::allocate(context, bytes)?,
        _ => memory::reserve(context, bytes)?,
    };
    Ok(ARRAYS.insert(Array { shape, address, row_bytes: shape.width * element })?.0)
}

fn create_alone(shape: CUDA_ARRAY3D_DESCRIPTOR) -> Answer<CUarray> {
    let array = create(shape)?;
    sparse::enter(array, shape, 1, context::current()?);
    Ok(array.raw())
}

fn destroy(handle: CUarray) -> Answer {
    memory::free(ARRAYS.remove(handle)?.address)
}

/// The shape of a mipmap's level: each side halves, layers stay.
fn level_of(shape: CUDA_ARRAY3D_DESCRIPTOR, level: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let halve = |side: usize| if side == 0 { 0 } else { (side >> level.min(63)).max(1) };
    let depth = if shape.flags & LAYERED != 0 { shape.depth } else { halve(shape.depth) };
    CUDA_ARRAY3D_DESCRIPTOR { width: halve(shape.width), height: halve(shape.height), depth, ..shape }
}

fn create_mipmap(shape: CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) -> Answer<CUmipmappedArray> {
    let (mut made, levels) = (Vec::new(), levels.clamp(1, 32));
    for level in 0..levels {
        match create(level_of(shape, level)) {
            Ok(array) => made.push(array),
            Err(refusal) => {
                made.iter().try_for_each(|array: &Handle| destroy(array.raw()))?;
                return Err(refusal);
            }
        }
    }
    let mipmap = MIPMAPS.insert(made)?.0;
    sparse::enter(mipmap, shape, levels, context::current()?);
    Ok(mipmap.raw())
}

impl Driver {
    pub fn cuArrayCreate_v2(out: *mut CUarray, shape: *const CUDA_ARRAY_DESCRIPTOR) -> Answer {
        let CUDA_ARRAY_DESCRIPTOR { width, height, format, num_channels } = get(shape)?;
        put(
            out,
            create(CUDA_ARRAY3D_DESCRIPTOR { width, height, depth: 0, format, num_channels, flags: 0 })?
                .raw(),
        )
    }

    pub fn cuArrayGetDescriptor_v2(out: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray) -> Answer {
        let CUDA_ARRAY3D_DESCRIPTOR { width, height, format, num_channels, .. } = of(array)?.shape;
        put(out, CUDA_ARRAY_DESCRIPTOR { width, height, format, num_channels })
    }

    pub fn cuArray3DCreate_v2(out: *mut CUarray, shape: *const CUDA_ARRAY3D_DESCRIPTOR) -> Answer {
        put(out, create_alone(get(shape)?)?)
    }

    pub fn cuArray3DGetDescriptor_v2(out: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray) -> Answer {
        put(out, of(array)?.shape)
    }

    pub fn cuArrayDestroy(array: CUarray) -> Answer {
        destroy(array)?;
        sparse::forget(array)
    }

    pub fn cuMipmappedArrayCreate(
        out: *mut CUmipmappedArray,
        shape: *const CUDA_ARRAY3D_DESCRIPTOR,
        levels: c_uint,
    ) -> Answer {
        put(out, create_mipmap(get(shape)?, levels)?)
    }

    pub fn cuMipmappedArrayGetLevel(out: *mut CUarray, mipmap: CUmipmappedArray, level: c_uint) -> Answer {
        put(
            out,
            MIPMAPS
                .get(mipmap)?
                .get(level as usize)
                .map(|array| array.raw())
                .ok_or(CUDA_ERROR_INVALID_VALUE)?,
        )
    }

    pub fn cuMipmappedArrayDestroy(mipmap: CUmipmappedArray) -> Answer {
        MIPMAPS.remove(mipmap)?.iter().try_for_each(|array| destroy(array.raw()))?;
        sparse::forget(mipmap)
    }
}
