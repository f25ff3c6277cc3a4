//! The two programs, unmodified from PyPI, each under `weir run`.

use std::fs;
use std::io::{self, Write};
use std::process::Child;
use std::time::Duration;

use crate::rig::Rig;
use crate::stage;

/// One program and its budget.
pub struct Row {
    /// Name of the tenant.
    pub name: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    /// The script, below `bench/demo/`.
    script: &'static str,
    /// Request = limit, in percent.
    pub percent: u16,
    /// Memory, as written on the command line.
    memory: &'static str,
}

/// Both programs.
pub const PROGRAMS: [Row; 2] = [
    Row { name: "train", what: "tinygrad", script: "train_tinygrad.py", percent: 60, memory: "8GiB" },
    Row { name: "loop", what: "numba-cuda", script: "loop_numba.py", percent: 30, memory: "2GiB" },
];

/// Longest that a framework may take for a step: at its first start it is read from disk and compiles its kernels.
const PATIENCE: Duration = Duration::from_secs(120);

/// More than the second program may have, less than the card has.
const TOO_MUCH: u64 = 4 << 30;

/// A running program.
pub struct Program {
    row: &'static Row,
    child: Child,
}

impl Program {
    /// Starts it.
    pub fn start(row: &'static Row, rig: &Rig) -> io::Result<Self> {
        let root = stage::workspace();
        let python = root.join(".venv/bin/python").display().to_string();
        let script = root.join("bench/demo").join(row.script).display().to_string();
        let share = format!("{}%", row.percent);
        let budget = ["--request", &share, "--limit", &share, "--memory", row.memory];
        // DEV and TRAINING are tinygrad's own settings; numba does not look at them.
        let program = ["env", "DEV=CUDA", "TRAINING=1", "PYTHONUNBUFFERED=1", &python, &script];
        let child = rig.weir_run(row.name, &budget, &program)?;
        Ok(Self { row, child })
    }

    /// Waits until it has reached its steady state.
    pub fn wait_until_ready(&mut self, rig: &Rig) -> io::Result<()> {
        self.wait_for_line(rig, "ready").map(drop)
    }

    /// Lets it ask for more memory than its limit; what its framework says.
    pub fn ask_for_too_much(&mut self, rig: &Rig) -> io::Result<String> {
        self.order(&format!("grow {TOO_MUCH}"))?;
        self.wait_for_line(rig, "out of memory: ")
    }

    /// Ends it and waits for it.
    pub fn stop(&mut self) -> io::Result<()> {
        self.order("stop")?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("`{}` ended with {status}", self.row.name)))
        }
    }

    fn order(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.child.stdin.as_mut().ok_or_else(|| io::Error::other("the program has no stdin"))?;
        writeln!(stdin, "{line}")?;
        stdin.flush()
    }

    /// The rest of the first line of its output that begins with `start`.
    fn wait_for_line(&mut self, rig: &Rig, start: &str) -> io::Result<String> {
        let log = rig.log(self.row.name);
        let what = format!("`{}` saying `{}`", self.row.name, start.trim());
        let child = &mut self.child;
        rig.wait_within(PATIENCE, &what, || {
            if let Some(status) = child.try_wait()? {
                let log = fs::read_to_string(&log)?;
                return Err(io::Error::other(format!("it ended with {status}:\n{log}")));
            }
            let text = fs::read_to_string(&log)?;
            Ok(text.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned))
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // By a signal that `weir run` passes on: killed, it would leave its program behind.
        if let (Ok(None), Ok(pid)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            // SAFETY: takes numbers only; the child is ours and not reaped.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        let _ = self.child.wait();
    }
}
