//! Who uses a device, and how much of it.

use std::collections::HashMap;
use std::ffi::{c_uint, c_ulonglong};
use std::sync::Mutex;

use weir_simgpu_link::books::{Books, Client};
use weir_simgpu_link::config::ProcessMemory;

use crate::device::{Handle, place};
use crate::edge::{
    ARGUMENT_VERSION_MISMATCH, Answer, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, get, put, put_list,
};
use crate::session::locked;
use crate::{fault, nvml, session};

/// `NVML_VALUE_NOT_AVAILABLE`, as a size.
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;
/// No MIG instance.
const NO_INSTANCE: c_uint = c_uint::MAX;

/// `nvmlProcessInfo_v1_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ProcessV1 {
    pid: c_uint,
    used_memory: c_ulonglong,
}

/// `nvmlProcessInfo_t` of the second and third version.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Process {
    pid: c_uint,
    used_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlUtilization_t`, percent.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlProcessUtilizationSample_t`: percent, and microseconds.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Sample {
    pid: c_uint,
    time_us: c_ulonglong,
    sm: c_uint,
    memory: c_uint,
    encoder: c_uint,
    decoder: c_uint,
}

/// `nvmlProcessUtilizationInfo_v1_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Utilized {
    time_us: c_ulonglong,
    pid: c_uint,
    percent: [c_uint; 6],
}

/// `nvmlProcessesUtilizationInfo_v1_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UtilizedList {
    version: c_uint,
    count: c_uint,
    last_seen_us: c_ulonglong,
    entries: *mut Utilized,
}

/// `nvmlProcessDetail_v1_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Detail {
    pid: c_uint,
    used_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
    protected_memory: c_ulonglong,
}

/// `nvmlProcessDetailList_v1_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DetailList {
    version: c_uint,
    mode: c_uint,
    count: c_uint,
    entries: *mut Detail,
}

/// Version 1 of either list: NVML puts the structure's size beside it.
const LIST_VERSION: c_uint = 1 << 24 | 24;

/// `nvmlAccountingStats_t`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Accounted {
    gpu_percent: c_uint,
    memory_percent: c_uint,
    max_memory: c_ulonglong,
    time_ms: c_ulonglong,
    start_time_us: c_ulonglong,
    is_running: c_uint,
    reserved: [c_uint; 5],
}

/// `nvmlSample_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DeviceSample {
    time_us: c_ulonglong,
    value: c_ulonglong,
}

/// `NVML_GPU_UTILIZATION_SAMPLES`, and the type of its values.
const GPU_UTILIZATION: c_uint = 1;
const UNSIGNED: c_uint = 1;

/// The last look at the books: when, and what each process had used until then on each device, ns.
struct Last {
    now_ns: u64,
    used_ns: Vec<HashMap<i32, u64>>,
}

static LAST: Mutex<Option<Last>> = Mutex::new(None);

/// Whether a process counts as running on a device: alive, with a context.
fn running(client: &&Client) -> bool {
    client.alive && !client.contexts.is_empty()
}

fn used_ns(client: &Client) -> u64 {
    client.contexts.iter().map(|context| context.true_use_ns).sum()
}

fn look(books: &Books) -> Last {
    let of = |gpu: &weir_simgpu_link::books::Gpu| {
        gpu.clients.iter().map(|client| (client.pid, used_ns(client))).collect()
    };
    Last { now_ns: books.now_ns, used_ns: books.gpus.iter().map(of).collect() }
}

/// Takes the first look, from which the first samples are counted.
pub fn begin(books: &Books) {
    *locked(&LAST) = Some(look(books));
}

