//! Memory of other interfaces (Vulkan and its kin). Whoever has made it is charged for it, by whatever watches over that
//! interface; here it is shown as shared.

use std::ffi::{c_uint, c_void};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::shares::{self, Opened, Place};
use crate::guard::guard;
use crate::thread;

/// The part of `CUDA_EXTERNAL_MEMORY_HANDLE_DESC` that we read.
#[derive(Clone, Copy)]
#[repr(C)]
struct HandleDesc {
    kind: c_uint,
    handle: [u64; 2],
    size: u64,
}

/// It was imported into the current context.
pub fn import(
    memory: *mut CUexternalMemory,
    desc: *const c_void,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |_| {
            // SAFETY: the caller passes a description or null; the driver reads the same fields.
            Ok(unsafe { desc.cast::<HandleDesc>().as_ref() }.map(|desc| Bytes(desc.size)))
        },
        call,
        |client, bytes, result| {
            let (CUDA_SUCCESS, Some(bytes), false) = (result, bytes, memory.is_null()) else { return };
            let Some(current) = thread::with(|thread| thread.find_current(client)) else { return };
            // SAFETY: the driver has just written it.
            let handle = unsafe { *memory }.addr() as u64;
            // A key that nobody else has: whoever owns the memory is no process of ours.
            let key = shares::key_of(&[handle, bytes.0].map(u64::to_le_bytes).concat());
            let opened = Opened::note(current.gpu, key, bytes, MemoryKind::Virtual);
            client.shares.enter(Place::External(handle), opened);
        },
    )
}

/// It is destroyed.
pub fn destroy(memory: CUexternalMemory, call: impl FnOnce() -> CUresult) -> CUresult {
    shares::close(Place::External(memory.addr() as u64), call)
}
