//! NVML: memory information as the tenant's budget and use, so that `nvidia-smi`, PyTorch and NCCL see what
//! `cuMemGetInfo` shows.

use std::ffi::{CStr, c_char, c_uint, c_ulonglong, c_void};

use super::{c_name, view};
use crate::link::{self, Client, Gpu};
use crate::nvml::{FUNCTION_NOT_FOUND, Memory, NvmlDevice, NvmlReturn, SUCCESS};
use crate::resolve::hook::{Hook, Real};

/// `nvmlMemory_v2_t`
#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

type MemoryInfo = unsafe extern "C" fn(NvmlDevice, *mut Memory) -> NvmlReturn;
type MemoryInfoV2 = unsafe extern "C" fn(NvmlDevice, *mut MemoryV2) -> NvmlReturn;
type Uuid = unsafe extern "C" fn(NvmlDevice, *mut c_char, c_uint) -> NvmlReturn;

static MEMORY_INFO: Real = Real::new();
static MEMORY_INFO_V2: Real = Real::new();
static UUID: Real = Real::new();

/// The NVML rows of the hook table.
pub static NVML_HOOKS: &[Hook] = &[
    Hook::of_nvml(
        c_name!(nvmlDeviceGetMemoryInfo),
        nvmlDeviceGetMemoryInfo as MemoryInfo as *const c_void,
        &MEMORY_INFO,
    ),
    Hook::of_nvml(
        c_name!(nvmlDeviceGetMemoryInfo_v2),
        nvmlDeviceGetMemoryInfo_v2 as MemoryInfoV2 as *const c_void,
        &MEMORY_INFO_V2,
    ),
];

/// Memory of a device: the tenant's.
///
/// # Safety
/// As NVML's function of this name.
#[allow(non_snake_case, reason = "hooked functions keep their exact name")]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: NvmlDevice, memory: *mut Memory) -> NvmlReturn {
    let Some(real) = MEMORY_INFO.get(c_name!(nvmlDeviceGetMemoryInfo)) else { return FUNCTION_NOT_FOUND };
    // SAFETY: NVML's function of this symbol has this type; the arguments are the caller's own.
    let result = unsafe { std::mem::transmute::<*const c_void, MemoryInfo>(real)(device, memory) };
    // SAFETY: NVML has just written it.
    if let (SUCCESS, Some(memory)) = (result, unsafe { memory.as_mut() })
        && let Some((total, free)) = tenants_view(device)
    {
        *memory = Memory { total, free, used: total - free };
    }
    result
}

/// Memory of a device, second form: the tenant's.
///
/// # Safety
/// As NVML's function of this name.
#[allow(non_snake_case, reason = "hooked functions keep their exact name")]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: NvmlDevice, memory: *mut MemoryV2) -> NvmlReturn {
    let Some(real) = MEMORY_INFO_V2.get(c_name!(nvmlDeviceGetMemoryInfo_v2)) else {
        return FUNCTION_NOT_FOUND;
    };
    // SAFETY: NVML's function of this symbol has this type; the arguments are the caller's own.
    let result = unsafe { std::mem::transmute::<*const c_void, MemoryInfoV2>(real)(device, memory) };
    // SAFETY: NVML has just written it.
    if let (SUCCESS, Some(memory)) = (result, unsafe { memory.as_mut() })
        && let Some((total, free)) = tenants_view(device)
    {
        *memory = MemoryV2 { version: memory.version, total, reserved: 0, free, used: total - free };
    }
    result
}

/// (total, free) of the tenant on the device that NVML means by this handle.
fn tenants_view(device: NvmlDevice) -> Option<(u64, u64)> {
    std::panic::catch_unwind(|| {
        link::attach(); // a program may ask NVML before it initializes CUDA
        let gpu = gpu_of(Client::get()?, device)?;
        let (left, limit) = view::left_and_limit(gpu);
        Some((limit.0, left.0))
    })
    .ok()
    .flatten()
}

fn gpu_of(client: &'static Client, device: NvmlDevice) -> Option<&'static Gpu> {
    let real = UUID.get(c_name!(nvmlDeviceGetUUID))?;
    let mut text = [0 as c_char; 96];
    // SAFETY: NVML's function has this type; the buffer is as long as we say (NVML asks for at most 96).
    let result = unsafe { std::mem::transmute::<*const c_void, Uuid>(real)(device, text.as_mut_ptr(), 96) };
    if result != SUCCESS {
        return None;
    }
    // SAFETY: NVML ends the text with a NUL within the buffer.
    client.gpu_of_uuid(parse_uuid(unsafe { CStr::from_ptr(text.as_ptr()) }.to_bytes())?)
}

/// `GPU-6ba7b810-9dad-11d1-80b4-00c04fd430c8` as 16 bytes.
fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.strip_prefix(b"GPU-")?.iter().copied().filter(|c| *c != b'-').collect();
    let mut uuid = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvmls_spelling_of_an_identity_is_understood() {
        let uuid = parse_uuid(b"GPU-6ba7b810-9dad-11d1-80b4-00c04fd430c8");
        assert_eq!(uuid.map(|uuid| (uuid[0], uuid[15])), Some((0x6b, 0xc8)));
        assert_eq!(parse_uuid(b"MIG-6ba7b810-9dad-11d1-80b4-00c04fd430c8"), None);
        assert_eq!(parse_uuid(b"GPU-6ba7b810"), None);
    }
}