fn processes(device: Handle) -> Answer<Vec<Process>> {
    let (gpu, says) = (session::gpu(place(device)?)?, session::current()?.config().process_memory);
    if says == ProcessMemory::Absent {
        return Ok(Vec::new());
    }
    let held = |client: &Client| match says {
        ProcessMemory::Shown | ProcessMemory::Absent if client.alive => client.memory_bytes,
        ProcessMemory::Shown | ProcessMemory::Absent => client.memory_peak_bytes,
        ProcessMemory::Zero => 0,
        ProcessMemory::Unavailable => NOT_AVAILABLE,
    };
    let of = |client: &Client| Process {
        pid: client.pid.cast_unsigned(),
        used_memory: fault::figure(held(client)),
        gpu_instance: NO_INSTANCE,
        compute_instance: NO_INSTANCE,
    };
    let listed = |client: &&Client| running(client) || fault::lingers() && !client.contexts.is_empty();
    Ok(fault::list(gpu.clients.iter().filter(listed).map(of).collect()))
}

fn older(processes: Vec<Process>) -> Vec<ProcessV1> {
    processes.into_iter().map(|Process { pid, used_memory, .. }| ProcessV1 { pid, used_memory }).collect()
}

/// Percent of the time since the last look that each process had the device.
fn samples(device: usize, last_seen_us: u64) -> Answer<Vec<Sample>> {
    let books = session::books()?;
    let fresh = look(&books);
    let last = locked(&LAST).replace(fresh);
    let time_us = books.now_ns / 1_000;
    let (Some(last), Some(gpu)) = (last, books.gpus.get(device)) else { return Ok(Vec::new()) };
    let span_ns = books.now_ns.saturating_sub(last.now_ns).max(1);
    if time_us <= last_seen_us {
        return Ok(Vec::new());
    }
    let sample = |client: &Client| {
        let before = last.used_ns.get(device).and_then(|used| used.get(&client.pid)).copied().unwrap_or(0);
        let percent = used_ns(client).saturating_sub(before).saturating_mul(100) / span_ns;
        let sm = c_uint::try_from(percent.min(100)).unwrap_or(100);
        Sample { pid: client.pid.cast_unsigned(), time_us, sm, memory: 0, encoder: 0, decoder: 0 }
    };
    Ok(gpu.clients.iter().filter(running).map(sample).collect())
}

/// A structure of the one version that there is.
fn of_version<T>(list: T, version: impl FnOnce(&T) -> c_uint) -> Answer<T> {
    if version(&list) == LIST_VERSION { Ok(list) } else { Err(ARGUMENT_VERSION_MISMATCH) }
}

