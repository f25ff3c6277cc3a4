//! NVML's lists of processes and its utilisation: of the tenant's own processes alone. Which of NVML's processes those are,
//! the usage page says; what they hold is the ledger's figure, and what they use of the SMs is what they were charged, process
//! by process. What NVML says of a process's memory traffic and of its video engines stays as it is: we know no better, and it
//! is no neighbour's.

use std::ffi::{c_uint, c_ulonglong};
use std::sync::atomic::Ordering;

use weir_core::lock::{Guard, Lock};
use weir_protocol::pages::{PROCESS_SLOTS, ProcessSlot};
use weir_protocol::units::Nanos;

use super::nvml::tenants_gpu;
use crate::link::Gpu;
use crate::nvml::{self, INSUFFICIENT_SIZE, NOT_FOUND, NvmlDevice, NvmlReturn, Process, ProcessV1, SUCCESS};
use crate::{clock, failpoint};

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

/// `nvmlAccountingStats_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Accounted {
    percent: [c_uint; 2], // SMs, memory
    peak_bytes: c_ulonglong,
    time_ms: c_ulonglong,
    started_us: c_ulonglong,
    is_running: c_uint,
    reserved: [c_uint; 5],
}

const _: () = assert!(size_of::<Sample>() == 32 && size_of::<Accounted>() == 56);

/// Utilisation of one GPU since it was last asked for, by the tenant's processes.
pub struct Utilization(Lock<Seen>);

struct Seen {
    at: Nanos,
    elapsed: Nanos,
    slots: [Charged; PROCESS_SLOTS],
}

/// What the process in one slot was charged.
#[derive(Clone, Copy, Default)]
struct Charged {
    pid: c_uint,
    total_ns: u64,
    lately_ns: u64, // between the last two looks
    since: Nanos,   // as long as it is known to be there
    before_ns: u64, // what it had been charged then
}

/// Our figures of a process.
pub(super) struct Own {
    pub held_bytes: u64,
    pub sm_percent: c_uint,
}

/// An entry of a list that NVML makes.
pub(super) trait Entry: Copy {
    fn pid(&self) -> c_uint;
    /// The entry with our figures in place of the driver's.
    fn showing(self, own: &Own) -> Self;
}

impl Entry for ProcessV1 {
    fn pid(&self) -> c_uint {
        self.pid
    }

    fn showing(self, own: &Own) -> Self {
        Self { used_bytes: own.held_bytes, ..self }
    }
}

impl Entry for Process {
    fn pid(&self) -> c_uint {
        self.pid
    }

    fn showing(self, own: &Own) -> Self {
        Self { used_bytes: own.held_bytes, ..self }
    }
}

impl Entry for c_uint {
    fn pid(&self) -> c_uint {
        *self
    }

    fn showing(self, _own: &Own) -> Self {
        self
    }
}

impl Entry for Sample {
    fn pid(&self) -> c_uint {
        self.pid
    }

    fn showing(mut self, own: &Own) -> Self {
        self.percent[0] = own.sm_percent;
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
        failpoint::pass();
        let seen = gpu.utilization.look(clock::now(), &gpu.usage.slots);
        let own = |entry: T| {
            let (at, slot) = slot_of(gpu, entry.pid())?;
            let held_bytes = slot.held_bytes.load(Ordering::Relaxed);
            Some(entry.showing(&Own { held_bytes, sm_percent: seen.lately(at) }))
        };
        Ok(all.into_iter().filter_map(own).collect())
    })
}

/// What is kept of a process, with our figures in place of the driver's; of the tenant's processes alone.
pub fn accounted(
    device: NvmlDevice,
    pid: c_uint,
    out: *mut Accounted,
    call: impl FnOnce() -> NvmlReturn,
) -> NvmlReturn {
    let ours = tenants_gpu(device, |gpu| {
        let (at, slot) = slot_of(gpu, pid)?;
        let seen = gpu.utilization.look(clock::now(), &gpu.usage.slots);
        Some((seen.on_the_whole(at), slot.peak_bytes.load(Ordering::Relaxed)))
    });
    let Some(ours) = ours else { return call() };
    let Some((sm_percent, peak_bytes)) = ours else { return NOT_FOUND };
    let result = call();
    // SAFETY: NVML has just written it.
    if let (SUCCESS, Some(accounted)) = (result, unsafe { out.as_mut() }) {
        accounted.percent[0] = sm_percent;
        accounted.peak_bytes = peak_bytes;
    }
    result
}

/// What the tenant was charged lately, in percent; `None` where the tenant has no say.
pub fn percent(device: NvmlDevice) -> Option<c_uint> {
    tenants_gpu(device, |gpu| gpu.utilization.look(clock::now(), &gpu.usage.slots).of_all())
}

