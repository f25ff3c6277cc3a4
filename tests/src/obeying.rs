//! What programs have in common that do on the GPU what lines on stdin tell them. A line is a command and its numbers, the
//! answer one line of JSON ([`Answer`]) with what the driver said and the numbers that it gave out. Handles and pointers
//! are numbers, so that a story can pass them on, also to another process.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use weir_abi::CUresult;

/// The answer to a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The process that answers (under `weir run` not the one that was started).
    pub pid: u32,
    /// What the driver said, by name.
    pub result: String,
    /// The numbers that the driver gave out.
    pub values: Vec<u64>,
}

/// What a command did: the driver's answer, and the numbers that it gave out.
pub type Done = (CUresult, Vec<u64>);

/// A program that obeys.
pub trait Obeys: Sized {
    /// Opens the driver and makes a context; the driver's answer to that.
    ///
    /// # Errors
    /// If there is no driver.
    fn start() -> Result<(Self, CUresult), libloading::Error>;

    /// Does what a command and its numbers say; `None` if there is no such command.
    fn obey(&mut self, command: &str, numbers: &[u64]) -> Option<Done>;
}

/// The whole program: obeys until stdin ends.
///
/// # Panics
/// At a command that there is not.
pub fn run<Client: Obeys>(name: &str) -> ExitCode {
    let (mut client, started) = match Client::start() {
        Ok(started) => started,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{name}: {error}");
            return ExitCode::FAILURE;
        }
    };
    say((started, Vec::new()));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap_or_default();
        let number = |word: &str| {
            word.replace('_', "").parse().unwrap_or_else(|_| panic!("no number: {word}: {line}"))
        };
        let numbers: Vec<u64> = words.map(number).collect();
        say(client.obey(command, &numbers).unwrap_or_else(|| panic!("no such command: {line}")));
    }
    ExitCode::SUCCESS
}

fn say((result, values): Done) {
    say_json(&Answer { pid: std::process::id(), result: format!("{result:?}"), values });
}

/// One line of JSON on stdout. Nobody who reads it any more is no reason to stop.
pub fn say_json(what: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    let _ = serde_json::to_writer(&mut out, what).map_err(std::io::Error::from).and_then(|()| writeln!(out));
    let _ = out.flush();
}

/// A number as the driver takes it.
pub fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A handle as a number.
pub fn number<T>(handle: *mut T) -> u64 {
    handle.expose_provenance() as u64
}

/// A number as the handle that it was.
pub fn handle<T>(number: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(size(number))
}
