//! Errors as people and scripts meet them: what happened, where, and what to do next, under a code that can be
//! looked up. The same value prints on a terminal and travels over the control socket.

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_protocol::units::UnitError;

use crate::codes::{self, Row};

/// Something that was refused or went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The code, such as `W0107`: a row of [`codes::TABLE`].
    pub code: String,
    /// What happened, with the value that was wrong.
    pub message: String,
    /// Where: a file with line and column, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// What to do next.
    pub help: String,
}

impl Fault {
    /// A fault of the kind `row`.
    pub fn new(row: &Row, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code: row.code.into(), message: message.into(), at: None, help: help.into() }
    }

    /// The same fault, found at `place`.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.at = Some(place.into());
        self
    }

    /// A text that is no size or no share; `what` says which setting it was meant for.
    pub fn unit(what: &str, error: &UnitError) -> Self {
        let row = match error.hint() {
            hint if hint.contains('%') => &codes::SHARE,
            hint if hint.contains("/s") => &codes::BANDWIDTH,
            _ => &codes::SIZE,
        };
        Self::new(row, format!("{what}: {error}"), error.hint())
    }

    /// A system call that failed while we tried to `what`.
    pub fn system(row: &Row, what: impl fmt::Display, error: impl fmt::Display, help: &str) -> Self {
        Self::new(row, format!("cannot {what}: {error}"), help)
    }

    /// The exit code of a command that ends with this fault.
    pub fn exit_code(&self) -> u8 {
        codes::find(&self.code).map_or(1, |row| row.exit)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error[{}]: {}", self.code, self.message)?;
        if let Some(at) = &self.at {
            writeln!(f, "  --> {at}")?;
        }
        write!(f, "help: {}", self.help)
    }
}

impl std::error::Error for Fault {}
