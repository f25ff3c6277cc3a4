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
    /// Why it never began, or did not come to its end; what it had found until then decides nothing.
    #[serde(default)]
    pub cut: Option<String>,
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
    /// The stories that measure it: all of them must have been told.
    pub stories: &'static [Story],
}

/// All promises that a real GPU is needed for.
pub const PROMISES: [Promise; 8] = [
    at_most("gpu.overhead_percent", "percent", 0.5, &[Story::Overhead]),
    at_most("gpu.share_error_points", "points", 2.0, &[Story::Share]),
    at_most("gpu.latency_ratio", "p99 by p99 alone", 1.05, &[Story::Latency]),
    at_most("gpu.primary_loss_percent", "percent", 1.0, &[Story::Bubbles]),
    at_most(
        "gpu.silence_of_limit_percent",
        "percent of cap + unit + slice + two switches",
        100.0,
        &[Story::Silence],
    ),
    at_most("gpu.hangs", "programs", 0.0, &[Story::Liveness]),
    at_most("gpu.meter_error_percent", "percent", 1.0, &[Story::Meter]),
    at_most("gpu.neighbour_faults", "failures of neighbours", 0.0, &[Story::Kill, Story::Illegal]),
];

const fn at_most(name: &'static str, unit: &'static str, limit: f64, stories: &'static [Story]) -> Promise {
    Promise { name, unit, limit, at_least: false, stories }
}

impl Promise {
    /// Whether a value keeps it.
    pub fn kept_by(&self, value: f64) -> bool {
        if self.at_least { value >= self.limit } else { value <= self.limit }
    }
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

    /// Whether the promise holds; on the simulated GPU nobody can tell. One that could not be measured does not: a story that finds
    /// nothing out must not pass for one that found nothing wrong.
    pub fn holds(&self, simulated: bool) -> Option<bool> {
        let promise = PROMISES.iter().find(|promise| promise.name == self.name)?;
        (!simulated).then(|| self.value.is_some_and(|value| promise.kept_by(value)))
    }

    fn told(&self, simulated: bool) -> String {
        let value = self.value.map_or("-".into(), |value| format!("{value:.2}"));
        let limit = PROMISES.iter().find(|promise| promise.name == self.name);
        let limit = limit.map_or_else(String::new, |promise| format!(" (limit {})", promise.limit));
        match self.holds(simulated) {
            Some(true) => format!("{} {value}{limit} holds", self.name),
            Some(false) if self.value.is_none() => {
                format!("{}{limit} DOES NOT HOLD: it could not be measured", self.name)
            }
            Some(false) => format!("{} {value}{limit} DOES NOT HOLD", self.name),
            None => format!("{}: {NOT_YET} (here {value})", self.name),
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
    /// Whether it never began: it says nothing then, neither good nor bad.
    pub fn skipped(&self) -> bool {
        self.finding.cut.is_some() && self.finding.holds.is_none()
    }

    /// What it found of its promises; of one that it should have measured and has not, a figure without a value.
    fn bars(&self) -> Vec<Figure> {
        let mut bars = self.finding.bars.clone();
        let own = PROMISES.iter().filter(|promise| promise.stories.contains(&self.story) && !self.skipped());
        for promise in own {
            if bars.iter().all(|bar| bar.name != promise.name) {
                bars.push(Figure { name: promise.name.into(), value: None });
            }
        }
        bars
    }

    /// Whether anything failed.
    pub fn failed(&self, simulated: bool) -> bool {
        let broken = |figure: &Figure| figure.holds(simulated) == Some(false);
        self.finding.holds == Some(false) || self.bars().iter().any(broken)
    }

    /// Lines for people.
    pub fn lines(&self, simulated: bool) -> String {
        let bars = self.bars();
        let kept =
            self.finding.holds == Some(true) || bars.iter().any(|bar| bar.holds(simulated) == Some(true));
        let verdict = match (self.failed(simulated), kept) {
            (true, _) => "FAILS ",
            (false, true) => "holds ",
            (false, false) if self.skipped() => "absent",
            (false, false) => "no bar",
        };
        let on = if simulated { "simulated" } else { "real" };
        let name = self.story.name();
        let mut text = format!("{name:<11} {verdict} [{on}, {:.0} s] {}\n", self.took_s, self.finding.line);
        for figure in &bars {
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

    /// Notes a story, in the place of what was told of it before; one that never began takes nothing's place.
    pub fn note(&mut self, told: Told) {
        if told.skipped() && self.stories.iter().any(|other| other.story == told.story) {
            return;
        }
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
    }

    fn told(story: Story, finding: Finding) -> Told {
        Told { story, took_s: 1.0, finding }
    }

    #[test]
    fn on_a_real_gpu_a_promise_without_a_value_fails_and_its_line_says_why() {
        let unmeasured = Figure::of("gpu.hangs", f64::NAN);
        assert_eq!((unmeasured.holds(false), unmeasured.holds(true)), (Some(false), None));
        let silent = told(Story::Liveness, Finding { holds: Some(true), ..Finding::default() });
        assert!(silent.failed(false) && !silent.failed(true), "it measures hangs and told of none");
        assert!(silent.lines(false).contains("DOES NOT HOLD: it could not be measured"));
    }

    #[test]
    fn the_verdict_of_a_line_goes_by_the_bars_too() {
        let bars = |value| vec![Figure::of("gpu.share_error_points", value)];
        let line =
            |value| told(Story::Share, Finding { bars: bars(value), ..Finding::default() }).lines(false);
        assert!(line(1.0).starts_with("share       holds ") && line(3.0).starts_with("share       FAILS "));
        let empty = told(Story::Share, Finding { holds: Some(false), bars: bars(1.0), ..Finding::default() });
        assert!(empty.failed(false), "a bar that holds is no excuse for a story that does not");
    }

    #[test]
    fn a_later_call_adds_its_stories_and_replaces_what_it_tells_anew() {
        let directory = tempfile::tempdir().unwrap();
        let told = |story, line: &str| told(story, Finding { line: line.into(), ..Finding::default() });
        let mut first = Document::begin(directory.path(), true, Value::Null);
        first.note(told(Story::Share, "old"));
        first.write(directory.path()).unwrap();
        let mut second = Document::begin(directory.path(), true, Value::Null);
        second.note(told(Story::Kill, "new"));
        second.note(told(Story::Share, "newer"));
        let lines: Vec<_> = second.stories.iter().map(|told| told.finding.line.as_str()).collect();
        assert_eq!(lines, ["new", "newer"]);
        let mut late = told(Story::Kill, "");
        late.finding.cut = Some("no time was left".into());
        second.note(late);
        assert_eq!(second.stories[0].finding.line, "new", "what never began is no news");
        assert!(Document::begin(directory.path(), false, Value::Null).stories.is_empty(), "another GPU");
    }
}
