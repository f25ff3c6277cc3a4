//! Finding the broker, or starting one: the first client does, and whoever comes later finds it.

use std::ffi::{CStr, OsStr};
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{place, socket};

/// How long a broker may take to listen.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks for its socket.
const STEP: Duration = Duration::from_millis(2);
/// The broker's program.
const PROGRAM: &str = "weir-simgpu";
/// What the application's environment may hold that must not reach the broker: it would be hooked itself.
const NOT_FOR_THE_BROKER: [&str; 3] = ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"];

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program is nowhere.
    #[error("no broker of the simulated GPU at `{}`\nhelp: build it with `cargo build -p weir-simgpu-broker`, or set {}", .0.display(), place::BROKER)]
    Missing(PathBuf),
    /// It could not be started.
    #[error("cannot start the broker `{}`: {why}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's word.
        why: std::io::Error,
    },
    /// It gave up, and says why.
    #[error("{0}")]
    Refused(String),
    /// It does not listen.
    #[error("the broker at `{}` does not answer\nhelp: start it by hand with `weir-simgpu broker --foreground` to see why", .0.display())]
    Silent(PathBuf),
}

/// A connection to the broker of `dir`, started if there is none.
///
/// # Errors
/// See [`SpawnError`].
pub fn connect_or_start(dir: &Path) -> Result<OwnedFd, SpawnError> {
    let path = dir.join(place::SOCKET);
    if let Ok(connection) = socket::connect(&path) {
        return Ok(connection);
    }
    let mut starter = start(dir)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(connection) = socket::connect(&path) {
            // The process we started only starts the broker and ends: leave no zombie to the application.
            let _ = starter.wait();
            return Ok(connection);
        }
        match starter.try_wait() {
            Ok(Some(status)) if !status.success() => return Err(SpawnError::Refused(reason(dir))),
            // Another broker has the lock: its socket is about to come, or it is about to leave. Try again.
            Ok(Some(_)) => starter = start(dir)?,
            _ => {}
        }
        if Instant::now() > deadline {
            return Err(SpawnError::Silent(path));
        }
        std::thread::sleep(STEP);
    }
}

/// What a broker that gave up left behind.
fn reason(dir: &Path) -> String {
    std::fs::read_to_string(dir.join(place::REASON)).map_or_else(
        |_| "the broker of the simulated GPU gave up at its start".into(),
        |text| text.trim().into(),
    )
}

fn start(dir: &Path) -> Result<Child, SpawnError> {
    let program = program();
    if !program.exists() {
        return Err(SpawnError::Missing(program));
    }
    let log = std::env::var_os(place::LOG)
        .and_then(|path| OpenOptions::new().append(true).create(true).open(path).ok());
    let mut command = Command::new(&program);
    command.arg("broker").arg("--dir").arg(dir).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log.map_or_else(Stdio::null, Stdio::from));
    for name in NOT_FOR_THE_BROKER {
        command.env_remove(name);
    }
    // A group of its own: a Ctrl-C at the application's terminal is not for the broker, which ends by itself.
    command.process_group(0);
    command.spawn().map_err(|why| SpawnError::Start { program, why })
}

/// `$WEIR_SIMGPU_BROKER`, else beside this library, else in the directory above (cargo's `deps/`).
fn program() -> PathBuf {
    if let Some(path) = std::env::var_os(place::BROKER) {
        return path.into();
    }
    let beside = own_path().and_then(|path| path.parent().map(Path::to_path_buf)).unwrap_or_default();
    let above = beside.parent().map(|dir| dir.join(PROGRAM)).filter(|path| path.exists());
    let beside = beside.join(PROGRAM);
    if beside.exists() { beside } else { above.unwrap_or(beside) }
}

/// The file that this code was loaded from.
fn own_path() -> Option<PathBuf> {
    // SAFETY: all-zero is a valid `Dl_info` (null pointers).
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address of a function of ours, and a place for the answer.
    let found = unsafe { libc::dladdr(own_path as *const libc::c_void, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dladdr` succeeded: the name is a C string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
}
