//! Memory that crosses processes. It is charged once, to its owner; whoever opens it shows it as shared. Owner and openers
//! note it under one key on their usage pages, so that the node manager finds who is to be charged when the owner dies.
//!
//! The key is a hash of the handle that goes from one process to the other. Where that is a file descriptor that looks the
//! same for all memory (NVIDIA's are of one device file), the key is the size: of several openers of equal size the
//! longest is charged, which is right in sum.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::lock::Lock;
use weir_protocol::pages::{MemoryKind, Share, ShareState, Shared};
use weir_protocol::units::Bytes;

use crate::clock;
use crate::driver;
use crate::guard::{after_success, guard};
use crate::link::{Client, Gpu};
use crate::thread;

/// What this process has given out and opened.
#[derive(Default)]
pub struct Shares {
    given: AtomicU64,                    // entries of `exported`; at zero a free looks no further
    exported: Lock<HashMap<u64, usize>>, // by the ledger's handle: the entry on the page
    opened: Lock<HashMap<Place, Opened>>,
}

/// What memory of another process is known by here.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// Its address.
    At(CUdeviceptr),
    /// The handle of another interface's memory.
    External(u64),
}

/// Memory of another process.
#[derive(Clone, Copy)]
pub struct Opened {
    gpu: usize,
    kind: MemoryKind,
    bytes: Bytes,
    entry: Option<usize>, // on the page; none where that was full
    times: u64,
}

/// A key for the bytes of a handle: FNV-1a, never 0.
pub fn key_of(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    hash.max(1)
}

/// Puts an entry on the page, if there is room.
pub fn note(gpu: &Gpu, state: ShareState, key: u64, bytes: Bytes, kind: MemoryKind) -> Option<usize> {
    let shared = Shared { key, bytes, kind, since: clock::now() };
    gpu.slot().shares.iter().position(|share| share.put(state, &shared))
}

/// Tells the manager of an entry that it is to hand on.
pub fn tell(gpu: &Gpu) {
    gpu.usage.left.fetch_add(1, Ordering::Release); // behind the entry
}

/// A handle for other processes was made.
pub fn give_out(
    handle: *mut CUipcMemHandle,
    address: CUdeviceptr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    after_success(call, |client| {
        if handle.is_null() {
            return;
        }
        // SAFETY: the driver has just written it.
        let key = key_of(unsafe { &(*handle).reserved });
        let Some((base, _)) = range_of(address) else { return };
        let Some(entry) = client.ledger.get(base) else { return };
        if let Some(gpu) = client.gpus.get(entry.gpu) {
            client.shares.exported(gpu, base, key, entry.bytes, entry.kind);
        }
    })
}

/// The allocation that an address lies in: base and bytes.
fn range_of(address: CUdeviceptr) -> Option<(CUdeviceptr, Bytes)> {
    let (mut base, mut bytes) = (0, 0);
    let result = driver::address_range(&raw mut base, &raw mut bytes, address);
    (result == CUDA_SUCCESS).then_some((base, Bytes(bytes as u64)))
}

/// Another process's memory was opened; the same memory may be opened more than once.
pub fn open(address: *mut CUdeviceptr, handle: &CUipcMemHandle, call: impl FnOnce() -> CUresult) -> CUresult {
    open_by_key(key_of(&handle.reserved), MemoryKind::Plain, address, call)
}

fn open_by_key(
    key: u64,
    kind: MemoryKind,
    address: *mut CUdeviceptr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    after_success(call, |client| {
        if address.is_null() {
            return;
        }
        // SAFETY: the driver has just written it.
        let address = unsafe { *address };
        let Some(current) = thread::with(|thread| thread.find_current(client)) else { return };
        let mut opened = client.shares.opened.lock();
        if let Some(known) = opened.get_mut(&Place::At(address)) {
            known.times += 1;
        } else if let Some((_, bytes)) = range_of(address) {
            opened.insert(Place::At(address), Opened::note(current.gpu, key, bytes, kind));
        }
    })
}

/// Bytes of `CUmemPoolPtrExportData`, by which a piece of a pool goes to another process.
const PIECE: usize = 64;

/// A piece of a pool may be opened by others.
pub fn give_out_piece(data: *mut c_void, address: CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    after_success(call, |client| {
        if data.is_null() {
            return;
        }
        // SAFETY: the driver has just written it.
        let key = key_of(&unsafe { data.cast::<[u8; PIECE]>().read_unaligned() });
        let Some(entry) = client.ledger.get(address) else { return };
        if let Some(gpu) = client.gpus.get(entry.gpu) {
            client.shares.exported(gpu, address, key, entry.bytes, entry.kind);
        }
    })
}

/// A piece of another process's pool is opened.
pub fn open_piece(
    address: *mut CUdeviceptr,
    data: *const c_void,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if data.is_null() {
        return call();
    }
    // SAFETY: the caller passes what a driver has exported; the driver reads the same bytes.
    let key = key_of(&unsafe { data.cast::<[u8; PIECE]>().read_unaligned() });
    open_by_key(key, MemoryKind::Pool, address, call)
}

/// Another process's memory is closed: off the books before the call, since its place may be handed out anew.
pub fn close(place: Place, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| Ok(client.shares.remove_opened(place)),
        call,
        |client, opened, result| {
            if let Some(opened) = opened {
                client.shares.settle_closed(client, place, opened, result);
            }
        },
    )
}

/// Charges whoever of the tenant has the memory open for longest; says whether there is one. If it is closed at this
/// moment, nobody of the tenant has it any more.
fn adopted_here(gpu: &Gpu, key: u64) -> bool {
    gpu.usage.longest_holder(key).is_some_and(|(slot, entry, _)| gpu.usage.adopt(slot, entry))
}

