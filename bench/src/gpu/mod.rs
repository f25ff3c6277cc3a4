//! `weir-bench gpu`: what real cards answered, as it lies in `bench/results/gpu-NAME-DATE/`: the documents of `gpu-check`, its first
//! and second call, the duels of PyTorch programs and the probe of the card. Nothing is measured here, and no figure stands here.
//!
//! A bar is answered by the newest card that has measured it. Of bars that are of programs which keep the GPU busy the duels speak
//! before the stories, whose worst case is also of programs that are bound by their host (`docs/gpu-check.md`).

mod cases;
mod duels;
mod physics;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use self::duels::Duels;
use crate::check::{Document, NOT_YET, PROMISES, Promise, documents, story_bar};
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

/// What one card answered on one day.
struct Card {
    name: String,
    document: Option<Document>,
    duels: Duels,
    physics: Map<String, Value>,
}

/// Reads and prints.
pub fn run(options: &Options) -> io::Result<ExitCode> {
    let results = options.results.clone().unwrap_or_else(|| stage::workspace().join("bench/results"));
    let cards = newest_first(&results).iter().map(|path| Card::read(path)).collect::<io::Result<Vec<_>>>()?;
    let mut report = Report::new("gpu", false);
    let mut answered_by = Map::new();
    for promise in &PROMISES {
        let (bar, by) = answer(promise, &cards);
        report.bar(bar);
        answered_by.insert(promise.name.into(), by.map_or(Value::Null, Value::from));
    }
    report.figure("answered_by", answered_by);
    report.figure("cards", cards.iter().map(Card::figures).collect::<Vec<_>>());
    Ok(report.finish(options.json))
}

/// The bar of a promise, and the card that has answered it.
fn answer<'a>(promise: &Promise, cards: &'a [Card]) -> (Bar, Option<&'a str>) {
    let mut why = NOT_YET.to_owned();
    for card in cards {
        if let Some(value) = card.duels.value(promise.name) {
            return (promise.judged(value), Some(&card.name));
        }
        let Some(document) = &card.document else { continue };
        let bar = story_bar(promise, document);
        match bar.why_without_verdict() {
            None => return (bar, Some(&card.name)),
            Some(other) if why == NOT_YET => other.clone_into(&mut why), // the newest card's word
            Some(_) => {}
        }
    }
    (promise.absent(&why), None)
}

impl Card {
    fn read(directory: &Path) -> io::Result<Self> {
        let document = documents(directory)?;
        let lines = lines_of(directory)?;
        let card = Self {
            name: directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            document,
            duels: Duels::of(&lines),
            physics: physics::figures(&lines),
        };
        if card.document.is_none() && lines.is_empty() {
            return Err(io::Error::other(format!("`{}` has no results", directory.display())));
        }
        Ok(card)
    }

    fn figures(&self) -> Value {
        let mut figures = json!({"from": self.name, "duels": self.duels.figures(), "physics": self.physics});
        if let Some(document) = &self.document {
            figures["machine"] = document.machine.clone();
            figures["commands"] = json!(document.commands);
            figures["stories"] = json!(document.stories);
        }
        figures
    }
}

/// The answers of one file: each line that is a JSON object.
pub struct Lines {
    /// In the file's order.
    pub answers: Vec<Map<String, Value>>,
}

/// Of all files that hold answers by the line, in the order of their names.
fn lines_of(directory: &Path) -> io::Result<Vec<Lines>> {
    let by_line = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.ends_with(".jsonl") || (name.starts_with("duel") && name.ends_with(".txt"))
    };
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)?.flatten().map(|entry| entry.path()).collect();
    paths.retain(by_line);
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(path)?;
        let answers = text.lines().filter_map(|line| serde_json::from_str(line).ok()).map(unwrapped);
        Ok(Lines { answers: answers.collect() })
    };
    paths.into_iter().map(read).collect()
}

/// An answer of the probe within a call of the check stands in an answer of the call.
fn unwrapped(mut line: Map<String, Value>) -> Map<String, Value> {
    let is_probe = line.get("part").is_some_and(|part| part == "probe");
    match line.remove("answer") {
        Some(Value::Object(answer)) if is_probe => answer,
        Some(other) => {
            line.insert("answer".into(), other);
            line
        }
        None => line,
    }
}

/// The directories `gpu-NAME-YYYY-MM-DD`, the latest day first.
fn newest_first(results: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(results).into_iter().flatten().flatten().map(|entry| entry.path());
    let dated = entries.filter_map(|path| Some((date(path.file_name()?.to_str()?)?.to_owned(), path)));
    let mut dated: Vec<_> = dated.filter(|(_, path)| path.is_dir()).collect();
    dated.sort_by(|one, other| other.cmp(one));
    dated.into_iter().map(|(_, path)| path).collect()
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
        let names = ["gpu-a100-2026-12-01", "gpu-h200-2026-11-25"];
        assert_eq!(newest_first(results.path()), names.map(|name| results.path().join(name)));
    }

    #[test]
    fn a_directory_without_any_answer_is_a_mistake_and_one_with_a_probe_alone_is_none() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Card::read(directory.path()).is_err());
        let line = r#"{"part":"probe","of":"handover","answer":{"handover":"by a host","us":{"p50":9.5}}}"#;
        fs::write(directory.path().join("first.jsonl"), format!("{line}\nnot JSON\n")).unwrap();
        let card = Card::read(directory.path()).unwrap();
        assert_eq!(card.physics["handover_us"]["by a host"], 9.5);
    }

    #[test]
    fn a_bar_is_answered_by_the_newest_card_that_has_measured_it() {
        let card = |name: &str, answers: &str| {
            let answers = answers.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let duels = Duels::of(&[Lines { answers }]);
            Card { name: name.into(), document: None, duels, physics: Map::new() }
        };
        let measured = r#"{"part":"overhead","work":"replay","by":"weir","added_percent":2.5}"#;
        let cards = [card("new", ""), card("old", measured)];
        let overhead = PROMISES.iter().find(|promise| promise.name == "gpu.overhead_percent").unwrap();
        assert_eq!(answer(overhead, &cards).1, Some("old"));
        assert_eq!(answer(overhead, &cards[..1]).1, None);
    }
}