nvml! {
    /// Processes with a context, oldest layout.
    fn nvmlDeviceGetComputeRunningProcesses(device: Handle, count: *mut c_uint, out: *mut ProcessV1) {
        put_list(out, count, &older(processes(device)?))
    }
    /// Processes with a context.
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: Handle, count: *mut c_uint, out: *mut Process) {
        put_list(out, count, &processes(device)?)
    }
    /// Processes with a context.
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Handle, count: *mut c_uint, out: *mut Process) {
        put_list(out, count, &processes(device)?)
    }
    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses(device: Handle, count: *mut c_uint, _out: *mut ProcessV1) {
        place(device)?;
        put(count, 0)
    }
    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: Handle, count: *mut c_uint, _out: *mut Process) {
        place(device)?;
        put(count, 0)
    }
    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: Handle, count: *mut c_uint, _out: *mut Process) {
        place(device)?;
        put(count, 0)
    }
    /// Processes behind an MPS server: in this simulation they show as what they are.
    fn nvmlDeviceGetMPSComputeRunningProcesses(device: Handle, count: *mut c_uint, _out: *mut ProcessV1) {
        place(device)?;
        put(count, 0)
    }
    /// Processes behind an MPS server: as above.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: Handle, count: *mut c_uint, _out: *mut Process) {
        place(device)?;
        put(count, 0)
    }
    /// Processes behind an MPS server: as above.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Handle, count: *mut c_uint, _out: *mut Process) {
        place(device)?;
        put(count, 0)
    }
    /// Percent of about the last second in which the device was busy.
    fn nvmlDeviceGetUtilizationRates(device: Handle, out: *mut Utilization) {
        let gpu = session::gpu(place(device)?)?;
        put(out, Utilization { gpu: gpu.recent_busy_percent, memory: 0 })
    }
    /// Percent of the time since the last call that each process had the device.
    fn nvmlDeviceGetProcessUtilization(device: Handle, out: *mut Sample, count: *mut c_uint, last_seen_us: c_ulonglong) {
        let samples = samples(place(device)?, last_seen_us)?;
        if samples.is_empty() { Err(NOT_FOUND) } else { put_list(out, count, &samples) }
    }
    /// As above, in a structure.
    fn nvmlDeviceGetProcessesUtilizationInfo(device: Handle, list: *mut UtilizedList) {
        let asked = of_version(get(list)?, |list| list.version)?;
        let samples = samples(place(device)?, asked.last_seen_us)?;
        let of = |sample: &Sample| {
            let &Sample { pid, time_us, sm, .. } = sample;
            Utilized { time_us, pid, percent: [sm, 0, 0, 0, 0, 0] }
        };
        let samples: Vec<_> = samples.iter().map(of).collect();
        // SAFETY: `get` has found it not null.
        let count = unsafe { &raw mut (*list).count };
        if samples.is_empty() { Err(NOT_FOUND) } else { put_list(asked.entries, count, &samples) }
    }
    /// Processes with a context, with what confidential computing protects: nothing.
    fn nvmlDeviceGetRunningProcessDetailList(device: Handle, list: *mut DetailList) {
        let asked = of_version(get(list)?, |list| list.version)?;
        let of = |process: Process| {
            let Process { pid, used_memory, gpu_instance, compute_instance } = process;
            Detail { pid, used_memory, gpu_instance, compute_instance, protected_memory: 0 }
        };
        let details: Vec<_> = processes(device)?.into_iter().map(of).collect();
        // SAFETY: `get` has found it not null.
        put_list(asked.entries, unsafe { &raw mut (*list).count }, &details)
    }
    /// Processes that are accounted for, at most: as a real driver says.
    fn nvmlDeviceGetAccountingBufferSize(device: Handle, out: *mut c_uint) {
        place(device)?;
        put(out, 4_000)
    }
    /// Processes that are accounted for: those with a context.
    fn nvmlDeviceGetAccountingPids(device: Handle, count: *mut c_uint, out: *mut c_uint) {
        let pids: Vec<_> = processes(device)?.into_iter().map(|process| process.pid).collect();
        put_list(out, count, &pids)
    }
    /// What a process that runs has used.
    fn nvmlDeviceGetAccountingStats(device: Handle, pid: c_uint, out: *mut Accounted) {
        let gpu = session::gpu(place(device)?)?;
        let mut running = gpu.clients.iter().filter(running);
        let client = running.find(|client| client.pid.cast_unsigned() == pid).ok_or(NOT_FOUND)?;
        let max_memory = client.memory_peak_bytes;
        put(out, Accounted { max_memory, is_running: 1, ..Accounted::default() })
    }
    /// One sample of utilisation: percent of about the last second. Other kinds are not sampled.
    fn nvmlDeviceGetSamples(device: Handle, kind: c_uint, _last_seen_us: c_ulonglong, value: *mut c_uint,
        count: *mut c_uint, out: *mut DeviceSample) {
        if kind != GPU_UTILIZATION {
            return Err(NOT_SUPPORTED);
        }
        let (books, device) = (session::books()?, place(device)?);
        let gpu = books.gpus.get(device).ok_or(INVALID_ARGUMENT)?;
        put(value, UNSIGNED)?;
        if out.is_null() {
            return put(count, 1); // the caller asks how much room it needs
        }
        let sample = DeviceSample { time_us: books.now_ns / 1_000, value: gpu.recent_busy_percent.into() };
        put_list(out, count, &[sample])
    }
}
