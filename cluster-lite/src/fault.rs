//! Errors as people meet them: what happened, where, and what to do next.

use std::fmt;

/// Exit code of a command that was used wrongly.
pub const USAGE: u8 = 2;
/// Exit code of a command that could not reach a node manager or a service.
pub const UNREACHABLE: u8 = 69;
/// Exit code of a command whose input file is wrong.
pub const CONFIG: u8 = 78;

/// Something that was refused or went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What happened, with the value that was wrong.
    pub message: String,
    /// Where: a file with its line, where there is one.
    pub at: Option<String>,
    /// What to do next.
    pub help: String,
    /// Exit code of the command that ends with it.
    pub exit: u8,
}

impl Fault {
    /// A fault that ends a command with code 1.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), at: None, help: help.into(), exit: 1 }
    }

    /// A file that is not what it should be, at `line` (from 1) of `file`.
    pub fn input(
        file: impl fmt::Display,
        line: u64,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { exit: CONFIG, ..Self::new(message, help) }.at(format!("{file}:{line}"))
    }

    /// The same fault, found at `place`.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.at = Some(place.into());
        self
    }

    /// The same fault under another exit code.
    #[must_use]
    pub fn exit(self, exit: u8) -> Self {
        Self { exit, ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.message)?;
        if let Some(at) = &self.at {
            writeln!(f, "  --> {at}")?;
        }
        write!(f, "help: {}", self.help)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_what_happened_where_and_what_to_do() {
        let fault = Fault::input("pods.csv", 7, "`x` is no number of GPUs", "write 0 to 8");
        assert_eq!(
            fault.to_string(),
            "error: `x` is no number of GPUs\n  --> pods.csv:7\nhelp: write 0 to 8"
        );
        assert_eq!(fault.exit, CONFIG);
    }
}
