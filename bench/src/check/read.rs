//! `weir-bench gpu`: the figures of the newest run of the check on a real GPU, as they lie in `bench/results/gpu-NAME-DATE/`. A call
//! of the check leaves some stories; a directory may hold the documents of several calls, and of a story told twice the later one
//! in the order of the files' names counts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::finding::{Document, NOT_YET, PROMISES, Promise};
use crate::report::{Bar, Report};
use crate::stage;

/// What it takes.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// Print one JSON document on stdout instead of lines
    #[arg(long)]
    json: bool,
    /// Where results lie [default: bench/results of this workspace]
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

/// Reads and prints.
pub fn run(options: &Options) -> io::Result<ExitCode> {
    let results = options.results.clone().unwrap_or_else(|| stage::workspace().join("bench/results"));
    let mut report = Report::new("gpu", false);
    match newest(&results) {
        None => PROMISES.iter().for_each(|promise| report.bar(absent(promise, NOT_YET))),
        Some(directory) => {
            let document = documents(&directory)?;
            PROMISES.iter().for_each(|promise| report.bar(bar(promise, &document)));
            report.figure("from", directory.file_name().map(|name| name.to_string_lossy().into_owned()));
            report.figure("machine", &document.machine);
            report.figure("commands", &document.commands);
            report.figure("stories", &document.stories);
        }
    }
    Ok(report.finish(options.json))
}

fn bar(promise: &Promise, document: &Document) -> Bar {
    let figures = document.stories.iter().flat_map(|told| &told.finding.bars);
    let values: Vec<Option<f64>> =
        figures.filter(|figure| figure.name == promise.name).map(|figure| figure.value).collect();
    let all: Option<Vec<f64>> = values.iter().copied().collect();
    match all.filter(|all| !all.is_empty()) {
        None if values.is_empty() => absent(promise, NOT_YET),
        None => absent(promise, "it could not be measured there"),
        Some(all) if promise.at_least => Bar::at_least(
            promise.name,
            all.iter().copied().fold(f64::INFINITY, f64::min),
            promise.unit,
            promise.limit,
        ),
        Some(all) => Bar::at_most(
            promise.name,
            all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            promise.unit,
            promise.limit,
        ),
    }
}

fn absent(promise: &Promise, why: &str) -> Bar {
    Bar::absent(promise.name, promise.unit, promise.limit, why)
}

/// All documents of a real GPU in a directory, as one.
fn documents(directory: &Path) -> io::Result<Document> {
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
    all.ok_or_else(|| io::Error::other(format!("`{}` has no results", directory.display())))
}

/// The newest `gpu-NAME-YYYY-MM-DD`.
fn newest(results: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(results).ok()?.flatten().map(|entry| entry.path());
    let dated = entries.filter_map(|path| Some((date(path.file_name()?.to_str()?)?.to_owned(), path)));
    dated.filter(|(_, path)| path.is_dir()).max().map(|(_, path)| path)
}

fn date(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("gpu-")?;
    let (name, date) = rest.split_at_checked(rest.len().checked_sub(10)?)?;
    let digits = date
        .bytes()
        .enumerate()
        .all(|(n, byte)| if matches!(n, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() });
    (digits && name.len() > 1 && name.ends_with('-')).then_some(date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_results_are_those_of_the_latest_day_whatever_the_card_is_called() {
        assert_eq!(date("gpu-h200-2026-11-25"), Some("2026-11-25"));
        for name in ["gpu-h200", "gpu-2026-11-25", "share.json", "gpu-h200-2026-1x-25", "gpu-"] {
            assert_eq!(date(name), None, "{name}");
        }
        let results = tempfile::tempdir().unwrap();
        for name in ["gpu-a100-2026-12-01", "gpu-h200-2026-11-25", "gpu-z"] {
            fs::create_dir(results.path().join(name)).unwrap();
        }
        assert_eq!(newest(results.path()).unwrap(), results.path().join("gpu-a100-2026-12-01"));
    }

    #[test]
    fn figures_of_the_simulated_gpu_are_no_results() {
        let directory = tempfile::tempdir().unwrap();
        assert!(documents(directory.path()).is_err(), "nothing is there");
        Document::begin(directory.path(), true, serde_json::Value::Null).write(directory.path()).unwrap();
        let why = documents(directory.path()).unwrap_err().to_string();
        assert!(why.contains("simulated"), "{why}");
    }
}
