//! Alibaba GenAI 2026: image requests with the time that each took, request rates, and samples such as model load times.

use std::collections::BTreeMap;
use std::path::Path;

use weir_protocol::units::Nanos;

use super::azure::since;
use super::text::{Text, from_seconds};
use super::{Request, Size, Trace};
use crate::fault::Fault;

/// Heading of the image requests.
pub const LORA_HEAD: &str = "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,prompt_length,\
    negative_prompt_length,num_images_per_prompt,num_inference_steps,checkpoint_model_version_id,num_lora";

/// Longest time that a request may have taken, in seconds: a day.
const LONGEST_S: f64 = 86_400.0;
/// Latest time stamp, in seconds: the year 2100.
const LATEST_S: f64 = 4_102_444_800.0;
/// Highest rate, in requests a second.
const MOST_RATE: f64 = 1e6;
/// Largest sample: a petabyte, in bytes.
const MOST_SAMPLE: f64 = 1e15;
/// What requests for images are called among the rates.
const GENERATIVE: &str = "Generative Requests";

/// Whether this heading is one of rates.
pub fn are_rates(head: &str) -> bool {
    let mut columns: Vec<_> = head.split(',').collect();
    columns.sort_unstable();
    columns == ["container_ip", "request_type", "timestamp_anon", "value"]
}

/// The image requests that succeeded: of the others nobody knows how long they would have taken.
pub fn requests(text: &Text) -> Result<Trace, Fault> {
    let (mut begin, mut before) = (None, None);
    let mut trace = Trace { name: text.name(), ..Trace::default() };
    for row in text.rows() {
        let (line, row) = row?;
        let at = since(text, line, &row[0], &mut begin)?;
        before = Some(text.in_order(line, before, at)?);
        let took = text.number(line, "time in seconds", &row[3], LONGEST_S)?;
        match &row[2] {
            "SUCCEED" => trace.requests.push(Request { at, size: Size::Time(from_seconds(took)) }),
            "FAILED" | "PENDING" | "PROCESSING" => trace.left_out += 1,
            other => {
                let help = "known are SUCCEED, FAILED, PENDING and PROCESSING";
                return Err(text.wrong(line, format!("`{other}` is no status"), help));
            }
        }
    }
    Ok(trace)
}

/// Rates of the image requests of all containers together, each from its time on.
pub fn rates(text: &Text) -> Result<Vec<(Nanos, f64)>, Fault> {
    let columns = Columns::of(text, &["timestamp_anon", "value", "request_type"])?;
    let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
    for row in text.rows() {
        let (line, row) = row?;
        let at = text.number(line, "time in seconds", &row[columns.0[0]], LATEST_S)?;
        let rate = text.number(line, "rate", &row[columns.0[1]], MOST_RATE)?;
        if &row[columns.0[2]] == GENERATIVE {
            *sums.entry(from_seconds(at).0).or_default() += rate;
        }
    }
    let begin = sums.keys().next().copied().unwrap_or(0);
    Ok(sums.into_iter().map(|(at, rate)| (Nanos(at - begin), rate)).collect())
}

/// The samples of a file with times and values: load times, for instance, in the file's unit.
///
/// # Errors
/// A fault with file and line.
pub fn samples(path: &Path) -> Result<Vec<f64>, Fault> {
    let text = Text::read(path)?;
    let columns = Columns::of(&text, &["timestamp_anon", "value"])?;
    let value = |row: Result<(u64, csv::StringRecord), Fault>| {
        let (line, row) = row?;
        text.number(line, "time in seconds", &row[columns.0[0]], LATEST_S)?;
        text.number(line, "sample", &row[columns.0[1]], MOST_SAMPLE)
    };
    text.rows().map(value).collect()
}

/// Where the columns stand: the files do not agree.
struct Columns(Vec<usize>);

impl Columns {
    fn of(text: &Text, names: &[&str]) -> Result<Self, Fault> {
        let head: Vec<_> = text.head().split(',').collect();
        let place = |name: &&str| {
            let mut places = head.iter().enumerate().filter(|column| column.1 == name).map(|column| column.0);
            match (places.next(), places.next()) {
                (Some(place), None) => Ok(place),
                (None, _) => Err(text.wrong(
                    1,
                    format!("there is no column `{name}`"),
                    "name one of the trace's sample files",
                )),
                (Some(_), Some(_)) => {
                    Err(text.wrong(1, format!("there are two columns `{name}`"), "remove one"))
                }
            }
        };
        names.iter().map(place).collect::<Result<_, _>>().map(Self)
    }
}
