//! What a benchmark prints: one JSON document with its bars and figures.

use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::stolen::BEGAN;

/// One document.
#[derive(Debug, Serialize)]
pub struct Report {
    bench: &'static str,
    simulated: bool,
    machine: Machine,
    bars: Vec<Bar>,
    figures: Map<String, Value>,
}

/// What the figures were taken on.
#[derive(Debug, Serialize)]
struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    /// What its host took of them from the start of the run to its end.
    stolen_percent: f64,
}

/// One promise: the worst case of a sweep against its limit.
#[derive(Debug, Serialize)]
pub struct Bar {
    name: &'static str,
    value: Option<f64>,
    unit: &'static str,
    limit: f64,
    holds: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Bar {
    /// `value` must not pass `limit`.
    pub fn at_most(name: &'static str, value: f64, unit: &'static str, limit: f64) -> Self {
        Self { name, value: Some(value), unit, limit, holds: Some(value <= limit), why: None }
    }

    /// Nothing was measured, and why.
    pub fn absent(name: &'static str, unit: &'static str, limit: f64, why: impl Into<String>) -> Self {
        Self { name, value: None, unit, limit, holds: None, why: Some(why.into()) }
    }

    /// It does not hold though no value breaks it, and why.
    pub fn failed(name: &'static str, unit: &'static str, limit: f64, why: impl Into<String>) -> Self {
        Self { holds: Some(false), ..Self::absent(name, unit, limit, why) }
    }

    /// A bar with no verdict: it was measured, and something stood in its way.
    #[must_use]
    pub fn unjudged(self, why: impl Into<String>) -> Self {
        Self { holds: None, why: Some(why.into()), ..self }
    }

    /// Why it has no verdict, if it has none.
    pub fn why_without_verdict(&self) -> Option<&str> {
        self.why.as_deref().filter(|_| self.holds.is_none())
    }

    /// `value` must reach `limit`.
    pub fn at_least(name: &'static str, value: f64, unit: &'static str, limit: f64) -> Self {
        Self { name, value: Some(value), unit, limit, holds: Some(value >= limit), why: None }
    }
}

impl Report {
    /// An empty document.
    pub fn new(bench: &'static str, simulated: bool) -> Self {
        Self { bench, simulated, machine: Machine::this(), bars: Vec::new(), figures: Map::new() }
    }

    /// Adds a bar.
    pub fn bar(&mut self, bar: Bar) {
        self.bars.push(bar);
    }

    /// Adds a figure of any shape.
    pub fn figure(&mut self, name: &str, value: impl Serialize) {
        self.figures.insert(name.into(), serde_json::to_value(value).unwrap_or(Value::Null));
    }

    /// Prints the document, or the bars as lines for people; 0 when all bars hold, 1 when one does not, 3 when
    /// something was absent.
    #[allow(clippy::print_stdout, reason = "this is the one place that prints results")]
    pub fn finish(mut self, json: bool) -> ExitCode {
        self.machine.stolen_percent = BEGAN.stolen_percent();
        if json {
            println!("{}", serde_json::to_string_pretty(&self).unwrap_or_default());
        } else {
            self.bars.iter().for_each(|bar| println!("{}", bar.line()));
            println!("{}", serde_json::to_string_pretty(&self.figures).unwrap_or_default());
        }
        match () {
            () if self.bars.iter().any(|bar| bar.holds == Some(false)) => ExitCode::from(1),
            () if self.bars.iter().any(|bar| bar.holds.is_none()) => ExitCode::from(3),
            () => ExitCode::SUCCESS,
        }
    }
}

impl Bar {
    fn line(&self) -> String {
        let verdict = match self.holds {
            Some(true) => "holds",
            Some(false) => "DOES NOT HOLD",
            None => "not measured",
        };
        let value = self.value.map_or("-".into(), |value| format!("{value:.2}"));
        let why = self.why.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{:<32} {value:>10} {} (limit {}): {verdict}{why}", self.name, self.unit, self.limit)
    }
}

impl Machine {
    fn this() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            cpu: model.map_or("unknown", |(_, name)| name).into(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            stolen_percent: 0.0,
        }
    }
}
