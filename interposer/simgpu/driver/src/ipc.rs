//! Device memory for other processes (`cuIpc*`): an allocation that is exported moves into a memfd under its
//! address, and the handle says whose it is and which. It stays charged to its owner.
//!
//! The opener reaches the memfd through `/proc/PID/fd`, so both must be of one user and see each other's
//! processes, as NVIDIA's driver asks too.

use std::ffi::*;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Mutex;

use weir_abi::types::*;

use crate::api::Driver;
use crate::edge::{Answer, put};
use crate::memory::{self, Allocation, Kind};
use crate::session::Obstacle;
use crate::{backing, checkpoint, context, locked};

/// "WEIRIPC1": tells our handles from others.
const MAGIC: u64 = u64::from_le_bytes(*b"WEIRIPC1");

/// What has been exported: address of the allocation and its file, which stays open with the process.
static EXPORTED: Mutex<Vec<(u64, c_int)>> = Mutex::new(Vec::new());

/// The first words of a handle; the rest is zero.
struct Ticket {
    pid: u64,
    file: u64,
    bytes: u64,
}

impl Ticket {
    fn to_handle(&self) -> CUipcMemHandle {
        let mut reserved = [0; 64];
        let words = [MAGIC, self.pid, self.file, self.bytes];
        for (place, word) in reserved.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        CUipcMemHandle { reserved }
    }

    fn from_handle(handle: &CUipcMemHandle) -> Answer<Ticket> {
        let word = |number: usize| {
            let bytes = handle.reserved[number * 8..][..8].try_into();
            bytes.map(u64::from_le_bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)
        };
        if word(0)? != MAGIC {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Ticket { pid: word(1)?, file: word(2)?, bytes: word(3)? })
    }
}

/// Moves an allocation into a file under its own address; what it holds comes along.
fn export(allocation: &Allocation) -> Answer<c_int> {
    let mut exported = locked(&EXPORTED);
    if let Some((_, file)) = exported.iter().find(|(address, _)| *address == allocation.address) {
        return Ok(*file);
    }
    let file = backing::file(allocation.bytes)?;
    let copy = backing::lay_anywhere(allocation.bytes, file.as_raw_fd())?;
    // SAFETY: both are mappings of at least that length: the allocation, and the file's, made above.
    unsafe {
        let (to, from) = (memory::pointer(copy).cast::<u8>(), memory::pointer(allocation.address).cast());
        std::ptr::copy_nonoverlapping(from, to, allocation.bytes);
    }
    backing::give_back(copy, allocation.bytes);
    backing::lay(allocation.address, allocation.bytes, file.as_raw_fd(), 0)?;
    backing::allow(allocation.address, allocation.bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)?;
    let file = file.into_raw_fd();
    exported.push((allocation.address, file));
    checkpoint::count_obstacle(Obstacle::Ipc, true);
    Ok(file)
}

/// An exported allocation is freed: its file goes with it.
pub fn forget(address: u64) {
    let mut exported = locked(&EXPORTED);
    if let Some(place) = exported.iter().position(|entry| entry.0 == address) {
        let (_, file) = exported.swap_remove(place);
        checkpoint::count_obstacle(Obstacle::Ipc, false);
        // SAFETY: a descriptor that `export` has made and nobody else closes.
        unsafe { libc::close(file) };
    }
}

fn open(handle: &CUipcMemHandle) -> Answer<CUdeviceptr> {
    let Ticket { pid, file, bytes } = Ticket::from_handle(handle)?;
    let bytes = usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    if pid == u64::from(std::process::id()) {
        return Err(CUDA_ERROR_INVALID_CONTEXT); // a handle is for other processes
    }
    let context = context::current()?;
    let path = format!("/proc/{pid}/fd/{file}");
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(path);
    let file = opened.map_err(|_| CUDA_ERROR_MAP_FAILED)?;
    let long_enough = file.metadata().is_ok_and(|about| about.len() >= bytes as u64);
    if !long_enough {
        return Err(CUDA_ERROR_MAP_FAILED);
    }
    let address = backing::lay_anywhere(bytes, file.as_raw_fd())?;
    memory::enter(address, bytes, 0, context, Kind::Imported);
    Ok(address)
}

impl Driver {
    pub fn cuIpcGetMemHandle(out: *mut CUipcMemHandle, address: CUdeviceptr) -> Answer {
        let allocation = memory::require(address, 0)?;
        if !matches!(allocation.kind, Kind::Device) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let file = u64::try_from(export(&allocation)?).map_err(|_| CUDA_ERROR_MAP_FAILED)?;
        let pid = u64::from(std::process::id());
        put(out, Ticket { pid, file, bytes: allocation.bytes as u64 }.to_handle())
    }

    pub fn cuIpcOpenMemHandle(out: *mut CUdeviceptr, handle: CUipcMemHandle, _flags: c_uint) -> Answer {
        put(out, open(&handle)?)
    }

    pub fn cuIpcOpenMemHandle_v2(out: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> Answer {
        Self::cuIpcOpenMemHandle(out, handle, flags)
    }

    pub fn cuIpcCloseMemHandle(address: CUdeviceptr) -> Answer {
        memory::release(&memory::remove(address, |kind| matches!(kind, Kind::Imported))?)
    }
}
