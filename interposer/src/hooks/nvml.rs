//! NVML: memory, processes and utilisation as the tenant's own, so that `nvidia-smi`, PyTorch and NCCL see what
//! `cuMemGetInfo` shows, and never a neighbour.

use std::ffi::{CStr, c_char, c_uint, c_ulonglong, c_void};
use std::ptr::NonNull;

use super::nvml_processes::{self as processes, Accounted, Rates, Sample};
use super::nvml_structures::{self as structures, Details, Utilizations, Value};
use super::{address_of, c_name, view};
use crate::failpoint;
use crate::guard::alone;
use crate::link::{self, Client, Gpu};
use crate::nvml::{
    FUNCTION_NOT_FOUND, Memory, NOT_SUPPORTED, NvmlDevice, NvmlReturn, Process, ProcessV1, SUCCESS,
};
use crate::resolve::hook::{Hooks, Real};

/// `nvmlMemory_v2_t`
#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// Each row: documentation, NVML's function, and the handler. In a handler's arguments `call` stands for the real function,
/// which takes the arguments anew.
macro_rules! nvml_hooks {
    ($($(#[doc = $doc:literal])+
       fn $symbol:ident($($arg:ident: $kind:ty),* $(,)?) = |$call:ident| $handler:expr;)+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// # Safety
            /// As NVML's function of this name.
            #[allow(non_snake_case, reason = "hooked functions keep their exact name")]
            #[cfg_attr(not(any(test, feature = "proxy")), unsafe(no_mangle))]
            pub unsafe extern "C" fn $symbol($($arg: $kind),*) -> NvmlReturn {
                failpoint::enter(stringify!($symbol));
                type Function = unsafe extern "C" fn($($kind),*) -> NvmlReturn;
                let Some(real) = real::$symbol.get(c_name!($symbol)) else { return FUNCTION_NOT_FOUND };
                // SAFETY: NVML's function of this symbol has this type.
                let real = unsafe { std::mem::transmute::<NonNull<c_void>, Function>(real) };
                let $call = |$($arg: $kind),*| {
                    // SAFETY: the caller's own arguments, or in their place buffers of ours that are as large as we say.
                    let result = unsafe { real($($arg),*) };
                    failpoint::called();
                    result
                };
                $handler
            }
        )+

        /// The real function behind each hook.
        mod real {
            #![allow(non_upper_case_globals, reason = "named as the symbol it stands for")]
            use crate::resolve::hook::Real;
            $(pub static $symbol: Real = Real::new();)+
        }

        /// Adds the NVML rows of the hook table.
        pub fn add_hooks(hooks: &mut Hooks) {
            $(hooks.add_of_nvml(
                c_name!($symbol),
                address_of!($symbol),
                &real::$symbol,
            );)+
        }
    };
}

