//! What NVML says of this process and of the card, for our own use: the one source that can tell what a context costs.
//!
//! NVML is opened and initialized at the first context, never earlier, and stays open. Every answer may be missing: there
//! is no NVML, or a container hides the processes.

use std::ffi::{c_char, c_uint, c_void};
use std::sync::atomic::Ordering;

use weir_protocol::units::Bytes;

use crate::link::Gpu;
use crate::made::Made;
use crate::resolve::driver_symbol;

/// `nvmlReturn_t`: zero is success.
pub type NvmlReturn = c_uint;

/// `nvmlDevice_t`
pub type NvmlDevice = *mut c_void;

/// Done.
pub const SUCCESS: NvmlReturn = 0;
/// The device cannot do this.
pub const NOT_SUPPORTED: NvmlReturn = 3;
/// Nothing was found.
pub const NOT_FOUND: NvmlReturn = 6;
/// The caller's buffer is too small.
pub const INSUFFICIENT_SIZE: NvmlReturn = 7;
/// The library lacks the function.
pub const FUNCTION_NOT_FOUND: NvmlReturn = 13;

/// `nvmlProcessInfo_v1_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ProcessV1 {
    /// Process id.
    pub pid: c_uint,
    /// Memory, in bytes.
    pub used_bytes: u64,
}

/// `nvmlProcessInfo_t` of the second and third version.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Process {
    /// Process id.
    pub pid: c_uint,
    /// Memory, in bytes.
    pub used_bytes: u64,
    /// MIG instances, or none.
    pub instances: [c_uint; 2],
}

/// `nvmlMemory_t`
#[repr(C)]
pub struct Memory {
    /// All there is, in bytes.
    pub total: u64,
    /// In bytes.
    pub free: u64,
    /// In bytes.
    pub used: u64,
}

type Init = unsafe extern "C" fn() -> NvmlReturn;
type ByUuid = unsafe extern "C" fn(*const c_char, *mut NvmlDevice) -> NvmlReturn;
type Processes = unsafe extern "C" fn(NvmlDevice, *mut c_uint, *mut Process) -> NvmlReturn;
type MemoryInfo = unsafe extern "C" fn(NvmlDevice, *mut Memory) -> NvmlReturn;

/// The few functions that we call.
struct Library {
    by_uuid: ByUuid,
    processes: Processes,
    memory: MemoryInfo,
}

/// Processes on a card for which there is room at the first try.
const PROCESSES: usize = 64;

/// `NVML_VALUE_NOT_AVAILABLE`
const NOT_AVAILABLE: u64 = u64::MAX;

fn library() -> Option<&'static Library> {
    static LIBRARY: Made<Option<Library>> = Made::new();
    LIBRARY.get(open).as_ref()
}

fn open() -> Option<Library> {
    let find = |names: &[&std::ffi::CStr]| names.iter().find_map(|name| driver_symbol(name));
    let init = find(&[c"nvmlInit_v2"])?;
    // SAFETY: NVML's functions of these names have these types; the second and third version of the process list share
    // their layout.
    unsafe {
        let library = Library {
            by_uuid: std::mem::transmute::<*const c_void, ByUuid>(find(&[c"nvmlDeviceGetHandleByUUID"])?),
            processes: std::mem::transmute::<*const c_void, Processes>(find(&[
                c"nvmlDeviceGetComputeRunningProcesses_v3",
                c"nvmlDeviceGetComputeRunningProcesses_v2",
            ])?),
            memory: std::mem::transmute::<*const c_void, MemoryInfo>(find(&[c"nvmlDeviceGetMemoryInfo"])?),
        };
        (std::mem::transmute::<*const c_void, Init>(init)() == SUCCESS).then_some(library)
    }
}

/// NVML's handle of a GPU.
fn device(library: &Library, gpu: &Gpu) -> Option<NvmlDevice> {
    let hex: String = gpu.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
    let parts = [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)];
    let uuid = std::ffi::CString::new(format!("GPU-{}", parts.join("-"))).ok()?;
    let mut device = std::ptr::null_mut();
    // SAFETY: a C string, and a place for the answer.
    let result = unsafe { (library.by_uuid)(uuid.as_ptr(), &raw mut device) };
    (result == SUCCESS).then_some(device)
}

/// What NVML says of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// It is not on the card, or hidden from us.
    Absent,
    /// It is there, and has so much.
    Holds(Bytes),
}

/// What this process has of the card, by NVML's account; `None` if it does not say.
pub fn own_used(gpu: &Gpu) -> Option<Own> {
    let library = library()?;
    let device = device(library, gpu)?;
    let all: Vec<Process> = list(|count, out| {
        // SAFETY: NVML writes at most `count` elements.
        unsafe { (library.processes)(device, count, out) }
    })
    .ok()?;
    // Relaxed: written before we were told of our slot. NVML may count in the manager's namespace or in ours.
    let known = [gpu.slot().pid.load(Ordering::Relaxed), std::process::id()];
    match known.iter().find_map(|pid| all.iter().find(|process| process.pid == *pid)) {
        Some(process) if process.used_bytes == NOT_AVAILABLE => None,
        Some(process) => Some(Own::Holds(Bytes(process.used_bytes))),
        None => Some(Own::Absent),
    }
}

/// What everybody together has of the card.
pub fn card_used(gpu: &Gpu) -> Option<Bytes> {
    let library = library()?;
    let device = device(library, gpu)?;
    let mut memory = Memory { total: 0, free: 0, used: 0 };
    // SAFETY: a place for the answer.
    let result = unsafe { (library.memory)(device, &raw mut memory) };
    (result == SUCCESS).then_some(Bytes(memory.used))
}

/// Asks NVML for a list, with a buffer that grows until it suffices.
///
/// # Errors
/// NVML's own.
pub fn list<T>(mut ask: impl FnMut(*mut c_uint, *mut T) -> NvmlReturn) -> Result<Vec<T>, NvmlReturn> {
    let mut room = PROCESSES;
    loop {
        let mut entries: Vec<T> = Vec::with_capacity(room);
        let mut count = c_uint::try_from(room).unwrap_or(0);
        match ask(&raw mut count, entries.as_mut_ptr()) {
            SUCCESS => {
                // SAFETY: NVML has written `count` elements, at most as many as there is room for.
                unsafe { entries.set_len((count as usize).min(room)) };
                return Ok(entries);
            }
            INSUFFICIENT_SIZE if room < PROCESSES << 8 => room *= 4,
            error => return Err(error),
        }
    }
}
