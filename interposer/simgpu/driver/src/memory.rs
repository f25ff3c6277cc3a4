//! Memory by address: plain, pitched, managed and host allocations.

use std::collections::BTreeMap;
use std::ffi::*;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::types::*;

use crate::api::Driver;
use crate::context::{self, Context};
use crate::edge::{Answer, put, put_optional};
use crate::pool::Pool;
use crate::{backing, broken, capture, checkpoint, ipc, locked, session, stream};

/// Device memory is handed out in multiples of this, bytes: the alignment that the driver promises is 256,
/// and observed addresses are multiples of 512.
pub const GRANULE: usize = 512;
/// Host memory is registered from the beginning of such a page on, bytes. Source: an H200's driver refuses another place.
const PAGE: usize = 4096;
/// Rows of a pitched allocation begin at multiples of this, bytes.
const PITCH: usize = 512;

/// `CU_MEM_ADVISE_SET_PREFERRED_LOCATION`
const PREFERRED_LOCATION: c_uint = 3;
/// `CU_DEVICE_CPU`
const HOST: CUdevice = -1;

static MEMORY: Mutex<BTreeMap<u64, Allocation>> = Mutex::new(BTreeMap::new());

/// What an allocation is made of, which is who frees it.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Plain device memory.
    Device,
    /// Managed memory: the host may touch it too.
    Managed,
    /// Host memory of the driver, with the flags of its allocation.
    Host(c_uint),
    /// The client's own host memory, registered.
    Registered(c_uint),
    /// A piece of a pool.
    Pool(&'static Pool),
    /// A mapping of a physical allocation.
    Mapped,
    /// Memory of another process.
    Imported,
    /// A piece of another process's pool.
    Piece,
    /// A buffer in memory of another interface.
    External,
    /// Memory of a graph's allocation node.
    Graph,
}

/// One allocation.
#[derive(Clone, Copy)]
pub struct Allocation {
    /// First address.
    pub address: u64,
    /// Length, bytes, as asked for.
    pub bytes: usize,
    /// What was charged to the device, bytes.
    pub charged: usize,
    /// Whose it is.
    pub context: &'static Context,
    /// What it is.
    pub kind: Kind,
    /// A number that no other allocation of the process has.
    pub id: u64,
}

impl Allocation {
    fn is_host(&self) -> bool {
        matches!(self.kind, Kind::Host(_) | Kind::Registered(_))
    }
}

/// Enters an allocation into the books.
pub fn enter(address: u64, bytes: usize, charged: usize, context: &'static Context, kind: Kind) {
    static IDS: AtomicU64 = AtomicU64::new(1);
    let id = IDS.fetch_add(1, Ordering::Relaxed);
    checkpoint::count(kind, true);
    locked(&MEMORY)
        .insert(address, Allocation { address, bytes, charged, context: context.root(), kind, id });
}

