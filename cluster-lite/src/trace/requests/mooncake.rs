//! Mooncake: one JSON object a line, its timestamp in milliseconds.

use serde::Deserialize;
use weir_protocol::units::Nanos;

use super::text::Text;
use super::{Request, Size, Trace};
use crate::fault::Fault;

/// A line; the blocks of its prefix are not needed here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    timestamp: u64,
    input_length: u32,
    output_length: u32,
    #[serde(rename = "hash_ids")]
    _hash_ids: Vec<u64>,
}

/// Latest time, in milliseconds: a hundred years.
const LATEST_MS: u64 = 100 * 366 * 86_400_000;

/// Reads a trace.
pub fn read(text: &Text) -> Result<Trace, Fault> {
    let (mut before, mut begin) = (None, None);
    let mut requests = Vec::new();
    for (line, row) in text.lines() {
        let found: Line = serde_json::from_str(row).map_err(|error| {
            let what = if error.is_eof() { "the line is cut off" } else { "the line is no request" };
            let help = "a line has timestamp, input_length, output_length and hash_ids";
            text.wrong(line, format!("{what}: {error}"), help)
        })?;
        if found.timestamp > LATEST_MS {
            let message = format!("{} ms is no time of a trace", found.timestamp);
            return Err(text.wrong(line, message, "write milliseconds since the trace began"));
        }
        let at = Nanos::from_millis(found.timestamp);
        before = Some(text.in_order(line, before, at)?);
        let at = Nanos(at.since(*begin.get_or_insert(at)).0);
        let size = Size::Tokens { prompt: found.input_length, answer: found.output_length };
        requests.push(Request { at, size });
    }
    Ok(Trace { name: text.name(), requests, left_out: 0 })
}
