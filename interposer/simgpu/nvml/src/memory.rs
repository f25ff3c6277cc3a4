//! Device memory.

use std::ffi::{c_uint, c_ulonglong};

use crate::device::{Handle, place};
use crate::edge::{ARGUMENT_VERSION_MISMATCH, Answer, get, put};
use crate::{fault, nvml, session};

/// `nvmlMemory_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// Version word of a structure: its size, and the version in the highest byte.
const MEMORY_V2: c_uint = 40 | 2 << 24;
const _: () = assert!(size_of::<MemoryV2>() == 40);

/// Total and used bytes.
fn figures(device: Handle) -> Answer<(u64, u64)> {
    let gpu = session::gpu(place(device)?)?;
    Ok((gpu.memory_total, fault::figure(gpu.memory_used)))
}

nvml! {
    /// Memory of the device, bytes.
    fn nvmlDeviceGetMemoryInfo(device: Handle, out: *mut Memory) {
        let (total, used) = figures(device)?;
        put(out, Memory { total, free: total.saturating_sub(used), used })
    }
    /// The same with what the driver keeps apart: nothing here.
    fn nvmlDeviceGetMemoryInfo_v2(device: Handle, out: *mut MemoryV2) {
        let version = get(out.cast::<c_uint>().cast_const())?;
        if version != MEMORY_V2 {
            return Err(ARGUMENT_VERSION_MISMATCH);
        }
        let (total, used) = figures(device)?;
        put(out, MemoryV2 { version, total, reserved: 0, free: total.saturating_sub(used), used })
    }
    /// The window through which the host sees device memory: all of it.
    fn nvmlDeviceGetBAR1MemoryInfo(device: Handle, out: *mut Memory) {
        let (total, used) = figures(device)?;
        put(out, Memory { total, free: total.saturating_sub(used), used })
    }
}
