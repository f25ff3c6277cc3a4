//! Programs, bare or under `weir run`: started with an end to their memory, watched with an end to patience.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;

use crate::node::Node;
use crate::simgpu::SimGpu;
use crate::wait::{self, PATIENCE};

/// Address space that a program may take, in bytes: what the simulated GPU holds is host memory, and a bug shall
/// end in a failed allocation, not in a machine without memory.
const ADDRESS_SPACE: u64 = 12 << 30;

/// What `weir run` is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// Name of the tenant.
    pub name: &'a str,
    /// Guaranteed share.
    pub request: &'a str,
    /// Share never exceeded.
    pub limit: &'a str,
    /// Memory.
    pub memory: &'a str,
}

impl Default for Budget<'_> {
    /// Nearly everything.
    fn default() -> Self {
        Self { name: "tenant", request: "100%", limit: "100%", memory: "8GiB" }
    }
}

/// A program that is about to start.
pub struct Program {
    command: Command,
    address_space: u64,
}

impl Program {
    /// The program as it is, on the simulated GPU.
    pub fn bare(gpu: &SimGpu, program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.envs(gpu.environment());
        Self { command, address_space: ADDRESS_SPACE }
    }

    /// The program under `weir run`; without a node manager it is stand-alone.
    pub fn under_weir(
        gpu: &SimGpu,
        node: Option<&Node<'_>>,
        budget: Budget<'_>,
        program: impl AsRef<OsStr>,
    ) -> Self {
        Self::under_weir_with(gpu, node, budget, &[], program)
    }

    /// As above, with further flags of `weir run`.
    pub fn under_weir_with(
        gpu: &SimGpu,
        node: Option<&Node<'_>>,
        budget: Budget<'_>,
        flags: &[&str],
        program: impl AsRef<OsStr>,
    ) -> Self {
        // Where no node manager can be: one that runs on this machine for other purposes is not the story's.
        let mut weir = Self::bare(gpu, gpu.dist().weir()).arg("--json").env("WEIR_NODE_DIR", gpu.no_node());
        if let Some(node) = node {
            weir = weir.arg("--dir").arg(node.dir());
        }
        weir.args(["run", "--name", budget.name, "--request", budget.request])
            .args(["--limit", budget.limit, "--memory", budget.memory])
            .args(flags)
            .arg("--")
            .arg(program)
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.args(arguments);
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// With no environment variable at all but those set after this.
    #[must_use]
    pub fn without_environment(mut self) -> Self {
        self.command.env_clear();
        self
    }

    /// With no end to its address space: an address sanitizer reserves terabytes of it, and uses next to nothing.
    #[must_use]
    pub fn with_all_addresses(mut self) -> Self {
        self.address_space = libc::RLIM_INFINITY;
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(mut self) -> Running {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let limit = libc::rlimit { rlim_cur: self.address_space, rlim_max: self.address_space };
        // SAFETY: the closure makes one system call and touches nothing that another thread may hold.
        unsafe {
            self.command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
                0 => Ok(()),
                _ if limit.rlim_max == libc::RLIM_INFINITY => Ok(()), // no more than this process has
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let name = format!("{:?}", self.command.get_program());
        let mut child =
            self.command.spawn().unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let (stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
        });
        let stderr = std::thread::spawn(move || text(stderr));
        Running { name, stdin: child.stdin.take(), child, lines, stderr: Some(stderr), seen: Vec::new() }
    }

    /// Starts it and waits for its end.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn run(self) -> Finished {
        self.start().finish()
    }
}

fn text(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A program that runs. It dies with this value, and whatever it started in its process group too.
pub struct Running {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    seen: Vec<String>,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("process ids fit")
    }

    /// Writes a line to its stdin.
    ///
    /// # Panics
    /// If it does not read any more.
    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open until `finish`");
        writeln!(stdin, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Its next line on stdout; nothing when there will be no more.
    ///
    /// # Panics
    /// If none comes in time.
    pub fn next_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("{}: no line in {PATIENCE:?}", self.name),
        }
    }

    /// Closes its stdin and waits for its end.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn finish(mut self) -> Finished {
        self.stdin = None;
        while self.next_line().is_some() {}
        let name = self.name.clone();
        let status = wait::until(&format!("the end of {name}"), || self.child.try_wait().ok().flatten());
        let stderr = self.stderr.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        Finished { status, stdout: std::mem::take(&mut self.seen), stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: takes numbers only: the group that `start` made, whose leader is not reaped or whose members keep
        // the number in use.
        unsafe { libc::kill(-self.pid(), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How.
    pub status: ExitStatus,
    /// Its lines on stdout.
    pub stdout: Vec<String>,
    /// Its stderr.
    pub stderr: String,
}

impl Finished {
    /// This, if the program ended well.
    ///
    /// # Panics
    /// If it did not.
    pub fn well(self) -> Self {
        assert!(self.status.success(), "{}\n{}\n{}", self.status, self.stdout.join("\n"), self.stderr);
        self
    }

    /// The summary that `weir --json run` leaves as the last JSON line on stderr.
    ///
    /// # Panics
    /// If there is none.
    pub fn summary(&self) -> serde_json::Value {
        let line = self.stderr.lines().rev().find(|line| line.starts_with('{'));
        let line = line.unwrap_or_else(|| panic!("no summary on stderr:\n{}", self.stderr));
        serde_json::from_str(line).expect("the summary is JSON")
    }
}

/// Sends a signal to a process: SIGKILL, SIGSTOP, SIGCONT, or one that it may handle.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: takes numbers only.
    unsafe { libc::kill(pid, signal) };
}

/// Kills a process as nothing in it can prevent.
pub fn kill(pid: i32) {
    signal(pid, libc::SIGKILL);
}
