//! The GPUs of the node: from NVML, or a fixed list for those who embed the manager.
//!
//! NVML may be slow or hang in the driver, so it is asked on a thread of its own. The rest of the manager reads
//! what it said last, and how long ago that was.

use std::ffi::OsStr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use weir_protocol::units::Bytes;

use crate::codes;
use crate::fault::Fault;

/// Longest that the manager's start waits for NVML: a cold driver takes seconds.
const START: Duration = Duration::from_secs(10);

/// How often used memory is read.
const PERIOD: Duration = Duration::from_secs(1);

/// After so long without an answer, figures are shown as stale.
const STALE: Duration = Duration::from_secs(5);

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
    used: Arc<Mutex<Used>>,
}

#[derive(Debug, Default)]
struct Used {
    bytes: Vec<Option<u64>>,
    at: Option<Instant>,
}

impl Gpus {
    /// Finds the GPUs of `source`, and keeps asking for their use. Whoever takes over from an earlier manager has `known`
    /// devices, and does not wait for NVML, which may take seconds: the tenants' pages cannot.
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
        Self { devices, used: Arc::default() }
    }

    fn from_nvml(known: Vec<Device>) -> Result<Self, Fault> {
        let used = Arc::new(Mutex::new(Used::default()));
        let (tell, hear) = mpsc::channel();
        let kept = Arc::downgrade(&used);
        let known_here = known.clone();
        let ask = move || {
            let nvml = match open() {
                Ok(nvml) => nvml,
                Err(fault) => return drop(tell.send(Err(fault))),
            };
            let devices = devices(&nvml);
            let changed =
                devices.as_ref().is_ok_and(|devices| !known_here.is_empty() && *devices != known_here);
            if changed {
                tracing::warn!(
                    "NVML lists other GPUs than those on which running tenants were taken over. help: end them, remove the \
                     journal, and start the node manager again"
                );
            }
            let _ = tell.send(devices);
            while let Some(used) = kept.upgrade() {
                let fresh = Used { bytes: used_bytes(&nvml), at: Some(Instant::now()) };
                *used.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
                drop(used);
                std::thread::park_timeout(PERIOD);
            }
        };
        spawn(ask)?;
        if !known.is_empty() {
            return Ok(Self { devices: known, used });
        }
        match hear.recv_timeout(START) {
            Ok(devices) => Ok(Self { devices: devices?, used }),
            Err(RecvTimeoutError::Timeout) => {
                Err(no_gpu(&format!("NVML has not answered for {} s", START.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => Err(no_gpu("NVML's thread ended")),
        }
    }

    /// Memory in use on each device, where it is known.
    pub fn used(&self) -> Vec<Option<u64>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).bytes.clone()
    }

    /// `ok`, `stale` or `none`.
    pub fn health(&self) -> &'static str {
        match self.used.lock().unwrap_or_else(PoisonError::into_inner).at {
            None => "none",
            Some(at) if at.elapsed() > STALE => "stale",
            Some(_) => "ok",
        }
    }
}

fn spawn(ask: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
    let thread = std::thread::Builder::new().name("weir-nvml".into()).spawn(ask);
    thread
        .map(drop)
        .map_err(|e| Fault::system(&codes::SYSTEM, "start a thread", e, "look at the limits of processes"))
}

fn no_gpu(why: &str) -> Fault {
    let help = "install the NVIDIA driver, or point LD_LIBRARY_PATH at the simulated GPU's libraries; WEIR_NVML names \
                another library";
    Fault::new(&codes::NO_GPU, format!("no GPU can be managed: {why}"), help)
}

/// The name by which NVML is loaded; `$WEIR_NVML` names another library.
pub fn nvml_library() -> std::ffi::OsString {
    std::env::var_os("WEIR_NVML").unwrap_or_else(|| "libnvidia-ml.so.1".into())
}

/// NVML through the ordinary search of the loader.
fn open() -> Result<Nvml, Fault> {
    let path = nvml_library();
    let opened = Nvml::builder().lib_path(OsStr::new(&path)).init();
    opened.map_err(|error| no_gpu(&format!("`{}`: {error}", path.display())))
}

fn devices(nvml: &Nvml) -> Result<Vec<Device>, Fault> {
    let read = || -> Result<Vec<Device>, Fault> {
        let failed = |error: nvml_wrapper::error::NvmlError| no_gpu(&format!("NVML answers: {error}"));
        let count = nvml.device_count().map_err(failed)?;
        (0..count).map(|index| device(nvml, index)).collect()
    };
    let devices = read()?;
    if devices.is_empty() { Err(no_gpu("NVML lists no device")) } else { Ok(devices) }
}

fn device(nvml: &Nvml, index: u32) -> Result<Device, Fault> {
    let failed = |error: nvml_wrapper::error::NvmlError| no_gpu(&format!("GPU {index} answers: {error}"));
    let device = nvml.device_by_index(index).map_err(failed)?;
    let text = device.uuid().map_err(failed)?;
    let uuid = parse_uuid(&text).ok_or_else(|| no_gpu(&format!("GPU {index} has the UUID `{text}`")))?;
    let memory_total = Bytes(device.memory_info().map_err(failed)?.total);
    Ok(Device { uuid, name: device.name().map_err(failed)?, memory_total })
}

fn used_bytes(nvml: &Nvml) -> Vec<Option<u64>> {
    let used = |index| Some(nvml.device_by_index(index).ok()?.memory_info().ok()?.used);
    (0..nvml.device_count().unwrap_or(0)).map(used).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
