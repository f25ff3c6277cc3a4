//! The broker's life around its loop: lock, configuration, socket, leaving.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};
use rustix::process::{Resource, Rlimit};
use weir_simgpu_link::config::Config;
use weir_simgpu_link::{place, socket};

use crate::broker::Broker;
use crate::{CONFIG_EXIT, fail};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Between two looks whether the detached broker listens.
const STEP: Duration = Duration::from_millis(1);

/// Starts the broker as a process that is nobody's child, and returns once it listens or has given up.
pub fn detach(dir: &Path, config: Option<&Path>) -> ExitCode {
    // A session of its own: no terminal's signals reach the broker. It fails only for who leads one already.
    let _ = rustix::process::setsid();
    let program = std::env::current_exe().unwrap_or_else(|_| "weir-simgpu".into());
    let mut command = Command::new(program);
    command.args(["broker", "--foreground", "--dir"]).arg(dir).stdin(Stdio::null());
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(why) => return fail(1, format_args!("cannot start the broker: {why}")),
    };
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
        }
        if socket::connect(&dir.join(place::SOCKET)).is_ok() {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(STEP);
    }
}

/// Is the broker, until the last client has gone. Where another one is already, exits 0 at once.
pub fn serve(dir: &Path, config: Option<&Path>) -> ExitCode {
    let lock = match take_lock(dir) {
        Ok(Some(lock)) => lock,
        Ok(None) => return ExitCode::SUCCESS,
        Err(why) => {
            let hint = "help: name a directory of yours with --dir or WEIR_SIMGPU_DIR";
            return fail(
                1,
                format_args!("cannot use the state directory `{}`: {why}\n{hint}", dir.display()),
            );
        }
    };
    let reason = dir.join(place::REASON);
    let config = match Config::load(config) {
        Ok(config) => config,
        Err(why) => {
            // For the library that started us; if it cannot be written, the exit code has to do.
            let _ = std::fs::write(reason, why.to_string());
            return fail(CONFIG_EXIT, why);
        }
    };
    // Normally there is none to remove.
    let _ = std::fs::remove_file(reason);
    let path = dir.join(place::SOCKET);
    let done = listen(&path).and_then(|listener| Broker::new(config, listener)).and_then(Broker::run);
    // The lock is still held: this socket is ours, or a dead broker's.
    let _ = std::fs::remove_file(path);
    drop(lock);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(1, format_args!("the broker ends: {why}")),
    }
}

/// The lock, or `None` if another broker has it. It is held as long as the file is open.
fn take_lock(dir: &Path) -> std::io::Result<Option<File>> {
    use std::os::unix::fs::DirBuilderExt;
    // 0700: the socket is for this user alone.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(place::LOCK))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

fn listen(path: &Path) -> Result<OwnedFd, Errno> {
    // Each client takes three descriptors. A soft limit that cannot be raised only means fewer clients.
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    // The lock is ours, so a socket here is a dead broker's.
    let _ = std::fs::remove_file(path);
    let listener = socket::socket(SocketFlags::NONBLOCK)?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}
