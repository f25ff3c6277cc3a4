//! Memory pools: stream-ordered allocation out of memory that the pool keeps.
//!
//! A pool reserves device memory in chunks and hands out pieces. What it reserves is what it costs; freed
//! pieces stay with it until a wait finds more idle than its release threshold allows.

mod calls;
mod share;

use std::collections::BTreeMap;
use std::ffi::*;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use weir_abi::types::*;

use crate::context::Context;
use crate::edge::{Answer, put};
use crate::memory::{self, Allocation, GRANULE, Kind};
use crate::registry::{Handle, Registry};
use crate::stream::{self, Stream};
use crate::work::Work;
use crate::{backing, capture, device, graph_memory, locked, session};

/// A pool grows in multiples of this, bytes: what drivers were seen to reserve at a time.
const CHUNK: usize = 32 << 20;

static POOLS: Registry<Pool> = Registry::new(10, CUDA_ERROR_INVALID_HANDLE);
static DEFAULTS: [OnceLock<&'static Pool>; device::MOST] = [const { OnceLock::new() }; device::MOST];
static CURRENT: [Mutex<Option<&'static Pool>>; device::MOST] = [const { Mutex::new(None) }; device::MOST];
/// Whether a pool may hold more than its threshold: what a wait looks at.
static IDLE: AtomicBool = AtomicBool::new(false);

/// A memory pool.
pub struct Pool {
    /// Its handle.
    pub handle: Handle,
    device: CUdevice,
    handle_types: CUmemAllocationHandleType,
    most: usize,
    /// It was made in another process: nothing can be allocated from it here.
    imported: bool,
    state: Mutex<State>,
}

/// What a pool has. All figures are bytes.
#[derive(Default)]
struct State {
    chunks: Vec<(u64, usize)>,
    /// Files of the chunks, by address, in a pool that can be exported.
    files: BTreeMap<u64, OwnedFd>,
    /// Idle pieces: address to length, neighbours joined.
    idle: BTreeMap<u64, usize>,
    reserved: usize,
    reserved_high: usize,
    used: usize,
    used_high: usize,
    threshold: u64,
    /// The client has destroyed it: it goes with its last piece.
    destroyed: bool,
    /// The three rules of reuse, which a pool without time order has no use for but remembers.
    reuse: [c_int; 3],
}

impl State {
    /// Takes a piece from the smallest idle one that has room.
    fn take(&mut self, bytes: usize) -> Option<u64> {
        let fitting = self.idle.iter().filter(|piece| *piece.1 >= bytes);
        let (address, length) =
            fitting.min_by_key(|piece| *piece.1).map(|(address, length)| (*address, *length))?;
        self.idle.remove(&address);
        if length > bytes {
            self.idle.insert(address + bytes as u64, length - bytes);
        }
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
        Some(address)
    }

    /// Puts a piece among the idle ones, joined with its neighbours in the same chunk.
    fn give_back(&mut self, mut address: u64, mut bytes: usize) {
        self.used -= bytes;
        let starts_chunk = |at: u64| self.chunks.iter().any(|chunk| chunk.0 == at);
        let next = address + bytes as u64;
        if !starts_chunk(next)
            && let Some(length) = self.idle.remove(&next)
        {
            bytes += length;
        }
        let before = self.idle.range(..address).next_back().map(|(start, length)| (*start, *length));
        if let Some((start, length)) = before
            && start + length as u64 == address
            && !starts_chunk(address)
        {
            self.idle.remove(&start);
            (address, bytes) = (start, bytes + length);
        }
        self.idle.insert(address, bytes);
    }

    fn grow(&mut self, device: CUdevice, bytes: usize, shareable: bool) -> Answer {
        let bytes = bytes.checked_next_multiple_of(CHUNK).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        session::current()?.reserve(device, bytes)?;
        let address = if shareable { self.lay_file(bytes)? } else { backing::take(bytes)? };
        self.chunks.push((address, bytes));
        self.idle.insert(address, bytes);
        self.reserved += bytes;
        self.reserved_high = self.reserved_high.max(self.reserved);
        Ok(())
    }

    /// Maps a file for a chunk that other processes may map too.
    fn lay_file(&mut self, bytes: usize) -> Answer<u64> {
        let file = backing::file(bytes)?;
        let address = backing::lay_anywhere(bytes, file.as_raw_fd())?;
        self.files.insert(address, file);
        Ok(address)
    }

    /// A destroyed pool's memory goes when nothing of it is outstanding (CUDA driver API, `cuMemPoolDestroy`), all at once.
    fn go_if_over(&mut self, device: CUdevice) -> Answer {
        if self.used > 0 { Ok(()) } else { self.trim(device, 0) }
    }

    /// Gives whole idle chunks back to the device while more than `keep` is reserved.
    fn trim(&mut self, device: CUdevice, keep: u64) -> Answer {
        let mut released = 0;
        let (idle, files, reserved) = (&mut self.idle, &mut self.files, self.reserved);
        self.chunks.retain(|(address, bytes)| {
            let whole = idle.get(address) == Some(bytes);
            let spare = ((reserved - released) as u64).saturating_sub(*bytes as u64) >= keep;
            if whole && spare {
                idle.remove(address);
                files.remove(address);
                backing::give_back(*address, *bytes);
                released += bytes;
            }
            !(whole && spare)
        });
        self.reserved -= released;
        if released == 0 { Ok(()) } else { session::current()?.release(device, released) }
    }
}

impl Pool {
    fn create(
        device: CUdevice,
        handle_types: CUmemAllocationHandleType,
        most: usize,
        imported: bool,
    ) -> Answer<&'static Pool> {
        device::check(device)?;
        let state = Mutex::new(State { reuse: [1; 3], ..State::default() });
        Ok(POOLS.insert_with(|handle| Pool { handle, device, handle_types, most, imported, state })?.1)
    }

    fn allocate(&'static self, context: &'static Context, bytes: usize) -> Answer<CUdeviceptr> {
        if bytes == 0 || self.imported {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let rounded = bytes.checked_next_multiple_of(GRANULE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut state = locked(&self.state);
        if self.most > 0 && state.used.saturating_add(rounded) > self.most {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let address = match state.take(rounded) {
            Some(address) => address,
            None => {
                let shareable = self.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != 0;
                state.grow(self.device, rounded, shareable)?;
                state.take(rounded).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?
            }
        };
        memory::enter(address, bytes, rounded, context, Kind::Pool(self));
        Ok(address)
    }

    /// Takes a freed piece back.
    pub fn give_back(&self, piece: &Allocation) -> Answer {
        let mut state = locked(&self.state);
        state.give_back(piece.address, piece.charged);
        if state.destroyed {
            return state.go_if_over(self.device);
        }
        if state.reserved as u64 > state.threshold {
            IDLE.store(true, Ordering::Release);
        }
        Ok(())
    }
}

pub use share::unmap_piece;

/// After a wait: every pool gives back what it holds idle above its threshold.
pub fn trim_idle() -> Answer {
    if !IDLE.swap(false, Ordering::AcqRel) {
        return Ok(());
    }
    POOLS.living().try_for_each(|pool| {
        let mut state = locked(&pool.state);
        let keep = state.threshold;
        state.trim(pool.device, keep)
    })
}

fn default_of(device: CUdevice) -> Answer<&'static Pool> {
    let place = &DEFAULTS[device::check(device)?];
    if let Some(pool) = place.get() {
        return Ok(pool);
    }
    let pool = Pool::create(device, CU_MEM_HANDLE_TYPE_NONE, 0, false)?;
    Ok(place.get_or_init(|| pool))
}

fn current_of(device: CUdevice) -> Answer<&'static Pool> {
    let current = *locked(&CURRENT[device::check(device)?]);
    current.map_or_else(|| default_of(device), Ok)
}

/// Stream-ordered allocation; in a capture it becomes an allocation node.
fn allocate(out: *mut CUdeviceptr, bytes: usize, pool: Option<&'static Pool>, stream: CUstream) -> Answer {
    let stream: &'static Stream = stream::of(stream)?;
    if capture::any() && capture::mark(stream)?.is_some() {
        let address = graph_memory::plan(stream.context, bytes)?;
        capture::take(stream, &Work::Alloc { address })?;
        return put(out, address);
    }
    let pool = pool.map_or_else(|| current_of(stream.context.device), Ok)?;
    put(out, pool.allocate(stream.context, bytes)?)
}
