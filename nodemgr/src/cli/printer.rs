//! The one way to stdout and stderr.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

/// Data, on stdout. A reader that has gone (`weir ps | head`) is no failure.
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

/// One JSON document on a line of its own, on stdout.
pub fn line(document: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(document) {
        data(text);
    }
}

/// Whether somebody still reads what we print: a pipe whose reader has gone says so.
pub fn is_read() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = std::io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_err() || !fds[0].revents().intersects(PollFlags::ERR)
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

/// What to say wherever simulated GPUs are in use.
pub const SIMULATED: &str = "SIMULATED GPU: no real GPU is in use; figures are the simulator's";

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["a".to_owned(), "1".to_owned()], vec!["long".to_owned(), "2".to_owned()]];
        assert_eq!(super::table(&["N", "PIDS"], &rows), "N     PIDS\na     1\nlong  2");
    }
}
