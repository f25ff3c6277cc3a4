//! The other side of a player: starts it, bare or as a tenant's process, gives it orders and waits for answers, never for ever.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::Rig;
use crate::stage::{self, THIS_PROGRAM};

/// Longest wait for a player to be ready: PyTorch is read from disk, and vLLM compiles.
const START: Duration = Duration::from_secs(100);

/// Longest wait for an answer that should come at once, beyond what the order itself takes.
pub const SOON: Duration = Duration::from_secs(20);

/// Longest wait for a player to end by itself: vLLM's has an engine to end.
const END: Duration = Duration::from_secs(10);

/// Who plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// This program, by the driver's own calls.
    Twin,
    /// PyTorch, by this Python.
    Torch(PathBuf),
}

/// How a player is put under Weir.
#[derive(Clone, Copy, Debug)]
pub enum Way<'a> {
    /// Not at all.
    Bare,
    /// Our library preloaded; the tenant's directory.
    Preload(&'a Path),
    /// Our library in the driver's place.
    Proxy(&'a Path),
    /// Somebody else's library preloaded.
    Other(&'a Path),
}

/// How far a player has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// When its last unit was done, ns.
    pub at_ns: u64,
    /// Units done.
    pub done: f64,
}

impl Progress {
    /// Units in a second since then.
    pub fn rate_since(self, before: Self) -> f64 {
        (self.done - before.done) / (self.at_ns.saturating_sub(before.at_ns) as f64 / 1e9)
    }
}

/// A running player.
pub struct Player {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Side {
    /// The command that plays this work.
    fn command(&self, work: &str) -> io::Result<Command> {
        Ok(match self {
            Self::Twin => {
                let mut command = Command::new(THIS_PROGRAM);
                command.args(["check-player", work]);
                command
            }
            Self::Torch(python) => {
                let mut command = Command::new(python);
                command.arg("-u").arg(script("torch_play.py")?).arg(work);
                command
            }
        })
    }
}

/// One of the scripts that come with the check.
pub fn script(name: &str) -> io::Result<PathBuf> {
    let packed = stage::dist()?.join("check").join(name);
    Ok(if packed.exists() { packed } else { stage::workspace().join("bench/check").join(name) })
}

/// Gives a command the driver of the rig, and puts it under Weir in this way.
pub fn furnish(rig: &Rig, command: &mut Command, way: Way<'_>) {
    rig.environment(command);
    match way {
        Way::Bare => {}
        Way::Preload(place) => {
            command.env("LD_PRELOAD", rig.preload()).env("WEIR_DIR", place);
        }
        Way::Proxy(place) => {
            let proxy = rig.preload().with_file_name("proxy");
            let first = [proxy, rig.driver_directory()].map(|path| path.display().to_string());
            let all = paths(first, "LD_LIBRARY_PATH");
            command.env("LD_LIBRARY_PATH", all).env("WEIR_DIR", place);
        }
        Way::Other(library) => {
            command.env("LD_PRELOAD", library);
        }
    }
    if let Some(dist) = rig.preload().ancestors().nth(3) {
        command.env("PYTHONPATH", paths([dist.join("python").display().to_string()], "PYTHONPATH"));
    }
}

/// These directories before those that a variable names already.
fn paths<const N: usize>(first: [String; N], variable: &str) -> String {
    let inherited = std::env::var(variable).unwrap_or_default();
    let all: Vec<_> = first.into_iter().chain([inherited]).filter(|path| !path.is_empty()).collect();
    all.join(":")
}

impl Player {
    /// Starts one, and waits until it is ready.
    pub fn start(rig: &Rig, side: &Side, work: &str, way: Way<'_>) -> io::Result<Self> {
        Ok(Self::start_all(rig, side, &[(work, way)])?.swap_remove(0))
    }

    /// Starts several at once: PyTorch takes its time.
    pub fn start_all(rig: &Rig, side: &Side, wanted: &[(&str, Way<'_>)]) -> io::Result<Vec<Self>> {
        let begin = |(work, way): &(&str, Way<'_>)| {
            let mut command = side.command(work)?;
            furnish(rig, &mut command, *way);
            Self::begin(command, work)
        };
        let mut players = wanted.iter().map(begin).collect::<io::Result<Vec<_>>>()?;
        players.iter_mut().try_for_each(|player| player.answer(START).map(drop))?;
        Ok(players)
    }

    /// Starts a command that plays, and waits until it is ready.
    pub fn of(command: Command, name: &str) -> io::Result<Self> {
        let mut player = Self::begin(command, name)?;
        player.answer(START)?;
        Ok(player)
    }

    fn begin(mut command: Command, name: &str) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (send, answers) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.filter(|line| line.starts_with('{')).all(|line| send.send(line).is_ok())
        });
        Ok(Self { name: name.into(), stdin: child.stdin.take(), child, answers })
    }

    /// Gives an order.
    pub fn tell(&mut self, order: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(stdin, "{order}")?;
        stdin.flush()
    }

    /// The next answer.
    pub fn answer(&mut self, patience: Duration) -> io::Result<Value> {
        let failed = |why: String| io::Error::other(format!("player `{}`: {why}", self.name));
        let line = self.answers.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => failed(format!("no answer within {patience:?}")),
            RecvTimeoutError::Disconnected => failed("it has ended".into()),
        })?;
        let answer: Value = serde_json::from_str(&line)?;
        match answer["error"].as_str() {
            Some(error) => Err(failed(error.into())),
            None => Ok(answer),
        }
    }

    /// Gives an order that takes about so long, and waits for the answer.
    pub fn ask(&mut self, order: &str, takes: Duration) -> io::Result<Value> {
        self.tell(order)?;
        self.answer(takes * 4 + SOON)
    }

    /// How far it has come.
    pub fn look(&mut self) -> io::Result<Progress> {
        let said = self.ask("look", Duration::ZERO)?;
        Ok(Progress { at_ns: said["at_ns"].as_u64().unwrap_or(0), done: number(&said, "done")? })
    }

    /// Gives it other work.
    pub fn take_up(&mut self, work: &str) -> io::Result<()> {
        self.ask(&format!("work {work}"), Duration::from_secs(10)).map(drop)
    }

    /// Lets it go on without end.
    pub fn go(&mut self, how: &str) -> io::Result<()> {
        self.tell(&format!("go {how}"))
    }

    /// Ends that.
    pub fn stop(&mut self) -> io::Result<()> {
        self.ask("stop", Duration::ZERO)?; // what `go` came to is answered first
        self.answer(SOON).map(drop)
    }

    /// Seconds that so many units take, one after the other.
    pub fn round(&mut self, units: u64) -> io::Result<f64> {
        number(&self.ask(&format!("round {units}"), Duration::from_secs(10))?, "s")
    }

    /// The same of what two processes do beside each other that exchange after each unit, without that.
    pub fn steps(&mut self, units: u64) -> io::Result<f64> {
        number(&self.ask(&format!("steps {units}"), Duration::from_secs(10))?, "s")
    }

    /// Kills it, as nothing in it can prevent.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let start = Instant::now();
        while start.elapsed() < END {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5)); // between two looks at another process
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number of an answer.
pub fn number(answer: &Value, name: &str) -> io::Result<f64> {
    answer[name].as_f64().ok_or_else(|| io::Error::other(format!("no `{name}` in {answer}")))
}

/// A list of numbers of an answer.
pub fn numbers(answer: &Value, name: &str) -> io::Result<Vec<f64>> {
    let list = answer[name].as_array().map(|list| list.iter().filter_map(Value::as_f64).collect());
    list.ok_or_else(|| io::Error::other(format!("no list `{name}` in {answer}")))
}