/// The tenant's process with this number, and where its slot lies. NVML may count in the manager's namespace or, for ourselves, in ours.
fn slot_of(gpu: &Gpu, pid: c_uint) -> Option<(usize, &ProcessSlot)> {
    if pid == std::process::id() {
        return Some((gpu.slot_index(), gpu.slot()));
    }
    let mut slots = gpu.usage.slots.iter().enumerate();
    slots.find(|(_, slot)| pid != 0 && slot.pid.load(Ordering::Relaxed) == pid)
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

impl Utilization {
    /// From now on: what these processes were charged before does not count.
    pub fn start(slots: &[ProcessSlot]) -> Self {
        Self::start_at(clock::now(), slots)
    }

    fn start_at(now: Nanos, slots: &[ProcessSlot]) -> Self {
        let mut seen = Seen { at: now, elapsed: Nanos(0), slots: [Charged::default(); PROCESS_SLOTS] };
        for (charged, slot) in seen.slots.iter_mut().zip(slots) {
            charged.goes_on(slot, now);
            *charged = Charged { lately_ns: 0, before_ns: charged.total_ns, ..*charged };
        }
        Self(Lock::new(seen))
    }

    /// What was charged since it was asked for before; within [`PERIOD`] the same answer again.
    fn look(&self, now: Nanos, slots: &[ProcessSlot]) -> Guard<'_, Seen> {
        let mut seen = self.0.lock();
        let (before, elapsed) = (seen.at, now.since(seen.at));
        if elapsed >= PERIOD {
            seen.slots.iter_mut().zip(slots).for_each(|(charged, slot)| charged.goes_on(slot, before));
            (seen.at, seen.elapsed) = (now, elapsed);
        }
        seen
    }
}

impl Charged {
    /// Another look. Whoever has the slot now and had not at the last look has come since.
    fn goes_on(&mut self, slot: &ProcessSlot, last: Nanos) {
        let pid = slot.pid.load(Ordering::Relaxed);
        if pid != self.pid {
            *self = Self { pid, since: last, ..Self::default() };
        }
        let lanes = slot.lanes.iter().map(|lane| lane.charged_ns.load(Ordering::Relaxed));
        let total_ns = lanes.fold(0, u64::saturating_add);
        (self.lately_ns, self.total_ns) = (total_ns.saturating_sub(self.total_ns), total_ns);
    }
}

impl Seen {
    /// What the process in a slot was charged lately, in percent of that time.
    fn lately(&self, slot: usize) -> c_uint {
        percent_of(self.of(slot).lately_ns, self.elapsed)
    }

    /// What it was charged as long as it was there and this process was, in percent of that time.
    fn on_the_whole(&self, slot: usize) -> c_uint {
        let Charged { total_ns, since, before_ns, .. } = self.of(slot);
        percent_of(total_ns.saturating_sub(before_ns), self.at.since(since))
    }

    fn of(&self, slot: usize) -> Charged {
        self.slots.get(slot).copied().unwrap_or_default()
    }

    /// What all of them were charged lately.
    fn of_all(&self) -> c_uint {
        percent_of(self.slots.iter().map(|slot| slot.lately_ns).fold(0, u64::saturating_add), self.elapsed)
    }
}

fn percent_of(ns: u64, elapsed: Nanos) -> c_uint {
    let percent = ns.saturating_mul(100) / elapsed.0.max(1);
    c_uint::try_from(percent.min(100)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::a_gpu;

    #[test]
    fn utilisation_is_what_each_process_was_charged_over_the_time_since_the_last_question() {
        let slots = &a_gpu().usage.slots;
        let charge = |slot: usize, pid, ns| {
            let slot = slots.get(slot).unwrap();
            slot.pid.store(pid, Ordering::Relaxed);
            slot.lanes[1].charged_ns.store(ns, Ordering::Relaxed);
        };
        charge(1, 7, 5_000_000_000);
        let utilization = Utilization::start_at(Nanos(0), slots);
        let at = |ns| {
            let seen = utilization.look(Nanos(ns), slots);
            ((seen.lately(0), seen.lately(1), seen.of_all()), seen.on_the_whole(1))
        };
        assert_eq!(at(1), ((0, 0, 0), 0), "what was before is not counted");
        charge(0, 6, 304_000_000);
        charge(1, 7, 5_307_000_000);
        assert_eq!(at(1_000_000_000), ((30, 30, 61), 30));
        charge(1, 7, 5_308_000_000);
        assert_eq!(at(1_001_000_000), ((30, 30, 61), 30), "too soon");
        charge(1, 7, 15_000_000_000);
        assert_eq!(at(2_000_000_000), ((0, 100, 100), 100));
        charge(1, 8, 200_000_000);
        assert_eq!(at(3_000_000_000), ((0, 20, 20), 20), "another process has the slot");
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
