//! Host memory that stands for device memory: a device address is an address of this process, reserved
//! without commitment, so that what nobody touches costs nothing.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use weir_abi::types::*;

use crate::edge::Answer;

/// Everything here is mapped in whole pages.
const PAGE: usize = 4096;

fn page_bytes(bytes: usize) -> Answer<usize> {
    bytes.checked_next_multiple_of(PAGE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

fn map(at: u64, bytes: usize, protection: i32, flags: i32, file: i32, offset: u64) -> Answer<u64> {
    let offset = libc::off_t::try_from(offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let at = ptr::without_provenance_mut(usize::try_from(at).map_err(|_| CUDA_ERROR_INVALID_VALUE)?);
    // SAFETY: a fresh mapping, or (MAP_FIXED) one over a range that this driver has reserved itself.
    let address = unsafe { libc::mmap(at, page_bytes(bytes)?, protection, flags, file, offset) };
    if address == libc::MAP_FAILED { Err(CUDA_ERROR_OUT_OF_MEMORY) } else { Ok(address.addr() as u64) }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Maps fresh zeroed memory and answers its address.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` when the address space is full.
pub fn take(bytes: usize) -> Answer<u64> {
    map(0, bytes, READ_WRITE, ANONYMOUS, -1, 0)
}

/// Gives memory from [`take`] or [`reserve`] back.
pub fn give_back(address: u64, bytes: usize) {
    let (Ok(at), Ok(bytes)) = (usize::try_from(address), page_bytes(bytes)) else { return };
    // SAFETY: a mapping of this file, which its owner has just taken out of its books.
    unsafe { libc::munmap(ptr::without_provenance_mut(at), bytes) };
}

/// Reserves addresses that nothing may touch yet, aligned to `alignment` (a power of two).
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn reserve(bytes: usize, alignment: usize) -> Answer<u64> {
    let padded = bytes.checked_add(alignment).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let start = map(0, padded, libc::PROT_NONE, ANONYMOUS, -1, 0)?;
    let address = start.next_multiple_of(alignment as u64);
    let before = usize::try_from(address - start).unwrap_or(0);
    if before > 0 {
        give_back(start, before);
    }
    give_back(address + page_bytes(bytes)? as u64, page_bytes(padded)? - before - page_bytes(bytes)?);
    Ok(address)
}

/// Lays a file's memory over reserved addresses; nothing may touch it before [`allow`].
pub fn lay(address: u64, bytes: usize, file: i32, offset: u64) -> Answer {
    map(address, bytes, libc::PROT_NONE, libc::MAP_SHARED | libc::MAP_FIXED, file, offset).map(drop)
}

/// Maps a file's memory where there is room, ready for use.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn lay_anywhere(bytes: usize, file: i32) -> Answer<u64> {
    map(0, bytes, READ_WRITE, libc::MAP_SHARED, file, 0)
}

/// Takes a file's memory away again; the addresses stay reserved.
pub fn lift(address: u64, bytes: usize) -> Answer {
    map(address, bytes, libc::PROT_NONE, ANONYMOUS | libc::MAP_FIXED, -1, 0).map(drop)
}

/// Sets whether a range may be read and written.
pub fn allow(address: u64, bytes: usize, flags: CUmemAccess_flags) -> Answer {
    let protection = match flags {
        CU_MEM_ACCESS_FLAGS_PROT_NONE => libc::PROT_NONE,
        CU_MEM_ACCESS_FLAGS_PROT_READ => libc::PROT_READ,
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE => READ_WRITE,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let at = usize::try_from(address).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the range lies in a reservation of this driver, which the caller has looked up.
    let failed =
        unsafe { libc::mprotect(ptr::without_provenance_mut(at), page_bytes(bytes)?, protection) } != 0;
    if failed { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// Fresh zeroed memory in a file of its own, which can be mapped elsewhere and by other processes.
///
/// # Errors
/// `CUDA_ERROR_OPERATING_SYSTEM` without descriptors, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn file(bytes: usize) -> Answer<OwnedFd> {
    // SAFETY: the name is a C string; the descriptor answered is ours alone.
    let file = unsafe {
        match libc::memfd_create(c"weir-simgpu-memory".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return Err(CUDA_ERROR_OPERATING_SYSTEM),
            file => OwnedFd::from_raw_fd(file),
        }
    };
    let length = libc::off_t::try_from(bytes).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    // SAFETY: a descriptor that we own.
    match unsafe { libc::ftruncate(file.as_raw_fd(), length) } {
        0 => Ok(file),
        _ => Err(CUDA_ERROR_OUT_OF_MEMORY),
    }
}
