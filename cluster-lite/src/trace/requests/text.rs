//! A file's text, and the faults that all kinds of traces have in common.

use std::fs::File;
use std::io::{Read, Result as IoResult};
use std::path::{Path, PathBuf};

use csv::{ReaderBuilder, StringRecord};
use weir_protocol::units::Nanos;

use crate::fault::{CONFIG, Fault};

/// Largest text that is read, in bytes: the largest public trace of this kind is a fifth of it.
const LARGEST: u64 = 1 << 30;

/// The text of a file, unpacked.
pub struct Text {
    path: PathBuf,
    text: String,
}

impl Text {
    /// Reads and unpacks a file: `.tar.gz` with one file in it, or plain.
    ///
    /// # Errors
    /// If it cannot be read or unpacked, or is no text.
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let bytes = bytes(path).map_err(|error| {
            let message = format!("the trace `{}` cannot be read: {error}", path.display());
            Fault::new(message, "name a whole file, or fetch it again").exit(CONFIG)
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count() as u64;
            Fault::input(
                path.display(),
                line,
                "the trace is no UTF-8 text",
                "name a trace, as csv or JSON lines",
            )
        })?;
        if text.trim().is_empty() {
            return Err(Fault::input(path.display(), 1, "the trace is empty", "name a trace with requests"));
        }
        Ok(Self { path: path.to_owned(), text })
    }

    /// A text as if it were in a file of that name.
    #[cfg(test)]
    pub fn of(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// The first line.
    pub fn head(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// What the trace is called: the file's name up to the first dot.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.split('.').next().unwrap_or_default().to_owned()
    }

    /// Every line with its number.
    pub fn lines(&self) -> impl Iterator<Item = (u64, &str)> {
        (1..).zip(self.text.lines())
    }

    /// Every row after the heading, with its line.
    ///
    /// # Errors
    /// For a row that has not as many columns as the heading.
    pub fn rows(&self) -> impl Iterator<Item = Result<(u64, StringRecord), Fault>> {
        let reader = ReaderBuilder::new().from_reader(self.text.as_bytes());
        reader.into_records().map(|record| match record {
            Ok(record) => Ok((record.position().map_or(0, csv::Position::line), record)),
            Err(error) => {
                let line = error.position().map_or(1, csv::Position::line);
                let message = match error.kind() {
                    csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                        format!(
                            "a row of {len} columns under a heading of {expected_len}: is the file cut off?"
                        )
                    }
                    _ => error.to_string(),
                };
                Err(self.wrong(line, message, "fetch the trace again, or correct the row"))
            }
        })
    }

    /// Something wrong at a line.
    pub fn wrong(&self, line: u64, message: impl Into<String>, help: &str) -> Fault {
        Fault::input(self.path.display(), line, message, help)
    }

    /// A number that is finite, at least 0, and at most `most`.
    ///
    /// # Errors
    /// For any other.
    pub fn number(&self, line: u64, what: &str, text: &str, most: f64) -> Result<f64, Fault> {
        let number = text.parse().ok().filter(|number: &f64| (0.0..=most).contains(number));
        number.ok_or_else(|| {
            self.wrong(line, format!("`{text}` is no {what}"), &format!("write a number from 0 to {most}"))
        })
    }

    /// A time that is not before the one before it.
    ///
    /// # Errors
    /// If it is.
    pub fn in_order(&self, line: u64, before: Option<Nanos>, at: Nanos) -> Result<Nanos, Fault> {
        if before.is_some_and(|before| at < before) {
            return Err(self.wrong(
                line,
                "time runs backwards: this row is earlier than the one before",
                "sort the trace by time",
            ));
        }
        Ok(at)
    }
}

fn bytes(path: &Path) -> IoResult<Vec<u8>> {
    let file = File::open(path)?;
    let mut found = Vec::new();
    let packed = path.to_string_lossy().ends_with(".tar.gz");
    if packed {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
        let mut entries = archive.entries()?;
        let first = entries.next().ok_or_else(|| std::io::Error::other("the archive is empty"))??;
        let size = first.size();
        first.take(LARGEST + 1).read_to_end(&mut found)?;
        if (found.len() as u64) < size.min(LARGEST) {
            return Err(std::io::Error::other("the archive is cut off"));
        }
        if entries.next().transpose()?.is_some() {
            return Err(std::io::Error::other("the archive has more than one file"));
        }
    } else {
        file.take(LARGEST + 1).read_to_end(&mut found)?;
    }
    if found.len() as u64 > LARGEST {
        return Err(std::io::Error::other("it has more than a GiB of text"));
    }
    Ok(found)
}

/// A number of seconds as nanoseconds, rounded.
pub fn from_seconds(seconds: f64) -> Nanos {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be within a century, at least 0"
    )]
    let nanos = (seconds * 1e9).round() as u64;
    Nanos(nanos)
}
