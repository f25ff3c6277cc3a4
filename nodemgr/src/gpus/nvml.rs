//! The thread that talks to NVML, and the one that asks it. A call into the driver can hang for ever, and cannot be taken
//! back: then this thread hangs, and whoever asks it hears nothing until his deadline.
//!
//! ```text
//!   weir-guard                     weir-nvml
//!      | ask ------------------------> | nvmlDeviceGet...
//!      | at most until the deadline    |     slow, or for ever
//!      | <------------------ answer -- |
//! ```
//!
//! At most one question is under way. The answer to one whose deadline has passed is of the past: it is thrown away.

use std::ffi::{OsStr, OsString};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use weir_protocol::units::Bytes;

use super::{Device, GpuReading, Listed, Power, Reasons, no_gpu, parse_uuid};
use crate::codes;
use crate::fault::Fault;
use crate::shared::now;

/// What NVML says of each GPU, or why it does not.
pub type Reading = Vec<Result<GpuReading, String>>;

/// The devices, once they are found.
type Found = Receiver<Result<Vec<Device>, Fault>>;

/// What a call of NVML answers when it is done.
const NVML_SUCCESS: u32 = 0;

/// Steps in which an answer is waited for.
const STEP: Duration = Duration::from_millis(100);

/// Asks NVML.
#[derive(Debug)]
pub struct Asker {
    ask: Sender<()>,
    answers: Receiver<Result<Reading, String>>,
    owed: bool, // an answer is still to come
}

