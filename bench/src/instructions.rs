//! Instructions, counted by callgrind (Debian package `valgrind`): a figure that hardly moves between runs and machines, where
//! times do. Marks of the meter go by the clock, so a few launches in a thousand cost another number each time.
//!
//! What one call costs is the slope between a worker of one round and one of two: starting up cancels out.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::pair::Setting;
use crate::worker::{CALLS, Task};

/// The counter, and where it is to leave its profile: nowhere.
const CALLGRIND: [&str; 2] = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];

/// What stands before the count in what it says.
const COUNT: &str = "Collected :";

/// Instructions of one launch with and without the library, the difference, and that of another interposer; or why there is
/// no such figure.
pub fn of_a_launch(bare: &Setting, with: &Setting, other: Option<&Setting>) -> Value {
    let count = || -> Result<Value, String> {
        let (bare, with) = (slope(bare)?, slope(with)?);
        let mut figures = json!({"bare": bare, "weir": with, "added": with - bare});
        if let Some(other) = other {
            figures["other"] = slope(other).map_or_else(absent, |other| json!({"added": other - bare}));
        }
        Ok(figures)
    };
    count().unwrap_or_else(absent)
}

/// Instructions of a start of `/bin/true` with and without the library.
pub fn of_a_start(preload: &OsStr) -> Value {
    let count = || -> Result<Value, String> {
        let mut bare = callgrind("/bin/true");
        bare.env_remove("LD_PRELOAD");
        let mut with = callgrind("/bin/true");
        with.env("LD_PRELOAD", preload);
        let (bare, with) = (counted(bare, 0)?, counted(with, 0)?);
        Ok(json!({"bare": bare, "weir": with, "added": with as f64 - bare as f64}))
    };
    count().unwrap_or_else(absent)
}

/// The figure is there and is null: `why` says what was missing.
#[allow(clippy::needless_pass_by_value, reason = "as `unwrap_or_else` wants it")]
fn absent(why: String) -> Value {
    json!({"added": Value::Null, "why": why})
}

fn slope(setting: &Setting) -> Result<f64, String> {
    let rounds = |rounds| {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = callgrind(&program); // by its name: for valgrind `/proc/self/exe` is valgrind
        setting.furnish(&mut command, Task::Launch);
        counted(command, rounds)
    };
    Ok((rounds(2)? as f64 - rounds(1)? as f64) / CALLS as f64)
}

fn callgrind(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("valgrind");
    command.args(CALLGRIND).arg("--").arg(program);
    command
}

/// Runs it for so many rounds, and reads what was counted.
fn counted(mut command: Command, rounds: usize) -> Result<u64, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "valgrind is not installed".to_owned(),
        _ => format!("valgrind does not start: {error}"),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has ended already reads no more: what it said tells.
        let _ = stdin.write_all("\n".repeat(rounds).as_bytes());
    }
    let ended = child.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&ended.stderr);
    let mut counts = said.lines().filter_map(|line| line.split_once(COUNT)?.1.trim().parse().ok());
    counts.next_back().filter(|_| ended.status.success()).ok_or_else(|| {
        let last = said.lines().last().unwrap_or("nothing");
        format!("valgrind counted nothing ({}): {last}", ended.status)
    })
}
