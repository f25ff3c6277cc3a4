//! The GPUs of the node: from NVML, or a fixed list for those who embed the manager.
//!
//! NVML may be slow or hang in the driver, so it is asked on a thread of its own (`nvml.rs`), with a deadline. The rest of
//! the manager reads what it said last, and how long ago that was.

mod nvml;
mod power;
mod reading;

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_protocol::units::Bytes;

use crate::codes;
use crate::fault::Fault;
pub use nvml::{Asker, library as nvml_library};
pub use power::{Power, Reasons};
pub use reading::{GpuReading, Listed};

/// Longest that the manager's start waits for NVML: a cold driver takes seconds.
const START: Duration = Duration::from_secs(10);

/// Answers in a row that lack something before that is shown: somebody may have died in the middle of one.
const LACKING: u32 = 2;

/// After so long without an answer, figures are shown as stale.
pub const STALE: Duration = Duration::from_secs(5);

/// The beginning of the simulated devices' names, in lower case.
const SIMULATED: &str = "weir simulated";

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The driver's UUID.
    pub uuid: [u8; 16],
    /// The product's name.
    pub name: String,
    /// The card's memory.
    pub memory_total: Bytes,
}

impl Device {
    /// Whether it is a simulated GPU.
    pub fn is_simulated(&self) -> bool {
        self.name.to_ascii_lowercase().starts_with(SIMULATED)
    }

    /// The UUID as `CUDA_VISIBLE_DEVICES` and `nvidia-smi` spell it.
    pub fn uuid_text(&self) -> String {
        let hex: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

/// The bytes of `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let hex: String = text.strip_prefix("GPU-")?.chars().filter(|c| *c != '-').collect();
    if hex.len() != 32 || !hex.is_ascii() {
        return None;
    }
    let mut bytes = [0; 16];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Where the list of GPUs comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The driver's management library.
    Nvml,
    /// As given; used memory is then unknown.
    Fixed(Vec<Device>),
}

/// The GPUs, with what is known of their use.
#[derive(Clone, Debug)]
pub struct Gpus {
    /// The devices, by index.
    pub devices: Vec<Device>,
    last: Arc<Mutex<Last>>,
    asker: Arc<Mutex<Option<Asker>>>,
}

/// What NVML said last.
#[derive(Debug, Default)]
struct Last {
    used: Vec<Option<u64>>,
    at: Option<Instant>,
    asked_since: Option<Instant>,
    lacking: u32, // answers in a row in which something was lacking
    why: Option<String>,
}

/// How it stands with NVML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It is not asked, or has not been for long.
    #[default]
    None,
    /// It answers.
    Ok,
    /// It answers for some GPUs only, or does not list all processes that are known to be there: processes without a
    /// budget may go unseen.
    Partial,
    /// It has not answered for [`STALE`].
    Stale,
}

impl Health {
    /// Every one of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Ok, Self::Partial, Self::Stale];

    /// As it is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Stale => "stale",
        }
    }
}

impl Gpus {
    /// Finds the GPUs of `source`. Whoever takes over from an earlier manager has `known` devices, and does not wait for
    /// NVML, which may take seconds: the tenants' pages cannot.
    ///
    /// # Errors
    /// [`codes::NO_GPU`].
    pub fn find(source: Source, known: Vec<Device>) -> Result<Self, Fault> {
        match source {
            Source::Fixed(devices) => Ok(Self::fixed(devices)),
            Source::Nvml => Self::from_nvml(known),
        }
    }

    /// These devices; nobody knows what of them is in use.
    pub fn fixed(devices: Vec<Device>) -> Self {
        Self { devices, last: Arc::default(), asker: Arc::default() }
    }