/// Memory without an owner, for which we are charged no more, lives on where else it is open.
fn pass_on(gpu: &Gpu, shared: Shared) {
    // The entry of a moment ago is free again; if another thread was faster, and the page full, it is charged to nobody.
    if !adopted_here(gpu, shared.key)
        && note(gpu, ShareState::Left, shared.key, shared.bytes, shared.kind).is_some()
    {
        tell(gpu);
    }
}

impl Opened {
    /// Shows memory of another process as shared.
    pub fn note(gpu: &Gpu, key: u64, bytes: Bytes, kind: MemoryKind) -> Self {
        // Relaxed: for people to read.
        gpu.slot().shared_bytes.fetch_add(bytes.0, Ordering::Relaxed);
        let entry = note(gpu, ShareState::Imported, key, bytes, kind);
        // Behind the entry: the manager looks whether it is memory that nobody is charged for.
        gpu.usage.left.fetch_add(1, Ordering::Release);
        Self { gpu: gpu.index, kind, bytes, entry, times: 1 }
    }

    /// It is open no more. If its owner has died meanwhile, we were charged for it, and the next one is who has it open.
    pub fn close(self, client: &Client) {
        let Some(gpu) = client.gpus.get(self.gpu) else { return };
        let share = self.entry.and_then(|entry| gpu.slot().shares.get(entry));
        match share.and_then(Share::take) {
            Some((ShareState::Adopted, shared)) => {
                gpu.give_back(self.kind, self.bytes);
                pass_on(gpu, shared);
            }
            _ => drop(gpu.slot().shared_bytes.fetch_sub(self.bytes.0, Ordering::Relaxed)),
        }
    }
}

impl Shares {
    /// Notes what was opened.
    pub fn enter(&self, place: Place, opened: Opened) {
        self.opened.lock().insert(place, opened);
    }

    /// Takes one opening off the books; `None` if nothing of another process was opened there. What is still open otherwise
    /// has `times` left.
    pub fn remove_opened(&self, place: Place) -> Option<Opened> {
        let mut opened = self.opened.lock();
        let known = opened.get_mut(&place)?;
        known.times -= 1;
        if known.times > 0 { Some(*known) } else { opened.remove(&place) }
    }

    /// What a call meant that closed a place: the last closing ends it, a failure leaves it as it was.
    pub fn settle_closed(&self, client: &Client, place: Place, closed: Opened, result: CUresult) {
        if result != CUDA_SUCCESS {
            self.opened.lock().entry(place).or_insert(Opened { times: 0, ..closed }).times += 1;
        } else if closed.times == 0 {
            closed.close(client);
        }
    }

    /// Notes that others may open what the ledger has under `handle`; once, however often it is given out.
    pub fn exported(&self, gpu: &Gpu, handle: u64, key: u64, bytes: Bytes, kind: MemoryKind) {
        self.given(gpu, handle, ShareState::Exported, key, bytes, kind);
    }

    /// Notes that a multicast object of this key holds what the ledger has under `handle`. What others may open besides is
    /// theirs first.
    pub fn kept(&self, gpu: &Gpu, handle: u64, key: u64, bytes: Bytes) {
        self.given(gpu, handle, ShareState::Kept, key, bytes, MemoryKind::Virtual);
    }

    /// No multicast object holds it any more.
    pub fn unkept(&self, gpu: &Gpu, handle: u64) {
        let kept = |entry: usize| {
            let read = gpu.slot().shares.get(entry).and_then(Share::read);
            read.is_some_and(|(state, _)| state == ShareState::Kept)
        };
        let entry = self.exported.lock().get(&handle).copied();
        if entry.is_some_and(kept) {
            self.take_back(gpu, handle);
        }
    }

    fn given(&self, gpu: &Gpu, handle: u64, state: ShareState, key: u64, bytes: Bytes, kind: MemoryKind) {
        let mut exported = self.exported.lock();
        if exported.contains_key(&handle) {
            return;
        }
        if let Some(entry) = note(gpu, state, key, bytes, kind) {
            exported.insert(handle, entry);
            self.given.store(exported.len() as u64, Ordering::Release);
        }
    }

    /// What the ledger had under `handle` is freed.
    pub fn take_back(&self, gpu: &Gpu, handle: u64) {
        if let Some(share) = self.given_back(gpu, handle) {
            share.take();
        }
    }

    /// What the ledger had under `handle` lives on where else it is open: within the tenant it is handed on at once, so that
    /// it is never charged to nobody; to another tenant the manager hands it on.
    pub fn leave(&self, gpu: &Gpu, handle: u64) {
        let Some(share) = self.given_back(gpu, handle) else { return };
        let exported = share.read().filter(|(state, _)| *state == ShareState::Exported);
        if exported.is_some_and(|(_, shared)| adopted_here(gpu, shared.key)) {
            share.take();
        } else if share.leave() {
            tell(gpu);
        }
    }

    /// The entry on the page of what the ledger had under `handle`, if it was given out.
    fn given_back<'a>(&self, gpu: &'a Gpu, handle: u64) -> Option<&'a Share> {
        // Acquire: pairs with the release above.
        if self.given.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut exported = self.exported.lock();
        let entry = exported.remove(&handle)?;
        self.given.store(exported.len() as u64, Ordering::Release);
        drop(exported);
        gpu.slot().shares.get(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_that_differ_in_one_byte_have_different_keys() {
        let mut handle = [0; 64];
        let key = key_of(&handle);
        handle[63] = 1;
        assert!(key != 0 && key != key_of(&handle));
    }
}
