//! A program under `weir run`: its lines as they come, and its end, whatever happens to us.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::fault::Fault;

/// How long a program may take to end when it is asked to, before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// Lines of stderr that are kept, for the error message.
const KEPT: usize = 8;

/// One line of stdout.
pub struct Line {
    /// When it came.
    pub at: Instant,
    /// What it says.
    pub text: String,
}

/// What comes next from a program.
pub enum Heard {
    /// A line.
    Line(Line),
    /// Nothing in the time given.
    Silence,
    /// There will be no more.
    End,
}

/// A running program, with everything that it started.
pub struct Program {
    child: Child,
    lines: Receiver<Line>,
    last_words: Arc<Mutex<VecDeque<String>>>,
}

impl Program {
    /// Starts `words` in a process group of its own.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start<S: AsRef<OsStr>>(words: &[S]) -> Result<Self, Fault> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().map_err(|error| {
            let message = format!("`{}` cannot be started: {error}", words[0].as_ref().display());
            Fault::new(message, "name the `weir` of this build with --weir")
        })?;
        let (send, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            let each = move |text| send.send(Line { at: Instant::now(), text }).is_ok();
            std::thread::spawn(move || read_lines(stdout, each));
        }
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        if let (Some(stderr), kept) = (child.stderr.take(), last_words.clone()) {
            std::thread::spawn(move || read_lines(stderr, |text| keep(&kept, text)));
        }
        Ok(Self { child, lines, last_words })
    }

    /// What comes within `time`.
    pub fn hear(&self, time: Duration) -> Heard {
        match self.lines.recv_timeout(time) {
            Ok(line) => Heard::Line(line),
            Err(RecvTimeoutError::Timeout) => Heard::Silence,
            Err(RecvTimeoutError::Disconnected) => Heard::End,
        }
    }

    /// The last lines of its stderr.
    pub fn last_words(&self) -> String {
        let kept = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect::<Vec<_>>().join("\n  | ")
    }

    /// How it ended, once its output has; killed if it closed that and goes on.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.wait_until(Instant::now() + GRACE)
    }

    fn wait_until(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::park_timeout(Duration::from_millis(5)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, signal); // it may be gone
        }
    }
}

impl Drop for Program {
    /// Asks the whole group to end, and kills what does not.
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            self.signal(Signal::TERM);
            self.wait_until(Instant::now() + GRACE);
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Hands over each line until nobody wants more. What is not UTF-8 is shown as such.
fn read_lines(from: impl Read, mut each: impl FnMut(String) -> bool) {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        if !each(text) {
            return;
        }
    }
}

fn keep(kept: &Mutex<VecDeque<String>>, text: String) -> bool {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.push_back(text);
    if kept.len() > KEPT {
        kept.pop_front();
    }
    true
}
