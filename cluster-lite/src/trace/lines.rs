//! CSV files as typed lines; every mistake has its file and line.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::fault::{CONFIG, Fault};

/// One line of a file, as a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Line<T> {
    /// Its number, from 1.
    pub number: u64,
    /// What stands there.
    pub row: T,
}

/// All lines below the head of the file at `path`; `help` says what they should look like.
///
/// # Errors
/// When the file cannot be read, is empty, or a line of it is no row.
pub fn read<T: DeserializeOwned>(path: &Path, help: &str) -> Result<Vec<Line<T>>, Fault> {
    let file = path.display().to_string();
    let mut reader = csv::Reader::from_path(path).map_err(|error| {
        Fault::new(format!("cannot read it: {error}"), "pass a file that exists").at(&file).exit(CONFIG)
    })?;
    let head = reader.headers().map_err(|error| wrong(&file, 1, &error, help))?.clone();
    let mut lines = Vec::new();
    let mut record = csv::StringRecord::new();
    loop {
        let next = reader.position().line();
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) => return Err(wrong(&file, next, &error, help)),
        }
        let number = record.position().map_or(next, csv::Position::line);
        let row = record.deserialize(Some(&head)).map_err(|error| wrong(&file, number, &error, help))?;
        lines.push(Line { number, row });
    }
    if lines.is_empty() {
        return Err(Fault::input(&file, 1, "no line below the head", help));
    }
    Ok(lines)
}

fn wrong(file: &str, near: u64, error: &csv::Error, help: &str) -> Fault {
    let line = error.position().map_or(near, csv::Position::line).max(1);
    let message = match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} values where the head has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "not UTF-8 text".to_owned(),
        _ => error.to_string(),
    };
    Fault::input(file, line, message, help)
}
