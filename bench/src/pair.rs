//! Two ways of running a worker, taking turns in one run (A B A B), so that what the machine does meanwhile meets
//! both alike.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use clap::ValueEnum;

use crate::stage::THIS_PROGRAM;
use crate::worker::Task;

/// How a worker is started.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Directory with `libcuda.so.1`.
    pub driver: PathBuf,
    /// Library to preload, and the tenant's directory for it.
    pub preload: Option<(PathBuf, PathBuf)>,
    /// What else the driver wants to find in its environment.
    pub environment: Vec<(&'static str, PathBuf)>,
}

/// A running worker.
pub struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Setting {
    /// The command that starts a worker for `task`.
    pub fn command(&self, task: Task) -> std::io::Result<Command> {
        let mut command = Command::new(THIS_PROGRAM);
        self.furnish(&mut command, task);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(command)
    }

    /// What a worker's command needs behind the program: its arguments and its environment.
    pub fn furnish(&self, command: &mut Command, task: Task) {
        let name = task.to_possible_value().map_or_else(String::new, |value| value.get_name().into());
        command.args(["worker", &name]);
        command.env("LD_LIBRARY_PATH", &self.driver).env_remove("LD_PRELOAD");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some((library, place)) = &self.preload {
            command.env("LD_PRELOAD", library).env("WEIR_DIR", place);
        }
    }

    /// Starts a worker.
    pub fn start(&self, task: Task) -> std::io::Result<Worker> {
        let mut child = self.command(task)?.spawn()?;
        let missing = || std::io::Error::other("the worker has no pipe");
        let stdin = Some(child.stdin.take().ok_or_else(missing)?);
        let stdout = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(Worker { child, stdin, stdout })
    }
}

impl Worker {
    /// Starts a round.
    pub fn go(&mut self) -> std::io::Result<()> {
        let ended = || std::io::Error::other("the worker has been told to end");
        let stdin = self.stdin.as_mut().ok_or_else(ended)?;
        stdin.write_all(b"\n")?;
        stdin.flush()
    }

    /// The figure of the round: nanoseconds per call.
    pub fn figure(&mut self) -> std::io::Result<f64> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        line.trim().parse().map_err(|_| std::io::Error::other("the worker ended without a figure"))
    }
}

impl Worker {
    /// Lets it end by itself, so that all it counted is told.
    pub fn finish(mut self) -> std::io::Result<()> {
        drop(self.stdin.take());
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(std::io::Error::other(format!("the worker ended with {status}")))
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `rounds` figures for each setting and task, in turns; `at_once` workers of one run each round together, and the round's
/// figure is their mean.
pub fn take_turns<const N: usize>(
    teams: [(&Setting, Task); N],
    at_once: usize,
    rounds: usize,
) -> std::io::Result<[Vec<f64>; N]> {
    let start = |(setting, task): (&Setting, Task)| (0..at_once).map(|_| setting.start(task)).collect();
    let mut teams = teams.into_iter().map(start).collect::<Result<Vec<Vec<_>>, _>>()?;
    let mut figures = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (team, figures) in teams.iter_mut().zip(&mut figures) {
            team.iter_mut().try_for_each(Worker::go)?;
            let sum = team.iter_mut().map(Worker::figure).sum::<Result<f64, _>>()?;
            figures.push(sum / at_once as f64);
        }
    }
    Ok(figures)
}
