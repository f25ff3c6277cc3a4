//! Physical memory that goes from one process to another by a handle of the system. Who is charged, is told in [`shares`].

use std::ffi::{c_int, c_void};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::{multicast, shares, vmm};
use crate::driver;
use crate::guard::after_success;

/// A handle for other processes was made.
pub fn export(
    out: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    after_success(call, |client| {
        if out.is_null() {
            return;
        }
        let file = (kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR).then(|| {
            // SAFETY: for this kind the driver has just written a descriptor.
            unsafe { out.cast::<c_int>().read() }
        });
        let by_file = file.and_then(by_file);
        if multicast::export(client, handle, by_file) {
            return;
        }
        let Some((gpu, bytes)) = client.virtual_memory.charged(handle) else { return };
        let Some(gpu) = client.gpus.get(gpu) else { return };
        let key = by_file.unwrap_or_else(|| by_size(bytes));
        client.shares.exported(gpu, handle, key, bytes, MemoryKind::Virtual);
    })
}

/// Another process's memory gets a handle here.
pub fn import(
    handle: *mut CUmemGenericAllocationHandle,
    os_handle: *mut c_void,
    kind: CUmemAllocationHandleType,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    after_success(call, |client| {
        if handle.is_null() {
            return;
        }
        // SAFETY: the driver has just written it; all-zero properties are valid ones.
        let (handle, mut prop) = unsafe { (*handle, std::mem::zeroed::<CUmemAllocationProp>()) };
        let file =
            (kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR).then(|| c_int::try_from(os_handle.addr()));
        let key = file.and_then(Result::ok).and_then(by_file);
        if driver::properties(&raw mut prop, handle) != CUDA_SUCCESS {
            // What has none is a multicast object. One that has them shows what it is when a device joins.
            return multicast::import(client, handle, key);
        }
        let Some(gpu) = vmm::device_of(client, &raw const prop) else { return };
        client.virtual_memory.enter_foreign(handle, gpu.index, key);
    })
}

/// The key of memory that has a file of its own.
fn by_file(file: c_int) -> Option<u64> {
    // SAFETY: `fstat` fills the structure that `zeroed` makes a valid start of.
    let (status, failed) = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let failed = libc::fstat(file, &raw mut status) != 0;
        (status, failed)
    };
    let own = !failed && status.st_mode & libc::S_IFMT == libc::S_IFREG;
    own.then(|| shares::key_of(&[status.st_dev.to_le_bytes(), status.st_ino.to_le_bytes()].concat()))
}

/// The key of memory that only its size tells from other.
pub fn by_size(bytes: Bytes) -> u64 {
    shares::key_of(&bytes.0.to_le_bytes())
}
