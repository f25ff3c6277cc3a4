//! Orders about what a program is told of its memory, and about memory that crosses processes.
//!
//! | order | answer |
//! | --- | --- |
//! | `view` | `{"free", "total", "device_total", "nvml_used", "nvml_total", "nvml_first", "processes", "pid"}`: what a program is told; of NVML by both versions of its call, and by its list of processes |
//! | `until total BYTES` | `{"at_ns"}`: when `cuMemGetInfo` first said so; by the clock that all processes have |
//! | `until refused MIB`, `until granted MIB` | `{"at_ns"}`: when a piece was first refused as over the limit, or granted; each one goes back at once |
//! | `export` | `{"handle"}`: the first piece held, for another process |
//! | `import [BYTE, ..]` | `{"code"}`: such a piece opened; it is closed with `close` |

use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use serde_json::{Value, json};
use weir_abi::types::*;

use super::memory::{Memory, ask};
use crate::client::{ClientError, check};
use crate::clock::now;

/// Longest wait for what is to be seen.
const PATIENCE: Duration = Duration::from_secs(5);

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: the only flag that there is.
const LAZY_PEER_ACCESS: std::ffi::c_uint = 1;

/// What NVML's first version of its memory call answers, in bytes.
#[repr(C)]
#[derive(Default)]
struct First {
    total: u64,
    free: u64,
    used: u64,
}

impl Memory {
    /// Does what it is told, if it knows what that is.
    pub(super) fn told(&mut self, word: &str, rest: &str) -> Result<Option<Value>, ClientError> {
        let (what, number) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = number.trim().parse::<usize>().unwrap_or(0);
        Ok(Some(match (word, what) {
            ("view", _) => self.view()?,
            ("until", "total") => self.until(|memory| Ok(memory.total()? == number))?,
            ("until", "refused") => {
                self.until(|memory| Ok(memory.piece(number << 20)? == CUDA_ERROR_OUT_OF_MEMORY))?
            }
            ("until", "granted") => self.until(|memory| Ok(memory.piece(number << 20)? == CUDA_SUCCESS))?,
            ("export", _) => self.export()?,
            ("import", _) => self.import(&serde_json::from_str::<Vec<u8>>(rest).unwrap_or_default())?,
            ("close", _) => self.close()?,
            _ => return Ok(None),
        }))
    }

    /// When it was so for the first time; nothing if it never was.
    fn until(&self, is_so: impl Fn(&Self) -> Result<bool, ClientError>) -> Result<Value, ClientError> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if is_so(self)? {
                return Ok(json!({"at_ns": now()}));
            }
        }
        Ok(json!({"at_ns": null}))
    }

    fn total(&self) -> Result<usize, ClientError> {
        let (mut free, mut total) = (0, 0);
        check("cuMemGetInfo_v2", ask!(self, cuMemGetInfo_v2(&raw mut free, &raw mut total))?)?;
        Ok(total)
    }

    /// How the driver answers to a plain piece, which goes back.
    fn piece(&self, bytes: usize) -> Result<weir_abi::CUresult, ClientError> {
        let mut pointer = 0;
        let answer = ask!(self, cuMemAlloc_v2(&raw mut pointer, bytes))?;
        if answer == CUDA_SUCCESS {
            check("cuMemFree_v2", ask!(self, cuMemFree_v2(pointer))?)?;
        }
        Ok(answer)
    }

    fn view(&self) -> Result<Value, ClientError> {
        let (mut free, mut total, mut device_total) = (0, 0, 0);
        check("cuMemGetInfo_v2", ask!(self, cuMemGetInfo_v2(&raw mut free, &raw mut total))?)?;
        check("cuDeviceTotalMem_v2", ask!(self, cuDeviceTotalMem_v2(&raw mut device_total, 0))?)?;
        let mut said = json!({
            "free": free, "total": total, "device_total": device_total, "pid": std::process::id(),
            "nvml_used": null, "nvml_total": null, "nvml_first": null, "processes": null,
        });
        let nvml = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init();
        let Some(device) = nvml.as_ref().ok().and_then(|nvml| nvml.device_by_index(0).ok()) else {
            return Ok(said);
        };
        if let Ok(memory) = device.memory_info() {
            (said["nvml_used"], said["nvml_total"]) = (memory.used.into(), memory.total.into());
        }
        let mut first = First::default();
        // SAFETY: NVML is open already; the type is that of its reference, whose structure has these three numbers.
        let answer = unsafe {
            let library = libloading::Library::new("libnvidia-ml.so.1")?;
            let ask = library.get::<unsafe extern "C" fn(*mut std::ffi::c_void, *mut First) -> i32>(
                b"nvmlDeviceGetMemoryInfo\0",
            )?;
            ask(device.handle().cast(), &raw mut first)
        };
        if answer == 0 {
            said["nvml_first"] = json!({"total": first.total, "free": first.free, "used": first.used});
        }
        if let Ok(processes) = device.running_compute_processes() {
            let used = |memory: &UsedGpuMemory| match memory {
                UsedGpuMemory::Used(bytes) => Some(*bytes),
                UsedGpuMemory::Unavailable => None,
            };
            let rows = processes.iter().map(|process| json!([process.pid, used(&process.used_gpu_memory)]));
            said["processes"] = rows.collect();
        }
        Ok(said)
    }

    fn export(&self) -> Result<Value, ClientError> {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        let pointer = self.held.first().map_or(0, |(pointer, _)| *pointer);
        check("cuIpcGetMemHandle", ask!(self, cuIpcGetMemHandle(&raw mut handle, pointer))?)?;
        Ok(json!({"handle": handle.reserved.to_vec()}))
    }

    fn import(&mut self, bytes: &[u8]) -> Result<Value, ClientError> {
        let (mut handle, mut pointer) = (CUipcMemHandle { reserved: [0; 64] }, 0);
        handle.reserved.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let answer = ask!(self, cuIpcOpenMemHandle_v2(&raw mut pointer, handle, LAZY_PEER_ACCESS))?;
        if answer == CUDA_SUCCESS {
            self.imported.push(pointer);
        }
        Ok(json!({"code": answer.0}))
    }

    fn close(&mut self) -> Result<Value, ClientError> {
        for pointer in std::mem::take(&mut self.imported) {
            check("cuIpcCloseMemHandle", ask!(self, cuIpcCloseMemHandle(pointer))?)?;
        }
        Ok(json!({}))
    }
}
