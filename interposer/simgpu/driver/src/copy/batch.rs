//! Many copies by one call (`cuMemcpyBatchAsync`, `cuMemcpy3DBatchAsync`): all are checked before the first one is given to the stream.

use std::ffi::*;

use weir_abi::types::*;

use super::{Copy, Place, strided};
use crate::api::Driver;
use crate::edge::{Answer, list, put_optional};
use crate::{array, stream};

/// `CUmemcpyAttributes`: how the copies from one index on are to be made.
#[derive(Clone, Copy)]
#[repr(C)]
struct Attributes {
    /// When the source is read: `CUmemcpySrcAccessOrder`, 1 to 3. Here always in the stream's order, which each
    /// of them allows.
    source_order: c_uint,
    /// Where source and destination lie in managed memory, type and number: no more than hints.
    _hints: [[c_uint; 2]; 2],
    _flags: c_uint,
}

const _: () = assert!(size_of::<Attributes>() == 24);

/// One end of a box: `CUmemcpy3DOperand`. What the words mean depends on the kind.
#[derive(Clone, Copy)]
#[repr(C)]
struct Operand {
    kind: c_uint, // 1: a pointer, 2: an array
    handle: u64,
    words: [usize; 3], // elements of a row, rows of a layer and a hint; or the offset in elements and rows
}

/// A box to copy, its extent in elements: `CUDA_MEMCPY3D_BATCH_OP`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Solid {
    from: Operand,
    to: Operand,
    extent: [usize; 3],
    source_order: c_uint,
    _flags: c_uint,
}

const _: () = assert!(size_of::<Operand>() == 40 && size_of::<Solid>() == 112);

impl Operand {
    fn array(&self) -> CUarray {
        std::ptr::with_exposed_provenance_mut(usize::try_from(self.handle).unwrap_or(0))
    }

    /// Bytes of an element; a pointer takes the other end's, or has bytes.
    fn element_bytes(&self) -> Answer<Option<usize>> {
        if self.kind == 2 { Ok(Some(array::of(self.array())?.element_bytes())) } else { Ok(None) }
    }

    fn place(&self, element: usize) -> Answer<Place> {
        let (host, [x, y, z]) = (std::ptr::null_mut(), self.words);
        Ok(match self.kind {
            1 => Place {
                kind: CU_MEMORYTYPE_UNIFIED,
                host,
                device: self.handle,
                array: std::ptr::null_mut(),
                pitch: [x.saturating_mul(element), y],
                offset: [0; 3],
            },
            2 => Place {
                kind: CU_MEMORYTYPE_ARRAY,
                host,
                device: 0,
                array: self.array(),
                pitch: [0; 2],
                offset: [x.saturating_mul(element), y, z],
            },
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }
}

impl Solid {
    fn copy(&self) -> Answer<Copy> {
        if self.extent.contains(&0) || !(1..=3).contains(&self.source_order) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let elements = [self.from.element_bytes()?, self.to.element_bytes()?];
        let element = elements.into_iter().flatten().next().unwrap_or(1);
        if elements.into_iter().flatten().any(|other| other != element) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let [width, height, depth] = self.extent;
        let width = width.checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let side = |end: &Operand| strided(&end.place(element)?, [width, height, depth]);
        Ok(Copy { to: side(&self.to)?, from: side(&self.from)?, width, height, depth })
    }
}

/// All boxes of a call.
fn solids(
    count: usize,
    boxes: *mut c_void,
    failed: *mut usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    put_optional(failed, usize::MAX);
    if count == 0 || flags != 0 || stream::of(stream)?.is_legacy() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let boxes = list(boxes.cast_const().cast::<Solid>(), count)?.iter().enumerate();
    let copies: Result<Vec<Copy>, _> =
        boxes.map(|(at, solid)| solid.copy().inspect_err(|_| put_optional(failed, at))).collect();
    copies?.into_iter().try_for_each(|copy| copy.later(stream))
}

/// The arrays of a call.
struct Batch {
    to: *const CUdeviceptr,
    from: *const CUdeviceptr,
    bytes: *const usize,
    count: usize,
    attributes: *const c_void,
    first_of: *const usize,
    kinds: usize,
}

impl Batch {
    /// The attributes must begin at the first copy and go on in ascending order.
    fn check(&self) -> Answer {
        let attributes = list(self.attributes.cast::<Attributes>(), self.kinds)?;
        let first_of = list(self.first_of, self.kinds)?;
        let ordered = first_of.first() == Some(&0)
            && first_of.is_sorted_by(|one, next| one < next)
            && first_of.last() < Some(&self.count);
        let known = attributes.iter().all(|attributes| (1..=3).contains(&attributes.source_order));
        if ordered && known { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }

    /// The copies, or the number of the first one that cannot be made.
    fn copies(&self) -> Answer<Result<Vec<Copy>, (usize, CUresult)>> {
        let (to, from) = (list(self.to, self.count)?, list(self.from, self.count)?);
        let sizes = list(self.bytes, self.count)?.iter().enumerate();
        let copy =
            |(at, bytes): (usize, &usize)| Copy::unified(to[at], from[at], *bytes).map_err(|code| (at, code));
        Ok(sizes.map(copy).collect())
    }

    fn give_to(&self, stream: CUstream, failed: *mut usize) -> Answer {
        // Until one copy is known to be at fault, the call as a whole is.
        put_optional(failed, usize::MAX);
        self.check()?;
        if stream::of(stream)?.is_legacy() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let copies = self.copies()?.map_err(|(at, code)| {
            put_optional(failed, at);
            code
        })?;
        copies.into_iter().try_for_each(|copy| copy.later(stream))
    }
}

impl Driver {
    pub fn cuMemcpyBatchAsync(
        to: *mut CUdeviceptr,
        from: *mut CUdeviceptr,
        bytes: *mut usize,
        count: usize,
        attributes: *mut c_void,
        first_of: *mut usize,
        kinds: usize,
        failed: *mut usize,
        stream: CUstream,
    ) -> Answer {
        Batch { to, from, bytes, count, attributes, first_of, kinds }.give_to(stream, failed)
    }

    pub fn cuMemcpyBatchAsync_v2(
        to: *mut CUdeviceptr,
        from: *mut CUdeviceptr,
        bytes: *mut usize,
        count: usize,
        attributes: *mut c_void,
        first_of: *mut usize,
        kinds: usize,
        stream: CUstream,
    ) -> Answer {
        Batch { to, from, bytes, count, attributes, first_of, kinds }.give_to(stream, std::ptr::null_mut())
    }
    pub fn cuMemcpy3DBatchAsync(
        count: usize,
        boxes: *mut c_void,
        failed: *mut usize,
        flags: c_ulonglong,
        stream: CUstream,
    ) -> Answer {
        solids(count, boxes, failed, flags, stream)
    }

    pub fn cuMemcpy3DBatchAsync_v2(
        count: usize,
        boxes: *mut c_void,
        flags: c_ulonglong,
        stream: CUstream,
    ) -> Answer {
        solids(count, boxes, std::ptr::null_mut(), flags, stream)
    }
}
