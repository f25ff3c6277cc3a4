//! A recorded trace: when each request came, and how many tokens it was answered with.
//!
//! ```text
//!   # where it was recorded
//!   arrived_s,tokens
//!   0.000,44
//!   4.314,109
//! ```
//!
//! Comma-separated, a line for each request in the order in which they came; lines that begin with `#` and empty ones are skipped.
//! The column `tokens` may be left out: then tokens are drawn as without a trace.

use std::path::Path;

use weir_simgpu_model::Nanos;

use super::read::{refuse, text_of};
use crate::fault::Fault;

/// Arrivals from the first to the last request, in seconds: a month.
const LONGEST_S: f64 = 31.0 * 86_400.0;

/// Requests in a second that can be held, as rates are bound in a scenario.
const MOST_PER_S: f64 = 100_000.0;

/// Tokens of a request, as `tokens` is bound in a scenario.
const TOKENS: std::ops::RangeInclusive<u32> = 1..=1_000_000;

/// A request that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When it came, from the beginning of the trace.
    pub at: Nanos,
    /// How many tokens it was answered with, where that was recorded.
    pub tokens: Option<u32>,
}

/// Reads the trace in `file`, which is to be replayed so many times as fast.
///
/// # Errors
/// [`codes::SCENARIO`](crate::codes::SCENARIO), with the line.
pub fn read(file: &Path, times: f64) -> Result<Vec<Recorded>, Fault> {
    const HELP: &str = "name a CSV file with the columns arrived_s and tokens, from where the scenario is";
    let text = text_of(file, HELP)?;
    let recorded = parse(&text).map_err(|wrong| {
        refuse(
            file,
            wrong,
            "write a first line `arrived_s,tokens`, then one for each request, such as `4.314,109`",
        )
    })?;
    let seconds = recorded.last().map_or(0.0, |last| last.at as f64 / 1e9).max(1.0);
    if recorded.len() as f64 / seconds * times > MOST_PER_S {
        let wrong = format!("has more than {MOST_PER_S} requests in a second, {times} times as fast");
        return Err(refuse(file, wrong, "replay it slower, by `times`"));
    }
    Ok(recorded)
}

fn parse(text: &str) -> Result<Vec<Recorded>, String> {
    let lines = text.lines().enumerate().map(|(n, line)| (n + 1, line.trim()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let columns = match lines.next() {
        Some((_, "arrived_s")) => 1,
        Some((_, "arrived_s,tokens")) => 2,
        Some((n, other)) => return Err(format!("names other columns in line {n}: {}", other.escape_debug())),
        None => return Err("is empty".into()),
    };
    let mut recorded: Vec<Recorded> = Vec::new();
    for (n, line) in lines {
        let request = request(line, columns)
            .ok_or_else(|| format!("has no request in line {n}: {}", line.escape_debug()))?;
        if recorded.last().is_some_and(|before| before.at > request.at) {
            return Err(format!("goes back in time in line {n}: {}", line.escape_debug()));
        }
        recorded.push(request);
    }
    if recorded.is_empty() { Err("has no request".into()) } else { Ok(recorded) }
}

fn request(line: &str, columns: usize) -> Option<Recorded> {
    let mut fields = line.split(',').map(str::trim);
    let at_s: f64 = fields.next()?.parse().ok().filter(|s| (0.0..=LONGEST_S).contains(s))?;
    let tokens = match columns {
        1 => None,
        _ => Some(fields.next()?.parse().ok().filter(|tokens| TOKENS.contains(tokens))?),
    };
    fields.next().is_none().then_some(Recorded { at: super::nanos(at_s * 1e9), tokens })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_when_they_came_with_as_many_tokens_as_they_had() {
        let recorded = |at, tokens| Recorded { at, tokens };
        let with = parse("# a source\narrived_s,tokens\n0.5,44\n\n 0.5 , 1\r\n4.25,109\n");
        assert_eq!(
            with,
            Ok(vec![
                recorded(500_000_000, Some(44)),
                recorded(500_000_000, Some(1)),
                recorded(4_250_000_000, Some(109))
            ])
        );
        assert_eq!(parse("arrived_s\n0\n"), Ok(vec![recorded(0, None)]));
    }

    #[test]
    fn a_bad_row_is_named_with_its_line() {
        for (text, wrong) in [
            ("", "is empty"),
            ("# nothing\n", "is empty"),
            ("arrived_s,tokens\n", "has no request"),
            ("0.5,44\n", "names other columns in line 1: 0.5,44"),
            ("arrived_s,tokens\n0.5\n", "has no request in line 2: 0.5"),
            ("arrived_s,tokens\n0.5,44,3\n", "has no request in line 2: 0.5,44,3"),
            ("arrived_s,tokens\n0.5,0\n", "has no request in line 2: 0.5,0"),
            ("arrived_s,tokens\n-1,4\n", "has no request in line 2: -1,4"),
            ("arrived_s\nnan\n", "has no request in line 2: nan"),
            ("arrived_s\n1e300\n", "has no request in line 2: 1e300"),
            ("arrived_s\n# late\n7\n6\n", "goes back in time in line 4: 6"),
        ] {
            assert_eq!(parse(text), Err(wrong.to_owned()), "{text:?}");
        }
    }
}
