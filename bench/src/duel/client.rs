//! A `weir-player` that runs: the words by which it is told what to do, and what it answers.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use crate::rig::Rig;
use crate::stage;

/// What it answers, as on the card.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Answer {
    /// Units a second.
    pub per_s: Option<f64>,
    /// Half of its requests, or of its units, took at most so long, ms.
    pub p50_ms: Option<f64>,
    /// 99 of 100 requests took at most so long, ms.
    pub p99_ms: Option<f64>,
    /// How many requests there were.
    pub requests: Option<u32>,
    /// For so much of the time some of its work was not done.
    pub undrained_percent: Option<f64>,
}

/// Its first line.
#[derive(Deserialize)]
struct Ready {
    pid: i32,
}

/// A running program.
pub struct Client {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
    /// By this number the books know it.
    pub pid: i32,
}

/// Where the program lies: in `dist/`, or beside this one.
pub fn program() -> io::Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("weir-player");
    let laid_out = stage::dist()?.join("test/weir-player");
    let found = [laid_out, beside].into_iter().find(|path| path.exists());
    let help = "there is no `weir-player`\nhelp: run scripts/build, or `cargo build --release -p weir-tests`";
    found.ok_or_else(|| io::Error::other(help))
}

/// The simulated GPU's configuration for programs that are slower than a card's by this factor.
pub fn configuration(slow: f64) -> io::Result<String> {
    let output = Command::new(program()?).args(["--configuration", "--slow", &slow.to_string()]).output()?;
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

impl Client {
    /// Starts it: under `interposer` as a process of the tenant with this directory, or as it is.
    pub fn start(rig: &Rig, slow: f64, weir: Option<(&Path, &Path)>) -> io::Result<Self> {
        let mut command = Command::new(program()?);
        command.args(["--slow", &slow.to_string()]);
        rig.environment(&mut command);
        if let Some((interposer, place)) = weir {
            command.env("LD_PRELOAD", interposer).env("WEIR_DIR", place);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let says = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let hears = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut client = Self { child, says, hears, pid: 0 };
        client.pid = client.heard::<Ready>()?.pid;
        Ok(client)
    }

    /// Tells it to work for so long.
    pub fn work(&mut self, name: &str, time: Duration) -> io::Result<()> {
        writeln!(self.hears, "{name} {}", time.as_secs_f64())
    }

    /// What came of it.
    pub fn answer(&mut self) -> io::Result<Answer> {
        self.heard()
    }

    fn heard<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        let wrong = |why| io::Error::other(format!("`weir-player` said `{}`: {why}", line.trim()));
        serde_json::from_str(&line).map_err(wrong)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
