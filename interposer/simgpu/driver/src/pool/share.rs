//! Pools for other processes: the chunks of a pool that can be exported lie in files, and a piece is passed on as a place in
//! one of them. As with `cuIpc`, the importer reaches the file through `/proc/PID/fd`.

use std::ffi::*;
use std::os::fd::{AsRawFd, IntoRawFd};

use weir_abi::types::*;

use super::{POOLS, Pool};
use crate::api::Driver;
use crate::edge::{Answer, get, put};
use crate::memory::{self, Allocation, Kind};
use crate::session::Obstacle;
use crate::{backing, checkpoint, context, locked};

/// "WEIRPOO1": tells our data from others.
const MAGIC: u64 = u64::from_le_bytes(*b"WEIRPOO1");
/// Files are mapped in whole pages, bytes.
const PAGE: u64 = 4096;

/// `CUmemPoolPtrExportData`: magic, process, file, offset, length; the rest is zero.
type Data = [u64; 8];

/// Takes an imported piece's mapping away.
pub fn unmap_piece(piece: &Allocation) -> Answer {
    let before = piece.address % PAGE;
    backing::give_back(piece.address - before, piece.bytes + usize::try_from(before).unwrap_or(0));
    Ok(())
}

fn place(address: CUdeviceptr) -> Answer<Data> {
    let piece = memory::require(address, 0)?;
    let Kind::Pool(pool) = piece.kind else { return Err(CUDA_ERROR_INVALID_VALUE) };
    let state = locked(&pool.state);
    let (start, file) = state.files.range(..=piece.address).next_back().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let file = u64::from(file.as_raw_fd().unsigned_abs());
    let (offset, bytes) = (piece.address - start, piece.bytes as u64);
    Ok([MAGIC, u64::from(std::process::id()), file, offset, bytes, 0, 0, 0])
}

fn open(data: &Data) -> Answer<CUdeviceptr> {
    let [magic, pid, file, offset, bytes, ..] = *data;
    if magic != MAGIC {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let context = context::current()?;
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{file}"));
    let file = opened.map_err(|_| CUDA_ERROR_MAP_FAILED)?;
    let before = offset % PAGE;
    let size = |bytes: u64| usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE);
    let start = backing::reserve(size(before + bytes)?, size(PAGE)?)?;
    backing::lay(start, size(before + bytes)?, file.as_raw_fd(), offset - before)?;
    backing::allow(start, size(before + bytes)?, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)?;
    memory::enter(start + before, size(bytes)?, 0, context, Kind::Piece);
    Ok(start + before)
}

impl Driver {
    pub fn cuMemPoolExportToShareableHandle(
        out: *mut c_void,
        pool: CUmemoryPool,
        kind: CUmemAllocationHandleType,
        _flags: c_ulonglong,
    ) -> Answer {
        let offered = POOLS.get(pool)?.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || offered == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Pieces of it may be passed on from now on, and nobody says when none is any more.
        checkpoint::count_obstacle(Obstacle::Ipc, true);
        // A token: what it stands for travels with each piece.
        put(out.cast::<c_int>(), backing::file(1)?.into_raw_fd())
    }

    pub fn cuMemPoolImportFromShareableHandle(
        out: *mut CUmemoryPool,
        _handle: *mut c_void,
        kind: CUmemAllocationHandleType,
        _flags: c_ulonglong,
    ) -> Answer {
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let device = context::current()?.device;
        put(out, Pool::create(device, CU_MEM_HANDLE_TYPE_NONE, 0, true)?.handle.raw())
    }

    pub fn cuMemPoolExportPointer(out: *mut c_void, address: CUdeviceptr) -> Answer {
        put(out.cast::<Data>(), place(address)?)
    }

    pub fn cuMemPoolImportPointer(out: *mut CUdeviceptr, pool: CUmemoryPool, data: *mut c_void) -> Answer {
        if !POOLS.get(pool)?.imported {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, open(&get(data.cast::<Data>().cast_const())?)?)
    }
}
