//! Many copies by one call (`cuMemcpyBatchAsync`): all are checked before the first one is given to the stream.

use std::ffi::*;

use weir_abi::types::*;

use super::Copy;
use crate::api::Driver;
use crate::edge::{Answer, list, put_optional};
use crate::stream;

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
}
