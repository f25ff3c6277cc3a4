//! A command that runs on a node: as a process of ours, or behind what the configuration puts before it.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::control::config::Reach;

/// Longest that a command may take: a stop waits for its instance to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looks at it come this often.
const LOOK: Duration = Duration::from_millis(10);

/// Most of what it says that is read, in bytes.
const MOST_SAID: u64 = 16 << 10;

/// A command to a node.
pub(super) struct Command<'a> {
    reach: &'a Reach,
    words: Vec<String>,
}

/// How it ended.
pub(super) enum Ran {
    /// With this code, having said this on stderr.
    Ended {
        /// Its exit code; -1 for a signal.
        code: i32,
        /// The last of what it said.
        said: String,
    },
    /// It could not be started, or did not end in time.
    Unknown(String),
}

impl<'a> Command<'a> {
    pub fn on(reach: &'a Reach) -> Self {
        Self { reach, words: vec![reach.weir_cluster.display().to_string()] }
    }

    /// `weir-cluster instance DO --dir DIR NAME`.
    pub fn instance(self, what: &str, name: &str) -> Self {
        let dir = self.reach.instances.display().to_string();
        self.args(["instance", what, "--dir", &dir, name].map(str::to_owned))
    }

    pub fn arg(self, word: &str) -> Self {
        self.args([word.to_owned()])
    }

    pub fn args(mut self, words: impl IntoIterator<Item = String>) -> Self {
        self.words.extend(words);
        self
    }

    /// Runs it to its end.
    pub fn run(self) -> Ran {
        let words = match self.reach.start.first() {
            // ssh hands one line to a shell.
            Some(first) if first.rsplit('/').next() == Some("ssh") => {
                let line: Vec<_> = self.words.iter().map(|word| quoted(word)).collect();
                [self.reach.start.clone(), vec![line.join(" ")]].concat()
            }
            _ => [self.reach.start.clone(), self.words].concat(),
        };
        let mut command = std::process::Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        match command.spawn() {
            Ok(child) => watch(child),
            Err(error) => Ran::Unknown(format!("`{}` cannot be started: {error}", words[0])),
        }
    }
}

fn watch(mut child: Child) -> Ran {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                let mut said = String::new();
                let stderr = child.stderr.take();
                // What it has not said is not missed.
                let _ = stderr.map(|stderr| stderr.take(MOST_SAID).read_to_string(&mut said));
                let first = said.lines().next().unwrap_or_default().to_owned();
                return Ran::Ended { code: status.code().unwrap_or(-1), said: first };
            }
            Ok(None) if start.elapsed() < PATIENCE => std::thread::sleep(LOOK), // between two looks at a process
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Ran::Unknown(format!("no end within {PATIENCE:?}"));
            }
            Err(error) => return Ran::Unknown(error.to_string()),
        }
    }
}

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_a_quoted_word_for_one() {
        for word in ["plain", "two words", "it's", "$HOME `x` \"y\"", ""] {
            let shown = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(word))])
                .output();
            assert_eq!(String::from_utf8(shown.unwrap().stdout).unwrap(), word);
        }
    }
}
