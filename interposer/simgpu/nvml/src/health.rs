//! Power, clocks, temperature. The simulation has no thermal model: clocks stand still at the data sheet's
//! value, and power follows the busy percentage between idle and the limit. Enough for tools that show it,
//! and for nothing else.

use std::ffi::{c_uint, c_ulonglong, c_void};

use crate::device::{Handle, place};
use crate::edge::{Answer, INVALID_ARGUMENT, NOT_SUPPORTED, put};
use crate::{nvml, session};

/// Power limit, mW. Source: the A100 SXM4 data sheet, 400 W.
const LIMIT_MW: c_uint = 400_000;
/// Power of an idle card, mW. Source: `nvidia-smi` on idle A100s shows 50 to 60 W.
const IDLE_MW: c_uint = 55_000;
/// Clocks, MHz: SM and memory. Source: the A100 data sheet.
const CLOCKS_MHZ: [c_uint; 2] = [1_410, 1_215];
/// Temperature, degrees Celsius: a cooled room's card, whatever it does.
const TEMPERATURE_C: c_uint = 40;

fn power_mw(device: Handle) -> Answer<c_uint> {
    let busy = session::gpu(place(device)?)?.recent_busy_percent.min(100);
    Ok(IDLE_MW + (LIMIT_MW - IDLE_MW) / 100 * busy)
}

/// Clocks by kind: graphics, SM, memory, video.
fn clock_mhz(device: Handle, kind: c_uint) -> Answer<c_uint> {
    place(device)?;
    match kind {
        0 | 1 | 3 => Ok(CLOCKS_MHZ[0]),
        2 => Ok(CLOCKS_MHZ[1]),
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
    fn nvmlDeviceGetEnforcedPowerLimit(device: Handle, out: *mut c_uint) { place(device)?; put(out, LIMIT_MW) }
    /// Power limit, mW.
    fn nvmlDeviceGetPowerManagementLimit(device: Handle, out: *mut c_uint) { place(device)?; put(out, LIMIT_MW) }
    /// Energy so far, mJ: busy time at the limit, the rest at idle power.
    fn nvmlDeviceGetTotalEnergyConsumption(device: Handle, out: *mut c_ulonglong) {
        let gpu = session::gpu(place(device)?)?;
        // In microseconds the product stays below 2^63 for a year.
        let joule_part = |ns: u64, mw: c_uint| (ns / 1_000) * u64::from(mw) / 1_000_000;
        put(out, joule_part(gpu.busy_ns, LIMIT_MW) + joule_part(gpu.idle_ns + gpu.switch_ns, IDLE_MW))
    }
    /// Temperature, degrees Celsius.
    fn nvmlDeviceGetTemperature(device: Handle, _sensor: c_uint, out: *mut c_uint) {
        place(device)?;
        put(out, TEMPERATURE_C)
    }
    /// A clock now, MHz.
    fn nvmlDeviceGetClockInfo(device: Handle, kind: c_uint, out: *mut c_uint) { put(out, clock_mhz(device, kind)?) }
    /// A clock at most, MHz.
    fn nvmlDeviceGetMaxClockInfo(device: Handle, kind: c_uint, out: *mut c_uint) { put(out, clock_mhz(device, kind)?) }
    /// Why clocks are held down: nothing holds them.
    fn nvmlDeviceGetCurrentClocksThrottleReasons(device: Handle, out: *mut c_ulonglong) { place(device)?; put(out, 0) }
    /// Why clocks are held down: nothing holds them.
    fn nvmlDeviceGetCurrentClocksEventReasons(device: Handle, out: *mut c_ulonglong) { place(device)?; put(out, 0) }
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
