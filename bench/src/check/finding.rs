//! What stories find, and the document that holds it: one JSON and one text, written after each story.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::story::Story;

/// What stands in the place of a verdict on what only a GPU can tell.
pub const NOT_YET: &str = "not yet measured on a GPU";

/// What a story found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Finding {
    /// Whether what must hold on any GPU held, the simulated one too; absent if it could not be put to the test.
    pub holds: Option<bool>,
    /// One line for people.
    pub line: String,
    /// What only a real GPU can tell.
    #[serde(default)]
    pub bars: Vec<Figure>,
    /// Everything measured.
    #[serde(default)]
    pub figures: Value,
}

/// A promise of the specification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// Its name there.
    pub name: &'static str,
    /// Unit of value and limit.
    pub unit: &'static str,
    /// Not more than this; or, of [`Self::at_least`], not less.
    pub limit: f64,
    /// Which of the two.
    pub at_least: bool,
}

/// All promises that a real GPU is needed for.
pub const PROMISES: [Promise; 8] = [
    at_most("gpu.overhead_percent", "percent", 0.5),
    at_most("gpu.share_error_points", "points", 2.0),
    at_most("gpu.latency_ratio", "p99 by p99 alone", 1.05),
    at_most("gpu.primary_loss_percent", "percent", 1.0),
    at_most("gpu.silence_of_limit_percent", "percent of cap + unit + slice + two switches", 100.0),
    at_most("gpu.hangs", "programs", 0.0),
    at_most("gpu.meter_error_percent", "percent", 1.0),
    at_most("gpu.neighbour_faults", "failures of neighbours", 0.0),
];

const fn at_most(name: &'static str, unit: &'static str, limit: f64) -> Promise {
    Promise { name, unit, limit, at_least: false }
}

/// A promise's figure in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Name of the promise.
    pub name: String,
    /// What was measured, the worst case; absent if it could not be.
    pub value: Option<f64>,
}

impl Figure {
    /// Of one of [`PROMISES`].
    pub fn of(name: &str, value: f64) -> Self {
        debug_assert!(PROMISES.iter().any(|promise| promise.name == name), "{name} is promised nowhere");
        Self { name: name.into(), value: value.is_finite().then_some(value) }
    }

    /// Whether the promise holds; on the simulated GPU nobody can tell.
    pub fn holds(&self, simulated: bool) -> Option<bool> {
        let promise = PROMISES.iter().find(|promise| promise.name == self.name)?;
        let value = self.value.filter(|_| !simulated)?;
        Some(if promise.at_least { value >= promise.limit } else { value <= promise.limit })
    }

    fn told(&self, simulated: bool) -> String {
        let value = self.value.map_or("-".into(), |value| format!("{value:.2}"));
        let limit = PROMISES.iter().find(|promise| promise.name == self.name);
        let limit = limit.map_or_else(String::new, |promise| format!(" (limit {})", promise.limit));
        match self.holds(simulated) {
            Some(true) => format!("{} {value}{limit} holds", self.name),
            Some(false) => format!("{} {value}{limit} DOES NOT HOLD", self.name),
            None if simulated => format!("{}: {NOT_YET} (here {value})", self.name),
            None => format!("{}: could not be measured", self.name),
        }
    }
}

/// A story and what it found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    /// Which.
    pub story: Story,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// What it found.
    #[serde(flatten)]
    pub finding: Finding,
}

/// Everything that a run, or several of the same GPU, found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// Whether the GPU is simulated.
    pub simulated: bool,
    /// What it was measured on.
    pub machine: Value,
    /// How the check was called, each time.
    pub commands: Vec<String>,
    /// In the order in which they were told.
    pub stories: Vec<Told>,
}

impl Told {
    /// Whether anything failed.
    pub fn failed(&self, simulated: bool) -> bool {
        let broken = |figure: &Figure| figure.holds(simulated) == Some(false);
        self.finding.holds == Some(false) || self.finding.bars.iter().any(broken)
    }

    /// Lines for people.
    pub fn lines(&self, simulated: bool) -> String {
        let verdict = match (self.failed(simulated), self.finding.holds) {
            (true, _) => "FAILS ",
            (false, Some(_)) => "holds ",
            (false, None) => "no bar",
        };
        let on = if simulated { "simulated" } else { "real" };
        let name = self.story.name();
        let mut text = format!("{name:<11} {verdict} [{on}, {:.0} s] {}\n", self.took_s, self.finding.line);
        for figure in &self.finding.bars {
            text += &format!("{:<11}        {}\n", "", figure.told(simulated));
        }
        text
    }
}

impl Document {
    /// What an earlier call left in this directory of the same GPU; else nothing yet.
    pub fn begin(directory: &Path, simulated: bool, machine: Value) -> Self {
        let earlier = fs::read(directory.join("gpu-check.json")).ok();
        let earlier = earlier.and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        let same = |earlier: &Self| earlier.simulated == simulated && earlier.machine == machine;
        let fresh =
            || Self { simulated, machine: machine.clone(), commands: Vec::new(), stories: Vec::new() };
        earlier.filter(same).unwrap_or_else(fresh)
    }

    /// Notes a story, in the place of what was told of it before.
    pub fn note(&mut self, told: Told) {
        self.stories.retain(|other| other.story != told.story);
        self.stories.push(told);
    }

    /// Writes JSON and text, each whole or not at all.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let text: String = self.stories.iter().map(|told| told.lines(self.simulated)).collect();
        let head = format!("{}\n{}\n", self.machine, self.commands.join("\n"));
        let put = |name: &str, text: String| {
            let beside = directory.join(format!(".{name}.new"));
            fs::write(&beside, text)?;
            fs::rename(&beside, directory.join(name))
        };
        fs::create_dir_all(directory)?;
        put("gpu-check.txt", head + &text)?;
        put("gpu-check.json", serde_json::to_string_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_the_simulated_gpu_no_bar_has_a_verdict() {
        let figure = Figure::of("gpu.overhead_percent", 0.7);
        assert_eq!((figure.holds(true), figure.holds(false)), (None, Some(false)));
        assert!(figure.told(true).contains(NOT_YET) && figure.told(false).contains("DOES NOT HOLD"));
        assert_eq!(Figure::of("gpu.hangs", f64::NAN).holds(false), None);
    }

    #[test]
    fn a_later_call_adds_its_stories_and_replaces_what_it_tells_anew() {
        let directory = tempfile::tempdir().unwrap();
        let told = |story, line: &str| Told {
            story,
            took_s: 1.0,
            finding: Finding { line: line.into(), ..Finding::default() },
        };
        let mut first = Document::begin(directory.path(), true, Value::Null);
        first.note(told(Story::Share, "old"));
        first.write(directory.path()).unwrap();
        let mut second = Document::begin(directory.path(), true, Value::Null);
        second.note(told(Story::Kill, "new"));
        second.note(told(Story::Share, "newer"));
        let lines: Vec<_> = second.stories.iter().map(|told| told.finding.line.as_str()).collect();
        assert_eq!(lines, ["new", "newer"]);
        assert!(Document::begin(directory.path(), false, Value::Null).stories.is_empty(), "another GPU");
    }
}
