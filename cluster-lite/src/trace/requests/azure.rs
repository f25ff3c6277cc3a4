//! Azure LLM inference 2023 (Splitwise): TIMESTAMP, ContextTokens, GeneratedTokens.

use jiff::civil::DateTime;
use weir_protocol::units::Nanos;

use super::text::Text;
use super::{Request, Size, Trace};
use crate::fault::Fault;

/// The heading.
pub const HEAD: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// Most tokens that a request can have: several times the longest context that is sold.
pub const MOST_TOKENS: f64 = 1e7;

/// Reads a trace.
pub fn read(text: &Text) -> Result<Trace, Fault> {
    let mut begin = None;
    let mut before = None;
    let mut requests = Vec::new();
    for row in text.rows() {
        let (line, row) = row?;
        let at = since(text, line, &row[0], &mut begin)?;
        before = Some(text.in_order(line, before, at)?);
        let size = Size::Tokens {
            prompt: tokens(text, line, "number of context tokens", &row[1])?,
            answer: tokens(text, line, "number of generated tokens", &row[2])?,
        };
        requests.push(Request { at, size });
    }
    Ok(Trace { name: text.name(), requests, left_out: 0 })
}

/// Time since the first row.
pub fn since(text: &Text, line: u64, date: &str, begin: &mut Option<DateTime>) -> Result<Nanos, Fault> {
    let help = "write it as 2023-11-16 18:15:46.68";
    let when: DateTime =
        date.parse().map_err(|_| text.wrong(line, format!("`{date}` is no date and time"), help))?;
    let passed = when.duration_since(*begin.get_or_insert(when));
    let backwards = "time runs backwards: this row is earlier than the first";
    let nanos = u64::try_from(passed.as_nanos())
        .map_err(|_| text.wrong(line, backwards, "sort the trace by time"))?;
    Ok(Nanos(nanos))
}

fn tokens(text: &Text, line: u64, what: &str, number: &str) -> Result<u32, Fault> {
    let help = format!("write a whole number from 0 to {MOST_TOKENS}");
    let whole = number.parse().ok().filter(|tokens| f64::from(*tokens) <= MOST_TOKENS);
    whole.ok_or_else(|| text.wrong(line, format!("`{number}` is no {what}"), &help))
}