/// Takes the allocation that begins here out of the books, if it is of the right kind.
pub fn remove(address: u64, right: impl Fn(&Kind) -> bool) -> Answer<Allocation> {
    let mut memory = locked(&MEMORY);
    if !memory.get(&address).is_some_and(|allocation| right(&allocation.kind)) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let gone = memory.remove(&address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    checkpoint::count(gone.kind, false);
    Ok(gone)
}

/// The allocation that an address lies in.
pub fn find(address: u64) -> Option<Allocation> {
    let memory = locked(&MEMORY);
    let (_, allocation) = memory.range(..=address).next_back()?;
    (address - allocation.address < (allocation.bytes as u64).max(1)).then_some(*allocation)
}

/// Whether an address lies in host memory: the driver's, or the client's own that is registered.
pub fn is_host(address: u64) -> bool {
    find(address).is_some_and(|allocation| allocation.is_host())
}

/// Refuses a range that is not wholly inside one allocation.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn require(address: u64, bytes: usize) -> Answer<Allocation> {
    let allocation = find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let end = address.checked_add(bytes as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if end > allocation.address + allocation.bytes as u64 && !matches!(allocation.kind, Kind::Mapped) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(allocation)
}

/// Charges the device and maps memory.
fn take(context: &'static Context, bytes: usize, kind: Kind) -> Answer<u64> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let charged = bytes.checked_next_multiple_of(GRANULE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let session = session::current()?;
    let charged = match session.reserve(context.device, charged) {
        Ok(()) => charged,
        // Managed memory that a device has no room for lives on the host.
        Err(CUDA_ERROR_OUT_OF_MEMORY) if matches!(kind, Kind::Managed) => 0,
        Err(full) => return Err(full),
    };
    let address = match backing::take(bytes) {
        Ok(address) => address,
        Err(full) if charged == 0 => return Err(full),
        Err(full) => {
            session.release(context.device, charged)?;
            return Err(full);
        }
    };
    enter(address, bytes, charged, context, kind);
    Ok(address)
}

/// Plain device memory.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` when the device has no more, `CUDA_ERROR_INVALID_VALUE` for no bytes.
pub fn allocate(context: &'static Context, bytes: usize) -> Answer<CUdeviceptr> {
    take(context, bytes, Kind::Device)
}

/// Addresses without device memory behind them.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` when the address space is full.
pub fn reserve(context: &'static Context, bytes: usize) -> Answer<CUdeviceptr> {
    let address = backing::take(bytes)?;
    enter(address, bytes, 0, context, Kind::Device);
    Ok(address)
}

/// Frees device memory of any kind that `cuMemFree` takes. As a driver does, it first waits for the context.
pub fn free(address: CUdeviceptr) -> Answer {
    if address == 0 {
        return Ok(());
    }
    let freeable = |kind: &Kind| {
        let own = matches!(kind, Kind::Device | Kind::Managed | Kind::Pool(_) | Kind::Graph);
        own || matches!(kind, Kind::External | Kind::Piece)
    };
    if broken::any() {
        find(address).map_or(Ok(()), |allocation| allocation.context.check_whole())?;
    }
    let allocation = remove(address, freeable)?;
    stream::all_of(allocation.context).try_for_each(|stream| stream.synchronize())?;
    release(&allocation)
}

/// Gives back what an allocation is made of.
pub fn release(allocation: &Allocation) -> Answer {
    match allocation.kind {
        Kind::Pool(pool) => pool.give_back(allocation),
        Kind::Graph => crate::graph_memory::forget(allocation),
        Kind::Registered(_) => Ok(()),
        Kind::Piece => crate::pool::unmap_piece(allocation),
        _ => {
            ipc::forget(allocation.address);
            backing::give_back(allocation.address, allocation.bytes);
            match allocation.charged {
                0 => Ok(()),
                charged => session::current()?.release(allocation.context.device, charged),
            }
        }
    }
}

/// Frees what a context leaves behind: its own memory, not what pools and the host hold.
pub fn forget_context(context: &Context) {
    let leaves = |allocation: &Allocation| {
        ptr::eq(allocation.context, context) && matches!(allocation.kind, Kind::Device | Kind::Managed)
    };
    let left: Vec<Allocation> =
        locked(&MEMORY).extract_if(.., |_, allocation| leaves(allocation)).map(|(_, a)| a).collect();
    for allocation in left {
        checkpoint::count(allocation.kind, false);
        // The broker frees a destroyed context's memory by itself; this mends our side of the books.
        let _told = release(&allocation);
    }
}

fn allocate_host(out: *mut *mut c_void, bytes: usize, flags: c_uint) -> Answer {
    let context = context::current()?;
    capture::forbid_unsafe()?;
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let address = backing::take(bytes)?;
    enter(address, bytes, 0, context, Kind::Host(flags));
    put(out, pointer(address))
}

/// Advice on where managed memory is to live. An allocation that is wanted on the host, as a whole, leaves the device.
fn advise(address: u64, bytes: usize, advice: c_uint, on_host: bool) -> Answer {
    let allocation = require(address, bytes)?;
    let whole = allocation.address == address && allocation.bytes == bytes;
    let leaves = advice == PREFERRED_LOCATION && on_host && whole && allocation.charged > 0;
    if !leaves || !matches!(allocation.kind, Kind::Managed) {
        return Ok(());
    }
    if let Some(entry) = locked(&MEMORY).get_mut(&address) {
        entry.charged = 0;
    }
    session::current()?.release(allocation.context.device, allocation.charged)
}

/// A device address as a pointer into this process.
pub fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

/// The flags that a host allocation was made with.
fn host_flags(address: *const c_void) -> Answer<c_uint> {
    match find(address.addr() as u64).map(|allocation| allocation.kind) {
        Some(Kind::Host(flags) | Kind::Registered(flags)) => Ok(flags),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

impl Driver {
    pub fn cuMemAlloc_v2(out: *mut CUdeviceptr, bytes: usize) -> Answer {
        let context = context::current()?;
        capture::forbid_unsafe()?;
        put(out, allocate(context, bytes)?)
    }

    pub fn cuMemAllocPitch_v2(
        out: *mut CUdeviceptr,
        pitch: *mut usize,
        width: usize,
        height: usize,
        _element: c_uint,
    ) -> Answer {
        let context = context::current()?;
        capture::forbid_unsafe()?;
        let row = width.checked_next_multiple_of(PITCH).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        put(out, allocate(context, bytes)?)?;
        put(pitch, row)
    }

    pub fn cuMemAllocManaged(out: *mut CUdeviceptr, bytes: usize, _flags: c_uint) -> Answer {
        let context = context::current()?;
        capture::forbid_unsafe()?;
        put(out, take(context, bytes, Kind::Managed)?)
    }

    pub fn cuMemFree_v2(address: CUdeviceptr) -> Answer {
        capture::forbid_unsafe()?;
        free(address)
    }

    pub fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) -> Answer {
        allocate_host(out, bytes, 0)
    }

    pub fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: c_uint) -> Answer {
        allocate_host(out, bytes, flags)
    }

    pub fn cuMemFreeHost(address: *mut c_void) -> Answer {
        capture::forbid_unsafe()?;
        release(&remove(address.addr() as u64, |kind| matches!(kind, Kind::Host(_)))?)
    }

    pub fn cuMemHostRegister(address: *mut c_void, bytes: usize, flags: c_uint) -> Answer {
        Self::cuMemHostRegister_v2(address, bytes, flags)
    }

    pub fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint) -> Answer {
        let context = context::current()?;
        capture::forbid_unsafe()?;
        if address.is_null() || bytes == 0 || !address.addr().is_multiple_of(PAGE) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let address = address.expose_provenance() as u64;
        if find(address).is_some() {
            return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        enter(address, bytes, 0, context, Kind::Registered(flags));
        Ok(())
    }

    pub fn cuMemHostUnregister(address: *mut c_void) -> Answer {
        capture::forbid_unsafe()?;
        let registered = remove(address.addr() as u64, |kind| matches!(kind, Kind::Registered(_)));
        registered.map(drop).map_err(|_| CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    }

    pub fn cuMemHostGetDevicePointer_v2(
        out: *mut CUdeviceptr,
        address: *mut c_void,
        _flags: c_uint,
    ) -> Answer {
        host_flags(address)?;
        put(out, address.expose_provenance() as u64)
    }

    pub fn cuMemHostGetFlags(out: *mut c_uint, address: *mut c_void) -> Answer {
        put(out, host_flags(address)?)
    }

    pub fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Answer {
        let info = session::current()?.memory_info(context::current()?.device)?;
        put_optional(free, info.0);
        put_optional(total, info.1);
        Ok(())
    }

    pub fn cuMemGetAddressRange_v2(
        base: *mut CUdeviceptr,
        bytes: *mut usize,
        address: CUdeviceptr,
    ) -> Answer {
        let allocation = find(address).filter(|a| !a.is_host()).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put_optional(base, allocation.address);
        put_optional(bytes, allocation.bytes);
        Ok(())
    }

    pub fn cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: c_uint, device: CUdevice) -> Answer {
        advise(address, bytes, advice, device == HOST)
    }

    pub fn cuMemAdvise_v2(
        address: CUdeviceptr,
        bytes: usize,
        advice: c_uint,
        location: CUmemLocation,
    ) -> Answer {
        advise(address, bytes, advice, location.kind != CU_MEM_LOCATION_TYPE_DEVICE)
    }

    pub fn cuMemPrefetchAsync(
        address: CUdeviceptr,
        bytes: usize,
        _device: CUdevice,
        stream: CUstream,
    ) -> Answer {
        stream::of(stream)?;
        require(address, bytes).map(drop)
    }

    pub fn cuMemPrefetchAsync_v2(
        address: CUdeviceptr,
        bytes: usize,
        _location: CUmemLocation,
        _flags: c_uint,
        stream: CUstream,
    ) -> Answer {
        stream::of(stream)?;
        require(address, bytes).map(drop)
    }
}
