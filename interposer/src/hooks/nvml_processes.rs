//! NVML's lists of processes and its utilisation: of the tenant's own processes alone. Which of NVML's processes those are,
//! the usage page says; what they hold is the ledger's figure, and what they use is what they were charged.

use std::ffi::{c_uint, c_ulonglong};
use std::sync::atomic::Ordering;

use weir_core::lock::Lock;
use weir_protocol::pages::ProcessSlot;
use weir_protocol::units::Nanos;

use super::nvml::tenants_gpu;
use crate::clock;
use crate::link::Gpu;
use crate::nvml::{self, INSUFFICIENT_SIZE, NOT_FOUND, NvmlDevice, NvmlReturn, Process, ProcessV1, SUCCESS};

/// `nvmlUtilization_t`: percent.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Rates {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlProcessUtilizationSample_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Sample {
    pid: c_uint,
    time_us: c_ulonglong,
    percent: [c_uint; 4], // SMs, memory, encoder, decoder
}

/// Shortest time that a figure of utilisation stands for: as NVML's own.
const PERIOD: Nanos = Nanos::from_millis(167);

/// Utilisation of one GPU since it was last asked for.
pub struct Utilization(Lock<Seen>);

struct Seen {
    at: Nanos,
    charged_ns: u64,
    percent: c_uint,
}

/// An entry of a list that NVML makes.
pub(super) trait Entry: Copy {
    fn pid(&self) -> c_uint;
    /// The entry with the ledger's figure in place of the driver's.
    fn holding(self, bytes: u64) -> Self;
}

impl Entry for ProcessV1 {
    fn pid(&self) -> c_uint {
        self.pid
    }

    fn holding(self, used_bytes: u64) -> Self {
        Self { used_bytes, ..self }
    }
}

impl Entry for Process {
    fn pid(&self) -> c_uint {
        self.pid
    }

    fn holding(self, used_bytes: u64) -> Self {
        Self { used_bytes, ..self }
    }
}

impl Entry for c_uint {
    fn pid(&self) -> c_uint {
        *self
    }

    fn holding(self, _bytes: u64) -> Self {
        self
    }
}

impl Entry for Sample {
    fn pid(&self) -> c_uint {
        self.pid
    }

    fn holding(self, _bytes: u64) -> Self {
        self
    }
}

/// The processes of a list.
#[allow(private_bounds, reason = "the lists that NVML makes, and no others")]
pub fn running<T: Entry>(
    device: NvmlDevice,
    count: *mut c_uint,
    out: *mut T,
    ask: impl Fn(*mut c_uint, *mut T) -> NvmlReturn,
) -> NvmlReturn {
    match own(device, count, &ask) {
        Some(Ok(entries)) => answer(&entries, count, out),
        Some(Err(error)) => error,
        None => ask(count, out),
    }
}

/// As above; without any sample NVML says that it has found none.
#[allow(private_bounds, reason = "as above")]
pub fn samples<T: Entry>(
    device: NvmlDevice,
    count: *mut c_uint,
    out: *mut T,
    ask: impl Fn(*mut c_uint, *mut T) -> NvmlReturn,
) -> NvmlReturn {
    match own(device, count, &ask) {
        Some(Ok(entries)) if entries.is_empty() => NOT_FOUND,
        Some(Ok(entries)) => answer(&entries, count, out),
        Some(Err(error)) => error,
        None => ask(count, out),
    }
}

/// The tenant's own entries of a list; `None` where the tenant has no say.
fn own<T: Entry>(
    device: NvmlDevice,
    count: *mut c_uint,
    ask: &impl Fn(*mut c_uint, *mut T) -> NvmlReturn,
) -> Option<Result<Vec<T>, NvmlReturn>> {
    if count.is_null() {
        return None; // NVML says what it thinks of that
    }
    tenants_gpu(device, |gpu| {
        let all: Vec<T> = nvml::list(ask)?;
        let own = |entry: T| Some(entry.holding(held(slot_of(gpu, entry.pid())?)));
        Ok(all.into_iter().filter_map(own).collect())
    })
}

/// Whether a process is none of the tenant's, on a device where the tenant has a say.
pub fn is_strange(device: NvmlDevice, pid: c_uint) -> bool {
    tenants_gpu(device, |gpu| slot_of(gpu, pid).is_none()).unwrap_or(false)
}

