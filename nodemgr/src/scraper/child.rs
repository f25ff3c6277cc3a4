//! The process as the manager sees it: started when there is something to ask, and again, after a pause that grows, when it
//! has ended or does not do what it should.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use weir_protocol::units::Nanos;

use super::message::{Answer, Heard, Question, receive, send};

/// The pause before it is started again after it has ended.
const FIRST_PAUSE: Nanos = Nanos::from_millis(100);

/// The longest pause: each is twice as long as the one before.
const LONGEST_PAUSE: Nanos = Nanos::from_secs(60);

/// One that has lived for so long starts again as the first one did.
const PROVEN: Nanos = Nanos::from_secs(60);

/// The process, if it runs, and when it may be started.
pub struct Scraper {
    program: PathBuf,
    running: Option<Running>,
    not_before: Nanos,
    pause: Nanos,
}

struct Running {
    process: Child,
    socket: OwnedFd,
    since: Nanos,
}

impl Scraper {
    /// One that is not started yet; `program` is `weir`.
    pub fn new(program: PathBuf) -> Self {
        Self { program, running: None, not_before: Nanos(0), pause: FIRST_PAUSE }
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<i32> {
        self.running.as_ref().map(|running| running.process.id().cast_signed())
    }

    /// What can be polled for its answers, while it runs.
    pub fn socket(&self) -> Option<&OwnedFd> {
        self.running.as_ref().map(|running| &running.socket)
    }

    /// When it may be started, if it does not run.
    pub fn starts_at(&self) -> Option<Nanos> {
        self.running.is_none().then_some(self.not_before)
    }

    /// Starts it, unless it runs or is not to be started yet; says whether it runs now.
    ///
    /// # Errors
    /// It cannot be started; it is tried again later.
    pub fn start(&mut self, now: Nanos) -> io::Result<bool> {
        if self.running.is_none() && now >= self.not_before {
            self.running = Some(Running::start(&self.program, now).inspect_err(|_| self.wait(now))?);
        }
        Ok(self.running.is_some())
    }

    /// Asks it; says no where it has not heard enough of the other questions yet, or does not run.
    ///
    /// # Errors
    /// The question is too long, or it has ended.
    pub fn ask(&self, question: &Question) -> io::Result<bool> {
        self.socket().map_or(Ok(false), |socket| send(socket, question, SendFlags::DONTWAIT))
    }

    /// The next answer; nothing while there is none.
    ///
    /// # Errors
    /// Why it is of no more use: it has ended, or says what is no answer.
    pub fn hear(&self) -> Result<Option<Answer>, String> {
        let Some(socket) = self.socket() else { return Ok(None) };
        match receive::<Answer>(socket, RecvFlags::DONTWAIT) {
            Ok(Heard::Message(answer)) if answer.is_sound() => Ok(Some(answer)),
            Ok(Heard::Nothing) => Ok(None),
            Ok(Heard::End) => Err("it has ended".into()),
            Ok(Heard::Message(_) | Heard::Nonsense) => Err("it says what is no answer".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Ends it, and has it started again after a pause.
    pub fn give_up(&mut self, now: Nanos) {
        if self.running.take().is_some_and(|running| now.since(running.since) >= PROVEN) {
            self.pause = FIRST_PAUSE;
        }
        self.wait(now);
    }

    /// Ends it until there is something to ask again.
    pub fn rest(&mut self) {
        self.running = None;
    }

    fn wait(&mut self, now: Nanos) {
        self.not_before = Nanos(now.0.saturating_add(self.pause.0));
        self.pause = Nanos(self.pause.0.saturating_mul(2).min(LONGEST_PAUSE.0));
    }
}

impl Running {
    fn start(program: &std::path::Path, now: Nanos) -> io::Result<Self> {
        let (socket, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(program);
        command.arg0("weir").arg(super::COMMAND).env_clear().current_dir("/").process_group(0);
        let process = command.stdin(other).stdout(Stdio::null()).spawn()?;
        Ok(Self { process, socket, since: now })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
