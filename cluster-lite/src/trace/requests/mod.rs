//! Requests: recorded ones, and ones that are drawn.
//!
//! ```text
//!   azure      Azure LLM inference 2023: csv, tokens in and out
//!   mooncake   Mooncake: a JSON object a line, tokens in and out
//!   alibaba    Alibaba GenAI 2026: .tar.gz of csv: image requests with their times, request rates, samples
//!   text       a file's text, unpacked where it is packed; the faults that all of them have in common
//!   shapes     rates over time: steady, bursty, periodic, sporadic
//!   draw       requests from rates or gaps, sizes from a distribution
//! ```
//!
//! A trace begins at 0; requests come in the order of their times.

pub mod alibaba;
mod azure;
mod draw;
mod mooncake;
mod shapes;
#[cfg(test)]
mod tests;
mod text;

use std::path::Path;

use weir_protocol::units::Nanos;

pub use self::draw::{Arrivals, Sizes, draw, drawn_from_rates};
pub use self::shapes::Shape;
use self::text::Text;
use crate::fault::Fault;

/// How much a request asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Tokens of a language model.
    Tokens {
        /// Read at once.
        prompt: u32,
        /// Made one after the other.
        answer: u32,
    },
    /// Time on a GPU of its own.
    Time(Nanos),
    /// This many times a mean request.
    Relative(f64),
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// When it comes.
    pub at: Nanos,
    /// How much it asks for.
    pub size: Size,
}

/// Requests in the order of their times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// What it is called in tables.
    pub name: String,
    /// The requests.
    pub requests: Vec<Request>,
    /// Rows that are no request that was answered (failed, or not finished), left out.
    pub left_out: usize,
}

impl Trace {
    /// Time from its begin to its last request.
    pub fn length(&self) -> Nanos {
        self.requests.last().map_or(Nanos(0), |request| request.at)
    }

    /// The stretch of `length` in which most requests come, beginning at 0 again.
    #[must_use]
    pub fn busiest(&self, length: Nanos) -> Self {
        let at = |index: usize| self.requests[index].at;
        let (mut first, mut best) = (0, 0..0);
        for last in 0..self.requests.len() {
            while at(last).since(at(first)) > length {
                first += 1;
            }
            if last + 1 - first > best.len() {
                best = first..last + 1;
            }
        }
        let begin = self.requests.get(best.start).map_or(Nanos(0), |request| request.at);
        let moved = |request: &Request| Request { at: Nanos(request.at.since(begin).0), ..*request };
        Self { requests: self.requests[best].iter().map(moved).collect(), ..self.clone() }
    }
}

/// What a file has.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// Requests.
    Requests(Trace),
    /// Requests a second from each time on.
    Rates(Vec<(Nanos, f64)>),
}

/// Reads a recorded trace; its first line tells its kind.
///
/// # Errors
/// A fault with file and line: the file cannot be read, is none of the kinds, is cut off, or has a value that cannot be.
pub fn read(path: &Path) -> Result<Recorded, Fault> {
    let text = Text::read(path)?;
    let head = text.head();
    match () {
        () if head.starts_with('{') => mooncake::read(&text).map(Recorded::Requests),
        () if head == azure::HEAD => azure::read(&text).map(Recorded::Requests),
        () if head == alibaba::LORA_HEAD => alibaba::requests(&text).map(Recorded::Requests),
        () if alibaba::are_rates(head) => alibaba::rates(&text).map(Recorded::Rates),
        () => {
            let shown: String = head.chars().take(60).collect();
            let help = "give a trace of Azure LLM 2023 (.csv), Mooncake (.jsonl), or requests or rates of Alibaba GenAI 2026";
            Err(text.wrong(1, format!("`{shown}` begins no trace that is known"), help))
        }
    }
}