/// What the tenant was charged lately, in percent; `None` where the tenant has no say.
pub fn percent(device: NvmlDevice) -> Option<c_uint> {
    tenants_gpu(device, |gpu| gpu.utilization.percent(clock::now(), charged_ns(gpu)))
}

fn held(slot: &ProcessSlot) -> u64 {
    slot.held_bytes.load(Ordering::Relaxed)
}

/// The tenant's process with this number. NVML may count in the manager's namespace or, for ourselves, in ours.
fn slot_of(gpu: &Gpu, pid: c_uint) -> Option<&ProcessSlot> {
    if pid == std::process::id() {
        return Some(gpu.slot());
    }
    gpu.usage.slots.iter().find(|slot| pid != 0 && slot.pid.load(Ordering::Relaxed) == pid)
}

/// Answers as NVML does: the number that there are, and the entries if there is room for them.
fn answer<T: Entry>(entries: &[T], count: *mut c_uint, out: *mut T) -> NvmlReturn {
    // SAFETY: not null, and an argument of the call in progress: how much room there is.
    let room = unsafe { count.replace(c_uint::try_from(entries.len()).unwrap_or(c_uint::MAX)) };
    if entries.is_empty() {
        return SUCCESS;
    }
    if out.is_null() || entries.len() > room as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller says that it has room for that many.
    unsafe { std::ptr::copy_nonoverlapping(entries.as_ptr(), out, entries.len()) };
    SUCCESS
}

/// What the tenant was charged of the GPU, in percent.
pub fn rates(device: NvmlDevice, out: *mut Rates, call: impl FnOnce() -> NvmlReturn) -> NvmlReturn {
    let result = call();
    // SAFETY: NVML has just written it.
    if let (SUCCESS, Some(rates)) = (result, unsafe { out.as_mut() })
        && let Some(gpu) = percent(device)
    {
        // Of memory traffic nobody knows whose it was: no more than the tenant's part can be its own.
        *rates = Rates { gpu, memory: rates.memory.min(gpu) };
    }
    result
}

fn charged_ns(gpu: &Gpu) -> u64 {
    let lanes = gpu.usage.slots.iter().flat_map(|slot| &slot.lanes);
    lanes.fold(0, |sum, lane| sum.saturating_add(lane.charged_ns.load(Ordering::Relaxed)))
}

impl Utilization {
    /// From now on.
    pub fn start() -> Self {
        Self(Lock::new(Seen { at: clock::now(), charged_ns: 0, percent: 0 }))
    }

    /// Percent of the time since it was asked for before; within [`PERIOD`] the same answer again.
    fn percent(&self, now: Nanos, charged_ns: u64) -> c_uint {
        let mut seen = self.0.lock();
        let elapsed = now.since(seen.at);
        if elapsed >= PERIOD {
            let percent = charged_ns.saturating_sub(seen.charged_ns).saturating_mul(100) / elapsed.0.max(1);
            let percent = c_uint::try_from(percent.min(100)).unwrap_or(100);
            *seen = Seen { at: now, charged_ns, percent };
        }
        seen.percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilisation_is_what_was_charged_over_the_time_since_the_last_question() {
        let utilization = Utilization(Lock::new(Seen { at: Nanos(0), charged_ns: 0, percent: 0 }));
        assert_eq!(utilization.percent(Nanos::from_secs(1), 300_000_000), 30);
        assert_eq!(utilization.percent(Nanos(1_001_000_000), 301_000_000), 30, "too soon");
        assert_eq!(utilization.percent(Nanos::from_secs(2), 9_000_000_000), 100);
        assert_eq!(utilization.percent(Nanos::from_secs(3), 0), 0, "whoever was charged is dead");
    }

    #[test]
    fn a_list_that_does_not_fit_says_how_long_it_is() {
        let entries = [ProcessV1 { pid: 7, used_bytes: 1 }; 3];
        let mut out = [ProcessV1 { pid: 0, used_bytes: 0 }; 3];
        let mut count = 2;
        assert_eq!(answer(&entries, &raw mut count, out.as_mut_ptr()), INSUFFICIENT_SIZE);
        assert_eq!((count, out[0].pid), (3, 0));
        assert_eq!(answer(&entries, &raw mut count, out.as_mut_ptr()), SUCCESS);
        assert_eq!(out[2].pid, 7);
    }
}
