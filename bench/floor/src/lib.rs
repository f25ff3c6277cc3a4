//! The floor driver: a `libcuda.so.1` whose every call returns success at once. What a call costs on it, with and
//! without a preload library, is that library's own cost and nothing else.
//!
//! Every name of the CUDA driver is exported. The few functions whose answers a client needs in order to get as far
//! as a launch do as little as that takes; all others ignore their arguments.
#![allow(non_snake_case, reason = "functions keep their exact CUDA name")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::types::*;
use weir_abi::{CUresult, for_each_symbol, resolve};

/// The one device's identity.
pub const UUID: [u8; 16] = *b"weir-floor-uuid!";

/// Exports a symbol that only returns; the first arms leave out those that are written below.
macro_rules! floor {
    ($($name:ident $base:literal $since:literal $stream:ident $type:ident $class:ident ($($arg:ident: $kind:ty),*);)*) => {
        $(floor_one!($name);)*
    };
}

macro_rules! floor_one {
    (cuDeviceGetCount) => {};
    (cuDeviceGet) => {};
    (cuDeviceGetUuid) => {};
    (cuDeviceGetUuid_v2) => {};
    (cuDevicePrimaryCtxRetain) => {};
    (cuCtxGetDevice) => {};
    (cuCtxGetCurrent) => {};
    (cuEventCreate) => {};
    (cuMemAlloc_v2) => {};
    (cuMemAllocAsync) => {};
    (cuDeviceGetMemPool) => {};
    (cuDeviceGetDefaultMemPool) => {};
    (cuMemPoolGetAttribute) => {};
    (cuDeviceGetAttribute) => {};
    (cuMemHostGetDevicePointer_v2) => {};
    (cuStreamWriteValue64_v2) => {};
    (cuGetProcAddress) => {};
    (cuGetProcAddress_v2) => {};
    ($name:ident) => {
        /// Returns success.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> CUresult {
            CUDA_SUCCESS
        }
    };
}

for_each_symbol!(floor);

/// Writes an answer, if the caller wants one.
fn answer<T>(out: *mut T, value: T) -> CUresult {
    // SAFETY: the driver's contract: a pointer to a place for the answer, or null.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = value;
    }
    CUDA_SUCCESS
}

/// A handle that is not null and never looked at.
const HANDLE: *mut c_void = std::ptr::without_provenance_mut(0x1000);

/// One device.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CUresult {
    answer(count, 1)
}

/// Number 0.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGet(device: *mut CUdevice, _ordinal: c_int) -> CUresult {
    answer(device, 0)
}

/// [`UUID`]
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetUuid(uuid: *mut CUuuid, _device: CUdevice) -> CUresult {
    answer(uuid, CUuuid { bytes: UUID })
}

/// [`UUID`]
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> CUresult {
    cuDeviceGetUuid(uuid, device)
}

/// A context.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, _device: CUdevice) -> CUresult {
    answer(context, HANDLE)
}

/// Always device 0.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult {
    answer(device, 0)
}

/// Always the same context.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult {
    answer(context, HANDLE)
}

/// An event that was reached already.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventCreate(event: *mut CUevent, _flags: c_uint) -> CUresult {
    answer(event, HANDLE)
}

/// An address that was not handed out before.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize) -> CUresult {
    static NEXT: AtomicU64 = AtomicU64::new(0x7000_0000_0000);
    answer(pointer, NEXT.fetch_add((bytes as u64).next_multiple_of(512), Ordering::Relaxed))
}

/// The piece that was freed last, as pools do.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocAsync(pointer: *mut CUdeviceptr, _bytes: usize, _stream: CUstream) -> CUresult {
    answer(pointer, 0x7f00_0000_0000)
}

/// It can write words, as every GPU of today, and nothing else.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    which: CUdevice_attribute,
    _device: CUdevice,
) -> CUresult {
    answer(value, c_int::from(which == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS))
}

/// The device sees host memory where the host does.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostGetDevicePointer_v2(
    out: *mut CUdeviceptr,
    address: *mut c_void,
    _flags: c_uint,
) -> CUresult {
    answer(out, address.expose_provenance() as CUdeviceptr)
}

/// What was launched before is done: the word is written.
///
/// # Safety
/// `address` is that of a word of host memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWriteValue64_v2(
    _stream: CUstream,
    address: CUdeviceptr,
    value: c_ulonglong,
    _flags: c_uint,
) -> CUresult {
    let Ok(address) = usize::try_from(address) else { return CUDA_ERROR_INVALID_VALUE };
    // SAFETY: by our own contract; whoever reads it meanwhile reads an atomic.
    unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(address)) }
        .store(value, Ordering::Release);
    CUDA_SUCCESS
}

/// The one pool.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, _device: CUdevice) -> CUresult {
    answer(pool, HANDLE)
}

/// The one pool.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> CUresult {
    cuDeviceGetMemPool(pool, device)
}

/// Every figure of it is 64 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolGetAttribute(
    _pool: CUmemoryPool,
    _which: CUmemPool_attribute,
    value: *mut c_void,
) -> CUresult {
    answer(value.cast::<u64>(), 64 << 20)
}

/// Looks up our own exports.
///
/// # Safety
/// `symbol` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller passes a C string.
    let base = unsafe { CStr::from_ptr(symbol) }.to_str().unwrap_or("");
    let found = resolve(base, u32::try_from(version).unwrap_or(0), flags).ok();
    let name = found.and_then(|symbol| std::ffi::CString::new(symbol.name).ok());
    let address = name.map_or(std::ptr::null_mut(), |name| {
        // SAFETY: a C string; the symbol is one of our own exports. RTLD_DEFAULT would find a preload's.
        unsafe { libc::dlsym(own_handle(), name.as_ptr()) }
    });
    answer(pfn, address)
}

/// As above; the status says whether it was found.
///
/// # Safety
/// `symbol` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    const FOUND: CUdriverProcAddressQueryResult = 0;
    const NOT_FOUND: CUdriverProcAddressQueryResult = 1;
    let mut address = std::ptr::null_mut();
    // SAFETY: by our own contract.
    unsafe { cuGetProcAddress(symbol, &raw mut address, version, flags) };
    answer(status, if address.is_null() { NOT_FOUND } else { FOUND });
    answer(pfn, address)
}

/// A handle of this library itself.
fn own_handle() -> *mut c_void {
    // SAFETY: `dladdr` fills the structure for an address of ours; the name it gives is that of a loaded object.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(own_handle as *const c_void, &raw mut info);
        libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
    }
}
