//! NVML's younger lists, which stand in structures, and its samples. What they show is of [`super::nvml_processes`].

use std::ffi::{c_uint, c_ulonglong};

use super::nvml_processes::{self as processes, Entry, Own};
use crate::nvml::{NvmlDevice, NvmlReturn, SUCCESS};

/// `nvmlProcessUtilizationInfo_v1_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Utilization {
    time_us: c_ulonglong,
    pid: c_uint,
    percent: [c_uint; 6], // SMs, memory, encoder, decoder, JPEG, optical flow
}

/// `nvmlProcessesUtilizationInfo_v1_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Utilizations {
    version: c_uint,
    count: c_uint,
    since_us: c_ulonglong,
    entries: *mut Utilization,
}

/// `nvmlProcessDetail_v1_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Detail {
    pid: c_uint,
    used_bytes: c_ulonglong,
    instances: [c_uint; 2],
    protected_bytes: c_ulonglong,
}

/// `nvmlProcessDetailList_v1_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Details {
    version: c_uint,
    mode: c_uint,
    count: c_uint,
    entries: *mut Detail,
}

/// `nvmlSample_t`; the values that we touch are numbers without sign.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Value {
    time_us: c_ulonglong,
    value: c_ulonglong,
}

const _: () = {
    assert!(size_of::<Utilization>() == 40 && size_of::<Utilizations>() == 24);
    assert!(size_of::<Detail>() == 32 && size_of::<Details>() == 24 && size_of::<Value>() == 16);
};

/// `NVML_GPU_UTILIZATION_SAMPLES` and `NVML_MEMORY_UTILIZATION_SAMPLES`
const UTILIZATIONS: [c_uint; 2] = [1, 2];

impl Entry for Utilization {
    fn pid(&self) -> c_uint {
        self.pid
    }

    fn showing(mut self, own: &Own) -> Self {
        self.percent[0] = own.sm_percent;
        self
    }
}

impl Entry for Detail {
    fn pid(&self) -> c_uint {
        self.pid
    }

    fn showing(self, own: &Own) -> Self {
        Self { used_bytes: own.held_bytes, ..self }
    }
}

/// Utilisation by process.
pub fn utilizations(
    device: NvmlDevice,
    list: *mut Utilizations,
    call: impl Fn(*mut Utilizations) -> NvmlReturn,
) -> NvmlReturn {
    // SAFETY: the caller passes a structure or null; NVML reads the same fields.
    let Some(asked) = (unsafe { list.as_mut() }) else { return call(list) };
    let given = *asked;
    let ask = |count: *mut c_uint, entries| {
        // SAFETY: a place of ours, or of the structure above.
        let mut inner = Utilizations { count: unsafe { *count }, entries, ..given };
        let result = call(&raw mut inner);
        // SAFETY: as above.
        unsafe { *count = inner.count };
        result
    };
    processes::samples(device, &raw mut asked.count, given.entries, ask)
}

/// Processes in detail.
pub fn details(
    device: NvmlDevice,
    list: *mut Details,
    call: impl Fn(*mut Details) -> NvmlReturn,
) -> NvmlReturn {
    // SAFETY: as above.
    let Some(asked) = (unsafe { list.as_mut() }) else { return call(list) };
    let given = *asked;
    let ask = |count: *mut c_uint, entries| {
        // SAFETY: a place of ours, or of the structure above.
        let mut inner = Details { count: unsafe { *count }, entries, ..given };
        let result = call(&raw mut inner);
        // SAFETY: as above.
        unsafe { *count = inner.count };
        result
    };
    processes::running(device, &raw mut asked.count, given.entries, ask)
}

/// Samples of a device. Which of what is sampled was the tenant's, nobody knows: no more than it was charged lately.
pub fn samples(
    device: NvmlDevice,
    kind: c_uint,
    count: *mut c_uint,
    out: *mut Value,
    call: impl FnOnce() -> NvmlReturn,
) -> NvmlReturn {
    let result = call();
    if result != SUCCESS || !UTILIZATIONS.contains(&kind) || count.is_null() || out.is_null() {
        return result;
    }
    if let Some(most) = processes::percent(device) {
        // SAFETY: NVML has just written that many samples.
        let samples = unsafe { std::slice::from_raw_parts_mut(out, *count as usize) };
        samples.iter_mut().for_each(|sample| sample.value = sample.value.min(most.into()));
    }
    result
}
