//! Two ways of running a worker, taking turns in one run (A B A B), so that what the machine does meanwhile meets
//! both alike.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use clap::ValueEnum;

use crate::sample::quantile;
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

/// What a worker says of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// A call, ns.
    pub ns: f64,
    /// The processor's pace right before and right after the calls, the slower of both: ns for a step of a loop in registers.
    pub pace_ns: f64,
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
        command.env_remove("LD_PRELOAD");
        if !self.driver.as_os_str().is_empty() {
            command.env("LD_LIBRARY_PATH", &self.driver); // else where this machine has it
        }
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
        Ok(self.figures::<1>()?[0])
    }

    /// The same, and the processor's pace.
    pub fn round(&mut self) -> std::io::Result<Round> {
        self.figures().map(|[ns, pace_ns]| Round { ns, pace_ns })
    }

    fn figures<const N: usize>(&mut self) -> std::io::Result<[f64; N]> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let figures: Option<Vec<f64>> =
            line.split_whitespace().take(N).map(|figure| figure.parse().ok()).collect();
        let figures = figures.and_then(|figures| figures.try_into().ok());
        figures.ok_or_else(|| std::io::Error::other("the worker ended without a figure"))
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

/// `rounds` figures for each setting and task, in turns, of each of `at_once` workers that run a round together.
pub fn take_turns<const N: usize>(
    teams: [(&Setting, Task); N],
    at_once: usize,
    rounds: usize,
) -> std::io::Result<[Vec<Round>; N]> {
    let start = |(setting, task): (&Setting, Task)| (0..at_once).map(|_| setting.start(task)).collect();
    let mut teams = teams.into_iter().map(start).collect::<Result<Vec<Vec<_>>, _>>()?;
    let mut figures = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (team, figures) in teams.iter_mut().zip(&mut figures) {
            team.iter_mut().try_for_each(Worker::go)?;
            let said: Vec<Round> = team.iter_mut().map(Worker::round).collect::<Result<_, _>>()?;
            figures.extend(said);
        }
    }
    Ok(figures)
}

/// A processor that somebody else holds up, too, is slow for a while. Those rounds count in which its pace was so near the best of all.
const AS_FAST: f64 = 1.1;

/// The best pace of all that was measured in one run, ns.
pub fn best_pace<'a>(run: impl IntoIterator<Item = &'a Round>) -> f64 {
    run.into_iter().map(|round| round.pace_ns).fold(f64::INFINITY, f64::min)
}

/// The figures of the rounds that count: those in which the processor was as fast as it ever was in the run, or nearly so, and a
/// tenth of them at least. What was measured has no say in that.
pub fn while_fast(rounds: &[Round], best_pace_ns: f64) -> Vec<f64> {
    let mut paces: Vec<f64> = rounds.iter().map(|round| round.pace_ns).collect();
    paces.sort_by(f64::total_cmp);
    let enough = quantile(&paces, 0.1).max(AS_FAST * best_pace_ns);
    rounds.iter().filter(|round| round.pace_ns <= enough).map(|round| round.ns).collect()
}

/// The figures of all rounds.
pub fn all_of(rounds: &[Round]) -> Vec<f64> {
    rounds.iter().map(|round| round.ns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_count_while_the_processor_is_fast_and_a_tenth_of_them_always() {
        let round = |n: u32, pace_ns: f64| Round { ns: f64::from(n), pace_ns };
        let often: Vec<_> = (0..20).map(|n| round(n, if n % 5 == 3 { 2.0 } else { 3.5 })).collect();
        let never: Vec<_> = (0..20).map(|n| round(n, 3.5 - f64::from(n) / 100.0)).collect();
        let best = best_pace(often.iter().chain(&never));
        assert_eq!(while_fast(&often, best), [3.0, 8.0, 13.0, 18.0]);
        assert_eq!(while_fast(&never, best), [18.0, 19.0]);
    }
}
