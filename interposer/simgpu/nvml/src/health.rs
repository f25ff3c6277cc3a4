//! Power, clocks, temperature. Power follows the time in which kernels run, from `idle_w` to `busy_w` of the configuration. A
//! mean beyond `power_limit_w` is shown as a reason that holds the clocks back, and as a clock at which a card keeps to its limit
//! whose power beyond rest goes with its clock. Nothing else comes of it: kernels are as fast as ever, and so the card draws more
//! than its limit, which a real one does not for long. There is no thermal model.

use std::ffi::{c_uint, c_ulonglong, c_void};

use crate::device::{Handle, place};
use crate::edge::{Answer, INVALID_ARGUMENT, NOT_SUPPORTED, put};
use crate::{nvml, session};

/// `nvmlClocksEventReasonSwPowerCap`. Source: NVML API reference.
const SW_POWER_CAP: c_ulonglong = 0x4;
/// Clocks, MHz: SM and memory. Source: the A100 data sheet.
const CLOCKS_MHZ: [c_uint; 2] = [1_410, 1_215];
/// `NVML_CLOCK_MEM`.
const MEMORY: c_uint = 2;
/// Temperature, degrees Celsius: a cooled room's card, whatever it does.
const TEMPERATURE_C: c_uint = 40;

/// Power over about the last second, as cards from Ampere on say it (GA100 alone says that of the moment).
fn power_mw(device: Handle) -> Answer<c_uint> {
    let busy = session::gpu(place(device)?)?.recent_busy_percent.min(100);
    let current = session::current()?;
    let config = current.config();
    Ok(config.idle_w * 1_000 + (config.busy_w - config.idle_w) * 10 * busy)
}

fn limit_mw(device: Handle) -> Answer<c_uint> {
    place(device)?;
    Ok(session::current()?.config().power_limit_w * 1_000)
}

/// Energy so far, mJ: each time at its own power.
fn energy_mj(device: Handle) -> Answer<c_ulonglong> {
    let gpu = session::gpu(place(device)?)?;
    let current = session::current()?;
    let config = current.config();
    // In microseconds the product stays below 2^63 for 29 years.
    let part = |ns: u64, watts: u32| (ns / 1_000) * u64::from(watts) / 1_000;
    Ok(part(gpu.busy_ns, config.busy_w) + part(gpu.idle_ns + gpu.switch_ns, config.idle_w))
}

/// Why clocks are held down.
fn reasons(device: Handle) -> Answer<c_ulonglong> {
    Ok(if power_mw(device)? > limit_mw(device)? { SW_POWER_CAP } else { 0 })
}

/// A clock now: that of the memory is never held back.
fn clock_mhz(device: Handle, kind: c_uint) -> Answer<c_uint> {
    let (most, power, limit) = (most_mhz(device, kind)?, power_mw(device)?, limit_mw(device)?);
    let idle = session::current()?.config().idle_w * 1_000;
    let held_back = kind != MEMORY && power > limit;
    Ok(if held_back {
        most * limit.saturating_sub(idle).div_ceil(1_000) / (power - idle).div_ceil(1_000)
    } else {
        most
    })
}

/// Clocks at most by kind: graphics, SM, memory, video.
fn most_mhz(device: Handle, kind: c_uint) -> Answer<c_uint> {
    place(device)?;
    match kind {
        0 | 1 | 3 => Ok(CLOCKS_MHZ[0]),
        MEMORY => Ok(CLOCKS_MHZ[1]),
        _ => Err(INVALID_ARGUMENT),
    }
}

fn not_supported(device: Handle) -> Answer {
    place(device)?;
    Err(NOT_SUPPORTED)
}

