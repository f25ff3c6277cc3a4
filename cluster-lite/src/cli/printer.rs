//! The one way to stdout and stderr.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

/// Data, on stdout. A reader that has gone is no failure.
pub fn data(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// One JSON document, on stdout.
pub fn json(document: &impl Serialize) {
    // Our own types always have a form in JSON.
    if let Ok(text) = serde_json::to_string_pretty(document) {
        data(text);
    }
}

/// Everything else, on stderr.
pub fn talk(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Rows under headings, each column as wide as it needs.
pub fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..heads.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<_> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let head = line(&mut heads.iter().copied());
    let body = rows.iter().map(|row| line(&mut row.iter().map(String::as_str)));
    std::iter::once(head).chain(body).collect::<Vec<_>>().join("\n")
}