nvml_hooks! {
    /// Memory of a device: the tenant's.
    fn nvmlDeviceGetMemoryInfo(device: NvmlDevice, memory: *mut Memory) = |call| {
        let result = call(device, memory);
        // SAFETY: NVML has just written it.
        if let (SUCCESS, Some(memory)) = (result, unsafe { memory.as_mut() })
            && let Some((total, free)) = tenants_view(device)
        {
            *memory = Memory { total, free, used: total - free };
        }
        result
    };
    /// Memory of a device, second form: the tenant's.
    fn nvmlDeviceGetMemoryInfo_v2(device: NvmlDevice, memory: *mut MemoryV2) = |call| {
        let result = call(device, memory);
        // SAFETY: NVML has just written it.
        if let (SUCCESS, Some(memory)) = (result, unsafe { memory.as_mut() })
            && let Some((total, free)) = tenants_view(device)
        {
            *memory = MemoryV2 { version: memory.version, total, reserved: 0, free, used: total - free };
        }
        result
    };
    /// Processes that compute: the tenant's.
    fn nvmlDeviceGetComputeRunningProcesses(device: NvmlDevice, count: *mut c_uint, out: *mut ProcessV1)
        = |call| processes::running(device, count, out, |count, out| call(device, count, out));
    /// Processes that compute: the tenant's.
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: NvmlDevice, count: *mut c_uint, out: *mut Process)
        = |call| processes::running(device, count, out, |count, out| call(device, count, out));
    /// Processes that compute: the tenant's.
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: NvmlDevice, count: *mut c_uint, out: *mut Process)
        = |call| processes::running(device, count, out, |count, out| call(device, count, out));
    /// Processes that draw: the tenant's.
    fn nvmlDeviceGetGraphicsRunningProcesses(device: NvmlDevice, count: *mut c_uint, out: *mut ProcessV1)
        = |call| processes::running(device, count, out, |count, out| call(device, count, out));
    /// Processes that draw: the tenant's.
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: NvmlDevice, count: *mut c_uint, out: *mut Process)
        = |call| processes::running(device, count, out, |count, out| call(device, count, out));
    /// Processes that draw: the tenant's.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: NvmlDevice, count: *mut c_uint, out: *mut Process)
        = |call| processes::running(device, count, out, |count, out| call(device, count, out));
    /// Processes behind an MPS server: the tenant's.
    fn nvmlDeviceGetMPSComputeRunningProcesses(device: NvmlDevice, count: *mut c_uint, out: *mut ProcessV1)
        = |call| processes::running(device, count, out, |count, out| call(device, count, out));
    /// Processes behind an MPS server: the tenant's.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: NvmlDevice, count: *mut c_uint, out: *mut Process)
        = |call| processes::running(device, count, out, |count, out| call(device, count, out));
    /// Processes behind an MPS server: the tenant's.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: NvmlDevice, count: *mut c_uint, out: *mut Process)
        = |call| processes::running(device, count, out, |count, out| call(device, count, out));
    /// Utilisation of a device: the tenant's.
    fn nvmlDeviceGetUtilizationRates(device: NvmlDevice, out: *mut Rates)
        = |call| processes::rates(device, out, || call(device, out));
    /// Utilisation by process: of the tenant's.
    fn nvmlDeviceGetProcessUtilization(device: NvmlDevice, out: *mut Sample, count: *mut c_uint, since_us: c_ulonglong)
        = |call| processes::samples(device, count, out, |count, out| call(device, out, count, since_us));
    /// Utilisation by process, in a structure: of the tenant's.
    fn nvmlDeviceGetProcessesUtilizationInfo(device: NvmlDevice, list: *mut Utilizations)
        = |call| structures::utilizations(device, list, |list| call(device, list));
    /// Processes in detail: the tenant's.
    fn nvmlDeviceGetRunningProcessDetailList(device: NvmlDevice, list: *mut Details)
        = |call| structures::details(device, list, |list| call(device, list));
    /// Processes whose use is kept after their end: of the living ones, the tenant's.
    fn nvmlDeviceGetAccountingPids(device: NvmlDevice, count: *mut c_uint, out: *mut c_uint)
        = |call| processes::running(device, count, out, |count, out| call(device, count, out));
    /// What is kept of a process: of the tenant's.
    fn nvmlDeviceGetAccountingStats(device: NvmlDevice, pid: c_uint, out: *mut Accounted)
        = |call| processes::accounted(device, pid, out, || call(device, pid, out));
    /// Utilisation of a device, sample by sample: no more than the tenant's.
    fn nvmlDeviceGetSamples(device: NvmlDevice, kind: c_uint, since_us: c_ulonglong, value: *mut c_uint,
        count: *mut c_uint, out: *mut Value)
        = |call| structures::samples(device, kind, count, out, || call(device, kind, since_us, value, count, out));
    /// The video encoder: shared by all, so not shown.
    fn nvmlDeviceGetEncoderUtilization(device: NvmlDevice, percent: *mut c_uint, period_us: *mut c_uint) = |call| hidden(device, || call(device, percent, period_us));
    /// The video decoder: as the encoder.
    fn nvmlDeviceGetDecoderUtilization(device: NvmlDevice, percent: *mut c_uint, period_us: *mut c_uint) = |call| hidden(device, || call(device, percent, period_us));
    /// The JPEG decoder: as the encoder.
    fn nvmlDeviceGetJpgUtilization(device: NvmlDevice, percent: *mut c_uint, period_us: *mut c_uint) = |call| hidden(device, || call(device, percent, period_us));
    /// The optical flow engine: as the encoder.
    fn nvmlDeviceGetOfaUtilization(device: NvmlDevice, percent: *mut c_uint, period_us: *mut c_uint) = |call| hidden(device, || call(device, percent, period_us));
    /// Sessions of the encoder: everybody's, so not shown.
    fn nvmlDeviceGetEncoderStats(device: NvmlDevice, count: *mut c_uint, fps: *mut c_uint, latency: *mut c_uint) = |call| hidden(device, || call(device, count, fps, latency));
    /// As above, one by one.
    fn nvmlDeviceGetEncoderSessions(device: NvmlDevice, count: *mut c_uint, out: *mut c_void) = |call| hidden(device, || call(device, count, out));
    /// Sessions of the frame buffer capture: as the encoder's.
    fn nvmlDeviceGetFBCStats(device: NvmlDevice, out: *mut c_void) = |call| hidden(device, || call(device, out));
    /// As above, one by one.
    fn nvmlDeviceGetFBCSessions(device: NvmlDevice, count: *mut c_uint, out: *mut c_void) = |call| hidden(device, || call(device, count, out));
    /// The host's window on the memory: what is used of it is everybody's, so not shown.
    fn nvmlDeviceGetBAR1MemoryInfo(device: NvmlDevice, out: *mut c_void) = |call| hidden(device, || call(device, out));
    /// What goes over the bus: everybody's, so not shown.
    fn nvmlDeviceGetPcieThroughput(device: NvmlDevice, counter: c_uint, out: *mut c_uint) = |call| hidden(device, || call(device, counter, out));
    /// Utilisation by part of the card: everybody's, so not shown.
    fn nvmlDeviceGetDynamicPstatesInfo(device: NvmlDevice, out: *mut c_void) = |call| hidden(device, || call(device, out));
    /// Performance counters of the card: everybody's, so none are sampled.
    fn nvmlGpmSampleGet(device: NvmlDevice, sample: *mut c_void) = |call| hidden(device, || call(device, sample));
    /// As above, of a part of the card.
    fn nvmlGpmMigSampleGet(device: NvmlDevice, instance: c_uint, sample: *mut c_void) = |call| hidden(device, || call(device, instance, sample));
}

