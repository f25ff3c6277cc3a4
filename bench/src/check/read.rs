//! The documents of `gpu-check`, as they lie in `bench/results/gpu-NAME-DATE/` for `weir-bench gpu`. A call of the check leaves some
//! stories; a directory may hold the documents of several calls, and of a story told twice the later one in the order of the files'
//! names counts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::finding::{Document, NOT_YET, Promise, Told};
use crate::report::Bar;
use crate::sample::{least, most};

/// What the stories that measure a promise say of it, as one. A value that breaks it breaks it wherever it comes from; one that keeps
/// it counts only if all of them came to their end and hold.
pub fn bar(promise: &Promise, document: &Document) -> Bar {
    let told = promise.stories.iter().map(|story| {
        let told = document.stories.iter().find(|told| told.story == *story);
        told.map_or_else(|| Said::Absent(NOT_YET.into()), |told| said(promise, told))
    });
    let told: Vec<Said> = told.collect();
    let values =
        told.iter().filter_map(|said| if let Said::Value(value) = said { Some(*value) } else { None });
    let worst = if promise.at_least { least(values) } else { most(values) };
    let failed = told.iter().find_map(|said| if let Said::Failed(why) = said { Some(why) } else { None });
    let absent = told.iter().find_map(|said| if let Said::Absent(why) = said { Some(why) } else { None });
    let Promise { name, unit, limit, .. } = *promise;
    match (failed, absent) {
        _ if worst.is_finite() && !promise.kept_by(worst) => promise.judged(worst),
        (Some(why), _) => Bar::failed(name, unit, limit, why),
        (None, Some(why)) => Bar::absent(name, unit, limit, why),
        (None, None) => promise.judged(worst),
    }
}

/// What one story says of a promise.
enum Said {
    Value(f64),
    Failed(String),
    Absent(String),
}

fn said(promise: &Promise, told: &Told) -> Said {
    let name = told.story.name();
    let figure = told.finding.bars.iter().find(|figure| figure.name == promise.name);
    let value = figure.and_then(|figure| figure.value);
    match (value, &told.finding.cut) {
        (Some(value), _) if !promise.kept_by(value) => Said::Value(value),
        (_, Some(why)) => Said::Absent(format!("story `{name}` was cut off: {why}")),
        (Some(value), None) if told.finding.holds != Some(false) => Said::Value(value),
        (Some(_), None) => Said::Failed(format!("story `{name}` does not hold: {}", told.finding.line)),
        (None, None) => Said::Failed(format!("story `{name}` could not measure it: {}", told.finding.line)),
    }
}

impl Promise {
    /// With a value.
    pub fn judged(&self, value: f64) -> Bar {
        let bar = if self.at_least { Bar::at_least } else { Bar::at_most };
        bar(self.name, value, self.unit, self.limit)
    }

    /// Without one, and why.
    pub fn absent(&self, why: &str) -> Bar {
        Bar::absent(self.name, self.unit, self.limit, why)
    }
}

/// All documents of a real GPU in a directory, as one; absent where there is none.
pub fn documents(directory: &Path) -> io::Result<Option<Document>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)?.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut all: Option<Document> = None;
    for path in paths {
        let failed = |why: String| io::Error::other(format!("`{}`: {why}", path.display()));
        let text = fs::read(&path)?;
        let document: Document = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        if document.simulated {
            return Err(failed(
                "it was measured on the simulated GPU, and says nothing of a real one".into(),
            ));
        }
        match &mut all {
            None => all = Some(document),
            Some(all) => {
                all.commands.extend(document.commands);
                document.stories.into_iter().for_each(|told| all.note(told));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::{Figure, Finding, PROMISES};
    use super::super::story::Story;
    use super::*;

    /// What `weir-bench gpu` says of a promise: its verdict and why.
    fn verdict(name: &str, stories: Vec<Told>) -> (Option<bool>, String) {
        let document = Document { simulated: false, machine: json!({}), commands: Vec::new(), stories };
        let promise = PROMISES.iter().find(|promise| promise.name == name).unwrap();
        let bar = serde_json::to_value(bar(promise, &document)).unwrap();
        (bar["holds"].as_bool(), bar["why"].as_str().unwrap_or_default().to_owned())
    }

    fn told(story: Story, holds: bool, cut: Option<&str>, value: f64) -> Told {
        let promise = PROMISES.iter().find(|promise| promise.stories.contains(&story)).unwrap();
        let bars = vec![Figure::of(promise.name, value)];
        let (line, cut) = ("its line".into(), cut.map(str::to_owned));
        Told {
            story,
            took_s: 1.0,
            finding: Finding { holds: Some(holds), line, cut, bars, ..Finding::default() },
        }
    }

    #[test]
    fn a_value_counts_only_of_a_story_that_came_to_its_end_and_holds() {
        let share = |holds, cut, value| {
            verdict("gpu.share_error_points", vec![told(Story::Share, holds, cut, value)])
        };
        assert_eq!(share(true, None, 1.0), (Some(true), String::new()));
        let (holds, why) = share(false, Some("it was not done within 9 s"), 1.0);
        assert!(holds.is_none() && why.contains("`share` was cut off: it was not done within 9 s"), "{why}");
        let (holds, why) = share(false, None, 1.0);
        assert!(holds == Some(false) && why.contains("does not hold: its line"), "{why}");
        let (holds, why) = share(true, None, f64::NAN);
        assert!(holds == Some(false) && why.contains("could not measure it"), "{why}");
        assert_eq!(share(false, Some("late"), 7.0).0, Some(false), "what is broken already is broken");
    }

    #[test]
    fn a_promise_of_two_stories_wants_both() {
        let faults = |stories| verdict("gpu.neighbour_faults", stories);
        let kill = || told(Story::Kill, true, None, 0.0);
        assert_eq!(faults(vec![kill()]), (None, NOT_YET.into()));
        assert_eq!(faults(vec![kill(), told(Story::Illegal, true, None, 0.0)]), (Some(true), String::new()));
        assert_eq!(faults(vec![kill(), told(Story::Illegal, true, None, 1.0)]).0, Some(false));
    }

    #[test]
    fn figures_of_the_simulated_gpu_are_no_results() {
        let directory = tempfile::tempdir().unwrap();
        assert!(documents(directory.path()).unwrap().is_none(), "nothing is there");
        Document::begin(directory.path(), true, serde_json::Value::Null).write(directory.path()).unwrap();
        let why = documents(directory.path()).err().unwrap().to_string();
        assert!(why.contains("simulated"), "{why}");
    }
}
