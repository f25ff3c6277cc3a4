//! Memory of other interfaces (Vulkan and its kin): imported by a file descriptor, mapped as buffers. It belongs to whoever
//! has made it, and is charged there.

use std::ffi::*;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use weir_abi::types::*;

use crate::api::Driver;
use crate::edge::{Answer, get, put};
use crate::memory::{self, Kind};
use crate::registry::Registry;
use crate::{backing, context};

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`
const OPAQUE_FD: c_uint = 1;

static EXTERNAL: Registry<External> = Registry::new(16, CUDA_ERROR_INVALID_HANDLE);

/// What was imported. Its file stays open with the process: handles are never freed.
struct External {
    file: OwnedFd,
    bytes: usize,
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`
#[derive(Clone, Copy)]
#[repr(C)]
struct HandleDesc {
    kind: c_uint,
    handle: [u64; 2],
    size: u64,
    flags: c_uint,
    reserved: [c_uint; 16],
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`
#[derive(Clone, Copy)]
#[repr(C)]
struct BufferDesc {
    offset: u64,
    size: u64,
    flags: c_uint,
    reserved: [c_uint; 16],
}

/// A number of bytes as the caller passes it.
fn size(bytes: u64) -> Answer<usize> {
    usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)
}

impl Driver {
    pub fn cuImportExternalMemory(out: *mut CUexternalMemory, desc: *const c_void) -> Answer {
        context::current()?;
        let desc: HandleDesc = get(desc.cast())?;
        if desc.kind != OPAQUE_FD {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        // The union's first member, a C int.
        let number =
            c_int::try_from(desc.handle[0] & u64::from(u32::MAX)).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: `fcntl` takes numbers only, and refuses what is no descriptor.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 || desc.size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: a descriptor, whose ownership passes to the driver with this call.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        put(out, EXTERNAL.insert(External { file, bytes: size(desc.size)? })?.0.raw())
    }

    pub fn cuExternalMemoryGetMappedBuffer(
        out: *mut CUdeviceptr,
        external: CUexternalMemory,
        desc: *const c_void,
    ) -> Answer {
        let (external, desc): (_, BufferDesc) = (EXTERNAL.get(external)?, get(desc.cast())?);
        let (offset, bytes) = (size(desc.offset)?, size(desc.size)?);
        if bytes == 0 || offset.checked_add(bytes).is_none_or(|end| end > external.bytes) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let context = context::current()?;
        let address = backing::reserve(bytes, 4096)?;
        backing::lay(address, bytes, external.file.as_raw_fd(), desc.offset)?;
        backing::allow(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)?;
        memory::enter(address, bytes, 0, context, Kind::External);
        put(out, address)
    }

    pub fn cuDestroyExternalMemory(external: CUexternalMemory) -> Answer {
        EXTERNAL.remove(external).map(drop)
    }
}
