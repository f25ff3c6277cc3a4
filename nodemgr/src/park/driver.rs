//! The driver's five calls, in the driver library itself: they are made by another process than the one that they are about,
//! so the manager loads it, with the first park and not before.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::mem::ManuallyDrop;
use std::time::Duration;

use libloading::os::unix::{Library, Symbol};

use super::order::{Checkpoints, Refusal, State};
use crate::codes;
use crate::fault::Fault;

/// The driver's name for the loader.
const LIBRARY: &str = "libcuda.so.1";

/// `CUDA_SUCCESS`.
const SUCCESS: c_int = 0;

/// The arguments of each step but the lock: all reserved, zero.
static NO_ARGS: [u64; 8] = [0; 8];

/// `CUcheckpointLockArgs`.
#[repr(C)]
struct LockArgs {
    timeout_ms: c_uint,
    reserved_0: c_uint,
    reserved_1: [u64; 7],
}

type Step = unsafe extern "C" fn(c_int, *const [u64; 8]) -> c_int;

/// The calls.
pub struct Driver {
    name: Symbol<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>,
    state: Symbol<unsafe extern "C" fn(c_int, *mut c_uint) -> c_int>,
    lock: Symbol<unsafe extern "C" fn(c_int, *const LockArgs) -> c_int>,
    checkpoint: Symbol<Step>,
    restore: Symbol<Step>,
    unlock: Symbol<Step>,
    library: ManuallyDrop<Library>, // never unloaded: a driver has threads of its own
}

impl Driver {
    /// Loads and starts the driver. A driver may take seconds for that, or hang.
    ///
    /// # Errors
    /// [`codes::PARK`]: there is none, or one before CUDA 12.8.
    pub fn open() -> Result<Self, Fault> {
        // SAFETY: the driver's initialisers are run, as in every program that uses the GPU.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| {
            let help = "install the NVIDIA driver where the node manager runs";
            Fault::new(&codes::PARK, format!("the driver cannot be loaded: {error}"), help)
        })?;
        let driver = Self::of(library).map_err(|error| {
            let help = "update the driver: checkpoints came with CUDA 12.8 (driver 570)";
            Fault::new(&codes::PARK, format!("the driver takes no checkpoints: {error}"), help)
        })?;
        // SAFETY: the type is that of the driver's reference.
        let init = unsafe { driver.library.get::<unsafe extern "C" fn(c_uint) -> c_int>(b"cuInit\0") };
        // SAFETY: takes a number.
        let started = init.map(|init| unsafe { init(0) });
        let failed = |why: String| Fault::new(&codes::PARK, why, "look at the driver with `nvidia-smi`");
        let code = started.map_err(|error| failed(error.to_string()))?;
        driver.check("cuInit", code).map_err(|refusal| failed(refusal.to_string()))?;
        Ok(driver)
    }

    fn of(library: Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are those of the driver's reference.
        unsafe {
            Ok(Self {
                name: library.get(b"cuGetErrorName\0")?,
                state: library.get(b"cuCheckpointProcessGetState\0")?,
                lock: library.get(b"cuCheckpointProcessLock\0")?,
                checkpoint: library.get(b"cuCheckpointProcessCheckpoint\0")?,
                restore: library.get(b"cuCheckpointProcessRestore\0")?,
                unlock: library.get(b"cuCheckpointProcessUnlock\0")?,
                library: ManuallyDrop::new(library),
            })
        }
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), Refusal> {
        if code == SUCCESS {
            return Ok(());
        }
        let mut name = std::ptr::null();
        // SAFETY: the driver stores the address of a constant string, or null.
        let known = unsafe { (self.name)(code, &raw mut name) } == SUCCESS && !name.is_null();
        let answer = match known {
            // SAFETY: as above: it ends with a zero, and is never freed.
            true => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
            false => format!("error {code}"),
        };
        Err(Refusal { call, answer })
    }

    fn step(&self, call: &'static str, step: &Symbol<Step>, pid: i32) -> Result<(), Refusal> {
        // SAFETY: the arguments are as long as any of the driver's, all zero, and outlive the call.
        self.check(call, unsafe { step(pid, &raw const NO_ARGS) })
    }
}

impl Checkpoints for Driver {
    fn state(&self, pid: i32) -> Result<State, Refusal> {
        let mut state: c_uint = 0;
        // SAFETY: the driver stores a number.
        self.check("cuCheckpointProcessGetState", unsafe { (self.state)(pid, &raw mut state) })?;
        Ok(match state {
            0 => State::Running,
            1 => State::Locked,
            2 => State::Checkpointed,
            _ => State::Lost,
        })
    }

    fn lock(&self, pid: i32, patience: Duration) -> Result<(), Refusal> {
        let timeout_ms = c_uint::try_from(patience.as_millis()).unwrap_or(c_uint::MAX);
        let args = LockArgs { timeout_ms, reserved_0: 0, reserved_1: [0; 7] };
        // SAFETY: the arguments are the driver's own structure and outlive the call.
        self.check("cuCheckpointProcessLock", unsafe { (self.lock)(pid, &raw const args) })
    }

    fn checkpoint(&self, pid: i32) -> Result<(), Refusal> {
        self.step("cuCheckpointProcessCheckpoint", &self.checkpoint, pid)
    }

    fn restore(&self, pid: i32) -> Result<(), Refusal> {
        self.step("cuCheckpointProcessRestore", &self.restore, pid)
    }

    fn unlock(&self, pid: i32) -> Result<(), Refusal> {
        self.step("cuCheckpointProcessUnlock", &self.unlock, pid)
    }
}