impl Asker {
    /// What NVML says now, if it says so before the deadline, and before `enough` has been heard.
    ///
    /// # Errors
    /// Why not.
    pub fn ask(&mut self, deadline: Duration, enough: impl Fn() -> bool) -> Result<Reading, String> {
        let start = Instant::now();
        let ended = || "NVML's thread has ended".to_owned();
        let mut overdue = std::mem::replace(&mut self.owed, true);
        if !overdue {
            self.ask.send(()).map_err(|_| ended())?;
        }
        while start.elapsed() < deadline && !enough() {
            match self.answers.recv_timeout(STEP) {
                Ok(_) if overdue => {
                    overdue = false;
                    self.ask.send(()).map_err(|_| ended())?;
                }
                Ok(answer) => {
                    self.owed = false;
                    return answer;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            }
        }
        Err(format!("NVML has not answered for {} s", start.elapsed().as_secs()))
    }
}

/// Starts the thread. Without `known` devices it finds them and says so; with them it opens NVML when it is asked for the
/// first time, and again whenever that has failed.
pub fn start(known: Vec<Device>) -> Result<(Asker, Found), Fault> {
    let ((ask, asks), (tell, answers), (show, found)) = (channel(), channel(), channel());
    let serve = move || {
        let mut opened = None;
        if known.is_empty() {
            opened = match open_and_list() {
                Ok((nvml, devices)) => {
                    let _ = show.send(Ok(devices.clone()));
                    Some((nvml, devices))
                }
                Err(fault) => return drop(show.send(Err(fault))),
            };
        }
        while asks.recv().is_ok() {
            if opened.is_none() {
                opened = open_again(&known);
            }
            let answer = opened.as_ref().map(|(nvml, devices)| read(nvml, devices));
            if tell.send(answer.ok_or_else(|| "NVML cannot be opened".to_owned())).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("weir-nvml".into()).spawn(serve);
    thread
        .map_err(|e| Fault::system(&codes::SYSTEM, "start a thread", e, "look at the limits of processes"))?;
    Ok((Asker { ask, answers, owed: false }, found))
}

fn open_and_list() -> Result<(Nvml, Vec<Device>), Fault> {
    let nvml = open()?;
    let devices = devices(&nvml)?;
    Ok((nvml, devices))
}

/// For devices that are known already.
fn open_again(known: &[Device]) -> Option<(Nvml, Vec<Device>)> {
    let (nvml, devices) = open_and_list().ok()?;
    if devices != known {
        tracing::warn!(
            "NVML lists other GPUs than those on which running tenants were taken over. help: end them, remove the \
             journal, and start the node manager again"
        );
    }
    Some((nvml, known.to_vec()))
}

/// The name by which NVML is loaded; `$WEIR_NVML` names another library.
pub fn library() -> OsString {
    std::env::var_os("WEIR_NVML").unwrap_or_else(|| "libnvidia-ml.so.1".into())
}

/// NVML through the ordinary search of the loader.
fn open() -> Result<Nvml, Fault> {
    let path = library();
    let opened = Nvml::builder().lib_path(OsStr::new(&path)).init();
    opened.map_err(|error| no_gpu(&format!("`{}`: {error}", path.display())))
}

fn devices(nvml: &Nvml) -> Result<Vec<Device>, Fault> {
    let failed = |error: NvmlError| no_gpu(&format!("NVML answers: {error}"));
    let count = nvml.device_count().map_err(failed)?;
    let devices = (0..count).map(|index| device(nvml, index)).collect::<Result<Vec<_>, _>>()?;
    if devices.is_empty() { Err(no_gpu("NVML lists no device")) } else { Ok(devices) }
}

fn device(nvml: &Nvml, index: u32) -> Result<Device, Fault> {
    let failed = |error: NvmlError| no_gpu(&format!("GPU {index} answers: {error}"));
    let device = nvml.device_by_index(index).map_err(failed)?;
    let text = device.uuid().map_err(failed)?;
    let uuid = parse_uuid(&text).ok_or_else(|| no_gpu(&format!("GPU {index} has the UUID `{text}`")))?;
    let memory_total = Bytes(device.memory_info().map_err(failed)?.total);
    if memory_total == Bytes(0) {
        return Err(no_gpu(&format!("GPU {index} has no memory, by NVML's account")));
    }
    Ok(Device { uuid, name: device.name().map_err(failed)?, memory_total })
}

/// Everything, GPU by GPU: one that is lost says nothing of the others.
fn read(nvml: &Nvml, devices: &[Device]) -> Reading {
    let each = devices.iter().enumerate();
    each.map(|(index, device)| {
        let reading =
            read_gpu(nvml, device).map_err(|error| format!("GPU {index}: NVML answers: {error}"))?;
        reading.sound(index, device.memory_total)
    })
    .collect()
}

fn read_gpu(nvml: &Nvml, device: &Device) -> Result<GpuReading, NvmlError> {
    let gpu = nvml.device_by_uuid(device.uuid_text())?;
    let used = gpu.memory_info()?.used;
    let lists = [gpu.running_compute_processes(), gpu.mps_running_compute_processes()];
    let mut processes: Option<Vec<Listed>> = None;
    for list in lists {
        match list {
            Ok(list) => processes.get_or_insert_default().extend(list.iter().map(listed)),
            // Drivers before 510, WSL, and cards in modes of their own.
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(processes) = &mut processes {
        processes.sort_unstable_by_key(|process| process.pid); // a client of MPS may stand on both lists
        processes.dedup_by_key(|process| process.pid);
    }
    Ok(GpuReading { used, processes, power: power(nvml, &gpu) })
}

/// A card or a driver that does not tell one of these tells the others.
fn power(nvml: &Nvml, gpu: &nvml_wrapper::Device<'_>) -> Power {
    Power {
        energy_mj: gpu.total_energy_consumption().ok(),
        at: now(),
        draw_mw: gpu.power_usage().ok(),
        limit_mw: gpu.enforced_power_limit().ok(),
        sm_mhz: gpu.clock_info(Clock::SM).ok(),
        sm_most_mhz: gpu.max_clock_info(Clock::SM).ok(),
        reasons: reasons(nvml, gpu),
    }
}

/// By the newer name, which the wrapper does not call, or else by the one that goes with CUDA 14 and is all that older drivers
/// have.
fn reasons(nvml: &Nvml, gpu: &nvml_wrapper::Device<'_>) -> Option<Reasons> {
    let mut bits = 0;
    let by_new_name = nvml.lib().nvmlDeviceGetCurrentClocksEventReasons.as_ref().is_ok_and(|call| {
        // SAFETY: the device is one of this library's, which is open, and `bits` a place for the answer.
        unsafe { call(gpu.handle(), &raw mut bits) == NVML_SUCCESS }
    });
    if by_new_name {
        return Some(Reasons(bits));
    }
    gpu.current_throttle_reasons().ok().map(|reasons| Reasons(reasons.bits()))
}

fn listed(process: &ProcessInfo) -> Listed {
    let bytes = match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    Listed { pid: process.pid.cast_signed(), bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An asker, and the ends of its channels at which a story plays NVML.
    fn asker() -> (Asker, Receiver<()>, Sender<Result<Reading, String>>) {
        let ((ask, asks), (tell, answers)) = (channel(), channel());
        (Asker { ask, answers, owed: false }, asks, tell)
    }

    fn of(used: u64) -> Reading {
        vec![Ok(GpuReading { used, ..GpuReading::default() })]
    }

    #[test]
    fn whoever_does_not_answer_is_not_asked_again_and_his_late_answer_is_not_taken_for_a_fresh_one() {
        let (mut asker, asks, tell) = asker();
        assert!(asker.ask(Duration::ZERO, || false).is_err());
        assert!(asker.ask(Duration::ZERO, || false).is_err());
        assert_eq!(asks.try_iter().count(), 1, "one question is under way");
        tell.send(Ok(of(1))).unwrap();
        tell.send(Ok(of(2))).unwrap();
        assert_eq!(asker.ask(Duration::from_secs(10), || false), Ok(of(2)));
        assert_eq!(asks.try_iter().count(), 1, "the late answer has led to a new question");
    }

    #[test]
    fn nobody_waits_for_a_thread_that_has_ended_or_when_the_manager_ends() {
        let (mut asker, asks, _tell) = asker();
        assert!(asker.ask(Duration::from_secs(3_600), || true).is_err());
        drop(asks);
        let (mut asker, _asks, tell) = self::asker();
        drop(tell);
        assert!(asker.ask(Duration::from_secs(3_600), || false).unwrap_err().contains("ended"));
    }
}