nvml! {
    /// Power now, mW.
    fn nvmlDeviceGetPowerUsage(device: Handle, out: *mut c_uint) { put(out, power_mw(device)?) }
    /// Power limit, mW.
    fn nvmlDeviceGetEnforcedPowerLimit(device: Handle, out: *mut c_uint) { put(out, limit_mw(device)?) }
    /// Power limit, mW.
    fn nvmlDeviceGetPowerManagementLimit(device: Handle, out: *mut c_uint) { put(out, limit_mw(device)?) }
    /// Energy since the broker started, mJ.
    fn nvmlDeviceGetTotalEnergyConsumption(device: Handle, out: *mut c_ulonglong) { put(out, energy_mj(device)?) }
    /// Temperature, degrees Celsius.
    fn nvmlDeviceGetTemperature(device: Handle, _sensor: c_uint, out: *mut c_uint) {
        place(device)?;
        put(out, TEMPERATURE_C)
    }
    /// A clock now, MHz.
    fn nvmlDeviceGetClockInfo(device: Handle, kind: c_uint, out: *mut c_uint) { put(out, clock_mhz(device, kind)?) }
    /// A clock at most, MHz.
    fn nvmlDeviceGetMaxClockInfo(device: Handle, kind: c_uint, out: *mut c_uint) { put(out, most_mhz(device, kind)?) }
    /// Why clocks are held down, by the older name.
    fn nvmlDeviceGetCurrentClocksThrottleReasons(device: Handle, out: *mut c_ulonglong) { put(out, reasons(device)?) }
    /// Why clocks are held down.
    fn nvmlDeviceGetCurrentClocksEventReasons(device: Handle, out: *mut c_ulonglong) { put(out, reasons(device)?) }
    /// Performance state: the highest.
    fn nvmlDeviceGetPerformanceState(device: Handle, out: *mut c_uint) { place(device)?; put(out, 0) }
    /// Fans: none.
    fn nvmlDeviceGetFanSpeed(device: Handle, _out: *mut c_uint) { not_supported(device) }
    /// ECC: not simulated.
    fn nvmlDeviceGetEccMode(device: Handle, _current: *mut c_uint, _pending: *mut c_uint) { not_supported(device) }
    /// Video encoder: none.
    fn nvmlDeviceGetEncoderUtilization(device: Handle, _percent: *mut c_uint, _period_us: *mut c_uint) { not_supported(device) }
    /// Video decoder: none.
    fn nvmlDeviceGetDecoderUtilization(device: Handle, _percent: *mut c_uint, _period_us: *mut c_uint) { not_supported(device) }
    /// JPEG decoder: none.
    fn nvmlDeviceGetJpgUtilization(device: Handle, _percent: *mut c_uint, _period_us: *mut c_uint) { not_supported(device) }
    /// Optical flow engine: none.
    fn nvmlDeviceGetOfaUtilization(device: Handle, _percent: *mut c_uint, _period_us: *mut c_uint) { not_supported(device) }
    /// Sessions of the encoder: there is none.
    fn nvmlDeviceGetEncoderStats(device: Handle, _count: *mut c_uint, _fps: *mut c_uint, _latency: *mut c_uint) { not_supported(device) }
    /// Sessions of the encoder: there is none.
    fn nvmlDeviceGetEncoderSessions(device: Handle, _count: *mut c_uint, _out: *mut c_void) { not_supported(device) }
    /// Frame buffer capture: none.
    fn nvmlDeviceGetFBCStats(device: Handle, _out: *mut c_void) { not_supported(device) }
    /// Frame buffer capture: none.
    fn nvmlDeviceGetFBCSessions(device: Handle, _count: *mut c_uint, _out: *mut c_void) { not_supported(device) }
    /// What goes over the bus: not simulated.
    fn nvmlDeviceGetPcieThroughput(device: Handle, _counter: c_uint, _out: *mut c_uint) { not_supported(device) }
    /// Utilisation by part of the card: not simulated.
    fn nvmlDeviceGetDynamicPstatesInfo(device: Handle, _out: *mut c_void) { not_supported(device) }
    /// Performance counters: not simulated.
    fn nvmlGpmSampleGet(device: Handle, _sample: *mut c_void) { not_supported(device) }
    /// Performance counters: not simulated.
    fn nvmlGpmMigSampleGet(device: Handle, _instance: c_uint, _sample: *mut c_void) { not_supported(device) }
}