    fn from_nvml(known: Vec<Device>) -> Result<Self, Fault> {
        let (asker, found) = nvml::start(known.clone())?;
        let devices = match known.is_empty() {
            false => known,
            true => match found.recv_timeout(START) {
                Ok(devices) => devices?,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(no_gpu(&format!("NVML has not answered for {} s", START.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(no_gpu("NVML's thread ended")),
            },
        };
        let last = Last { asked_since: Some(Instant::now()), ..Last::default() };
        Ok(Self { devices, last: Arc::new(Mutex::new(last)), asker: Arc::new(Mutex::new(Some(asker))) })
    }

    /// Whoever is to ask NVML from now on: one alone, the first who wants to. Nobody where it is not to be asked.
    pub fn take_asker(&self) -> Option<Asker> {
        self.asker.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// NVML has answered. `complete`: it lists all processes that are known to be there.
    pub fn note(&self, reading: &[Result<GpuReading, String>], complete: bool) {
        let mut last = self.last();
        last.used = reading.iter().map(|gpu| gpu.as_ref().ok().map(|gpu| gpu.used)).collect();
        last.why = reading.iter().find_map(|gpu| gpu.as_ref().err().cloned());
        last.lacking = if complete && last.why.is_none() { 0 } else { last.lacking.saturating_add(1) };
        if reading.iter().any(Result::is_ok) {
            last.at = Some(Instant::now());
        }
    }

    /// NVML has not answered.
    pub fn note_silence(&self, why: String) {
        self.last().why = Some(why);
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory in use on each device, where it is known.
    pub fn used(&self) -> Vec<Option<u64>> {
        self.last().used.clone()
    }

    /// How it stands with NVML, and why not better.
    pub fn health(&self) -> (Health, Option<String>) {
        let last = self.last();
        let long_ago = |at: Instant| at.elapsed() > STALE;
        let health = match (last.at, last.asked_since) {
            (None, Some(since)) if long_ago(since) => Health::Stale,
            (None, _) => Health::None,
            (Some(at), _) if long_ago(at) => Health::Stale,
            (Some(_), _) if last.lacking >= LACKING => Health::Partial,
            (Some(_), _) => Health::Ok,
        };
        (health, last.why.clone().filter(|_| health != Health::Ok))
    }
}

fn no_gpu(why: &str) -> Fault {
    let help = "install the NVIDIA driver, or point LD_LIBRARY_PATH at the simulated GPU's libraries; WEIR_NVML names \
                another library";
    Fault::new(&codes::NO_GPU, format!("no GPU can be managed: {why}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_nvml() -> Gpus {
        let last = Last { asked_since: Some(Instant::now()), ..Last::default() };
        Gpus { last: Arc::new(Mutex::new(last)), ..Gpus::fixed(Vec::new()) }
    }

    #[test]
    fn nvml_is_ok_only_while_it_answers_for_every_gpu_and_every_process() {
        let gpus = of_nvml();
        assert_eq!(gpus.health(), (Health::None, None));
        let sound = || Ok(GpuReading { used: 7, processes: Some(Vec::new()), ..GpuReading::default() });
        gpus.note(&[sound(), sound()], true);
        assert_eq!((gpus.health().0, gpus.used()), (Health::Ok, vec![Some(7), Some(7)]));
        gpus.note(&[sound(), sound()], false);
        assert_eq!(gpus.health().0, Health::Ok, "once is no pattern");
        gpus.note(&[sound(), sound()], false);
        assert_eq!(gpus.health(), (Health::Partial, None));
        gpus.note(&[sound(), sound()], true);
        assert_eq!(gpus.health().0, Health::Ok);
        (0..LACKING).for_each(|_| gpus.note(&[sound(), Err("GPU 1 is lost".into())], true));
        assert_eq!(gpus.health(), (Health::Partial, Some("GPU 1 is lost".into())));
        assert_eq!(gpus.used(), [Some(7), None]);
    }

    #[test]
    fn whoever_has_not_answered_for_long_is_stale_whether_he_ever_did_or_not() {
        let Some(long_ago) = Instant::now().checked_sub(2 * STALE) else { return };
        let gpus = of_nvml();
        gpus.last().asked_since = Some(long_ago);
        gpus.note_silence("it hangs".into());
        assert_eq!(gpus.health(), (Health::Stale, Some("it hangs".into())));
        gpus.note(&[Ok(GpuReading { used: 7, ..GpuReading::default() })], true);
        assert_eq!(gpus.health().0, Health::Ok);
        gpus.last().at = Some(long_ago);
        assert_eq!(gpus.health().0, Health::Stale);
    }

    #[test]
    fn a_uuid_reads_back_as_it_is_printed() {
        let device = Device { uuid: *b"0123456789abcdef", name: "x".into(), memory_total: Bytes(1) };
        assert_eq!(parse_uuid(&device.uuid_text()), Some(device.uuid));
        for text in [
            "",
            "GPU-",
            "MIG-30313233-3435-3637-3839-616263646566",
            "GPU-zz313233-3435-3637-3839-616263646566",
        ] {
            assert_eq!(parse_uuid(text), None, "{text}");
        }
    }
}