/// What exists for the whole card alone: on a GPU of the tenant's it is not told, as on a card that cannot tell it.
fn hidden(device: NvmlDevice, call: impl FnOnce() -> NvmlReturn) -> NvmlReturn {
    if tenants_gpu(device, |_| ()).is_some() { NOT_SUPPORTED } else { call() }
}

type Uuid = unsafe extern "C" fn(NvmlDevice, *mut c_char, c_uint) -> NvmlReturn;

static UUID: Real = Real::new();

/// (total, free) of the tenant on the device that NVML means by this handle.
fn tenants_view(device: NvmlDevice) -> Option<(u64, u64)> {
    tenants_gpu(device, |gpu| {
        let (left, limit) = view::left_and_limit(gpu);
        (limit.0, left.0)
    })
}

/// Runs `ours` on the tenant's GPU that NVML means by this handle; `None` if there is none, or for a fault of ours.
pub fn tenants_gpu<R>(device: NvmlDevice, ours: impl FnOnce(&'static Gpu) -> R) -> Option<R> {
    let run = || {
        link::attach(); // a program may ask NVML before it initializes CUDA
        Some(ours(gpu_of(Client::get()?, device)?))
    };
    alone(run).flatten()
}

fn gpu_of(client: &'static Client, device: NvmlDevice) -> Option<&'static Gpu> {
    let real = UUID.get(c_name!(nvmlDeviceGetUUID))?;
    let mut text = [0 as c_char; 96];
    // SAFETY: NVML's function has this type; the buffer is as long as we say (NVML asks for at most 96).
    let result = unsafe { std::mem::transmute::<NonNull<c_void>, Uuid>(real)(device, text.as_mut_ptr(), 96) };
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
