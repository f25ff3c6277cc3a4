//! A broker of a test's own, and child processes that play a role as its clients.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;
use weir_simgpu_link::books::{Books, Client};
use weir_simgpu_link::{Kernel, Kind, Session, StreamKind, Work, place, socket};

use crate::roles::{ROLE, Role};

/// Events are waited for this long at most.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks whether an event has come.
const STEP: Duration = Duration::from_millis(1);

/// A machine whose times can be reckoned: kernels do not stray, and contexts are made unfelt.
pub const EXACT: &str = "spread_ppm = 0\ncontext_stalls = 0\n";

/// Waits for an event.
pub fn until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it did not happen within {PATIENCE:?}");
        std::thread::sleep(STEP);
    }
}

/// A simulated machine: a state directory and its configuration, with or without a broker.
pub struct Machine {
    dir: TempDir,
}

impl Machine {
    pub fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.toml"), config).unwrap();
        Self { dir }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(place::SOCKET)
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    pub fn client(&self) -> Session {
        Session::over(socket::connect(&self.socket()).unwrap(), Kind::Cuda).unwrap()
    }

    pub fn books(&self) -> Books {
        let connection = socket::connect(&self.socket()).unwrap();
        Session::over(connection, Kind::Observer).unwrap().books().unwrap()
    }

    /// The books of one process on the first GPU.
    pub fn books_of(&self, pid: u32) -> Option<Client> {
        let mut clients = self.books().gpus.remove(0).clients.into_iter();
        clients.find(|client| client.pid.cast_unsigned() == pid)
    }

    /// Kernels of a process that are complete, and commands that are not.
    pub fn progress(&self, pid: u32) -> (u64, u64) {
        let contexts = self.books_of(pid).map(|books| books.contexts).unwrap_or_default();
        contexts.iter().fold((0, 0), |sum, context| (sum.0 + context.launches, sum.1 + context.queued))
    }

    /// Starts a child that plays a role on this machine.
    pub fn play(&self, role: Role) -> Player {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "roles::played", "--nocapture"]).env(ROLE, role.name());
        command.env(place::DIR, self.dir.path()).env(place::CONFIG, self.config());
        Player(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Process ids of this machine's brokers.
    pub fn brokers(&self) -> Vec<u32> {
        let serves_us = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut arguments = line.split(|byte| *byte == 0);
            let dir = self.dir.path().as_os_str().as_encoded_bytes();
            arguments.clone().any(|word| word == b"--foreground") && arguments.any(|word| word == dir)
        };
        let processes = std::fs::read_dir("/proc").unwrap();
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(serves_us).collect()
    }
}

/// A machine with a broker that the test itself has started; killed when dropped.
pub struct Broker {
    pub process: Child,
    machine: Machine,
}

impl Broker {
    pub fn start(config: &str) -> Self {
        let machine = Machine::new(config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-simgpu"));
        command.args(["broker", "--foreground", "--dir"]).arg(machine.dir.path());
        let process = command.arg("--config").arg(machine.config()).spawn().unwrap();
        until(|| socket::connect(&machine.socket()).is_ok());
        Self { process, machine }
    }
}

impl std::ops::Deref for Broker {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have left already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A child that plays a role; killed when dropped.
pub struct Player(Child);

impl Player {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The starting gun: roles begin when a line comes.
    pub fn go(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Stops it, and returns once it stands still. One of its threads takes the signal and stops the others: on a busy
    /// machine these go on until that one has had its turn.
    pub fn stop(&self) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "it has ended");
    }

    /// Waits for its end; whether it was content.
    pub fn end(mut self) -> bool {
        drop(self.0.stdin.take());
        let mut status = None;
        until(|| {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.is_some_and(|status| status.success())
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A kernel that takes the whole device for so long.
pub fn kernel(solo_ns: u64) -> Work {
    Work::Kernel(Kernel { solo_ns, blocks: 108, bandwidth_permille: 0, spins: false })
}

/// A stream in a context of its own.
pub fn stream(session: &Session) -> u32 {
    let context = session.create_context(0).unwrap();
    session.open_stream(context, StreamKind::Blocking, 0).unwrap()
}

/// Runs a program of this build to its end.
pub fn weir_simgpu(arguments: &[&str], file: &Path) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_weir-simgpu")).args(arguments).arg(file).output().unwrap()
}
