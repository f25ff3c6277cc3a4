//! The duels of a card as figures: how far each program gets of what it gets alone, and of what plain slicing gives it; and the bars
//! that they answer.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Lines;
use super::cases::{Case, Got};
use crate::sample::{Spread, most};

/// Works that have something queued all the time: a share is judged by their progress (`bench/check/first/player.py`).
const QUEUED: [&str; 2] = ["flood", "bigtrain"];
/// Works whose rate a process repeats to a fraction of a percent: the others are bound by their host, which varies.
const STEADY: [&str; 3] = ["replay", "flood", "bigtrain"];
/// Fewer pairs of bare and Weir in turn say nothing of a fraction of a percent.
const LEAST_PAIRS: usize = 2;

/// All that a card's files say.
pub struct Duels {
    rows: Vec<Row>,
    overhead_percent: BTreeMap<String, f64>,
}

/// A case beside the same programs alone and under plain slicing.
struct Row {
    case: Case,
    alone: Vec<Option<Got>>,
    plain: Option<Case>,
}

impl Duels {
    /// Of all files; a file's own measure of a program alone comes first, then that of the nearest file before it, then behind it.
    pub fn of(files: &[Lines]) -> Self {
        let cases: Vec<Vec<Case>> =
            files.iter().map(|file| file.answers.iter().filter_map(Case::of).collect()).collect();
        let mut rows = Vec::new();
        for (n, file) in cases.iter().enumerate() {
            let nearest: Vec<&[Case]> =
                cases[..=n].iter().rev().chain(&cases[n + 1..]).map(Vec::as_slice).collect();
            for case in file.iter().filter(|case| !case.is_alone()) {
                let alone = case.players.iter().map(|player| alone(&player.work, &nearest));
                let same = |other: &&Case| other.is_plain() && !other.is_alone() && other.same_works(case);
                let plain = nearest.iter().find_map(|file| file.iter().find(same)).cloned();
                rows.push(Row { alone: alone.collect(), plain, case: case.clone() });
            }
        }
        Self { rows, overhead_percent: overheads(files, &cases) }
    }

    /// The value of a bar, if the duels answer it.
    pub fn value(&self, bar: &str) -> Option<f64> {
        let values: Vec<f64> = match bar {
            "gpu.overhead_percent" => {
                let steady = STEADY.iter().filter_map(|work| self.overhead_percent.get(*work));
                steady.copied().collect()
            }
            "gpu.share_error_points" => self.rows.iter().filter_map(Row::share_error_points).collect(),
            _ => Vec::new(),
        };
        (!values.is_empty()).then(|| most(values.into_iter()))
    }

    /// Everything, for readers.
    pub fn figures(&self) -> Value {
        json!({
            "overhead_percent": self.overhead_percent,
            "cases": self.rows.iter().map(Row::figures).collect::<Vec<_>>(),
        })
    }
}

impl Row {
    /// By how many points the worst tenant's part of all progress misses its request.
    fn share_error_points(&self) -> Option<f64> {
        let queued = self.case.players.iter().all(|player| QUEUED.contains(&player.work.as_str()));
        let weir = self.case.way.contains("weir") && !self.case.way.contains("off");
        let requests = self.case.requests_percent().filter(|_| queued && weir)?;
        let progress = self.progress_percent().into_iter().collect::<Option<Vec<_>>>()?;
        let sum: f64 = progress.iter().sum();
        Some(most(progress.iter().zip(&requests).map(|(got, request)| (100.0 * got / sum - request).abs())))
    }

    /// Of what each gets alone.
    fn progress_percent(&self) -> Vec<Option<f64>> {
        let each = self.case.players.iter().zip(&self.alone);
        each.map(|(player, alone)| Some(player.got?.percent_of((*alone)?))).collect()
    }

    /// Of what each gets under plain slicing; over 100: better.
    fn against_plain_percent(&self) -> Option<Vec<Option<f64>>> {
        let plain = self.plain.as_ref().filter(|_| !self.case.is_plain())?;
        let each = self.case.players.iter().zip(&plain.players);
        Some(each.map(|(player, plain)| Some(player.got?.percent_of(plain.got?))).collect())
    }

    fn figures(&self) -> Value {
        let got = |player: &super::cases::Player| match player.got {
            Some(Got::PerSecond(value)) => json!({"work": player.work, "per_s": value}),
            Some(Got::P99Ms(value)) => json!({"work": player.work, "p99_ms": value}),
            None => json!({"work": player.work}),
        };
        json!({
            "way": self.case.way,
            "got": self.case.players.iter().map(got).collect::<Vec<_>>(),
            "progress_percent": each_rounded(self.progress_percent()),
            "against_plain_percent": self.against_plain_percent().map(each_rounded),
            "share_error_points": self.share_error_points().map(rounded),
        })
    }
}

/// To hundredths: single runs of seconds know no more.
fn rounded(value: f64) -> f64 {
    (100.0 * value).round() / 100.0
}

fn each_rounded(values: Vec<Option<f64>>) -> Vec<Option<f64>> {
    values.into_iter().map(|value| value.map(rounded)).collect()
}

/// A work alone, without Weir: its best, as what varies is the host.
fn alone(work: &str, nearest: &[&[Case]]) -> Option<Got> {
    let of = |file: &&[Case]| {
        let bare = file.iter().filter(|case| case.is_alone() && case.is_plain());
        let got: Vec<Got> = bare
            .flat_map(|case| &case.players)
            .filter(|player| player.work == work)
            .filter_map(|player| player.got)
            .collect();
        let better = |one: Got, other: Got| if one.percent_of(other) >= 100.0 { one } else { other };
        got.into_iter().reduce(better)
    };
    nearest.iter().find_map(of)
}

/// What each work that was alone loses under Weir, in percent: the median of bare and Weir in turn, and what a call of the check says.
fn overheads(files: &[Lines], cases: &[Vec<Case>]) -> BTreeMap<String, f64> {
    let mut pairs: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for file in cases {
        let mut before: Option<&Case> = None;
        for case in file.iter().filter(|case| case.is_alone()) {
            if let Some((work, added)) = before.and_then(|bare| added_percent(bare, case)) {
                pairs.entry(work).or_default().push(added);
            }
            before = Some(case);
        }
    }
    pairs.retain(|_, added| added.len() >= LEAST_PAIRS);
    let mut all: BTreeMap<String, f64> =
        pairs.into_iter().map(|(work, added)| (work, Spread::of(&added).median)).collect();
    for line in files.iter().flat_map(|file| &file.answers) {
        let of = |name: &str| line.get(name).and_then(Value::as_str);
        let added = line.get("added_percent").and_then(Value::as_f64);
        if let (Some("overhead"), Some("weir"), Some(work), Some(added)) =
            (of("part"), of("by"), of("work"), added)
        {
            all.insert(work.into(), added);
        }
    }
    all
}

/// Of a bare program and, right after it, the same one as a tenant of Weir.
fn added_percent(bare: &Case, weir: &Case) -> Option<(String, f64)> {
    let (bare, weir, off) = (bare.players.first()?, weir.players.first()?, weir.way.contains("off"));
    let tenant = matches!(weir.role.as_str(), "a" | "b");
    let pair = bare.role.starts_with("bare") && tenant && bare.work == weir.work && !off;
    match (bare.got, weir.got) {
        (Some(Got::PerSecond(bare_per_s)), Some(Got::PerSecond(per_s))) if pair => {
            Some((bare.work.clone(), 100.0 * (bare_per_s / per_s - 1.0)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duels(text: &str) -> Duels {
        let answers = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Duels::of(&[Lines { answers }])
    }

    const FLOODS: &str = r#"
        {"case": "flood alone", "bare1": {"work": "flood", "per_s": 600.0}}
        {"case": "flood x2, plain", "bare1": {"work": "flood", "per_s": 280.0}, "bare2": {"work": "flood", "per_s": 280.0}}
        {"case": "flood x2, weir 70/30", "a": {"work": "flood", "per_s": 420.0}, "b": {"work": "flood", "per_s": 140.0}}
        {"case": "flood x2, hami 70/30", "h1": {"work": "flood", "per_s": 280.0}, "h2": {"work": "flood", "per_s": 280.0}}"#;

    #[test]
    fn shares_are_judged_of_programs_that_always_have_work_queued_under_weir_alone() {
        let floods = duels(FLOODS);
        let error = floods.value("gpu.share_error_points").map(rounded);
        assert_eq!(error, Some(5.0), "75 % of all progress for 70");
        assert_eq!(duels(&FLOODS.replace("flood", "train")).value("gpu.share_error_points"), None);
        let figures = floods.figures();
        let weir = &figures["cases"][1];
        assert_eq!(
            (&weir["progress_percent"][0], &weir["against_plain_percent"][1]),
            (&json!(70.0), &json!(50.0))
        );
        assert!(figures["cases"][0]["against_plain_percent"].is_null());
    }

    #[test]
    fn overhead_is_of_bare_and_weir_in_turn_and_of_steady_works() {
        let alone = |role: &str, per_s: f64| {
            format!(
                "{{\"case\": \"W alone, {role}\", \"{role}\": {{\"work\": \"W\", \"per_s\": {per_s}}}}}\n"
            )
        };
        let text =
            [("bare1", 102.0), ("a", 100.0), ("bare2", 104.0), ("b", 100.0), ("bare1", 103.0), ("a", 100.0)]
                .map(|(role, per_s)| alone(role, per_s))
                .concat();
        let value = |work: &str| duels(&text.replace('W', work)).value("gpu.overhead_percent");
        assert!((value("replay").unwrap() - 3.0).abs() < 1e-9);
        assert_eq!(value("decode"), None, "bound by its host");
        assert_eq!(
            duels(&text.replace(", ", ", off, ").replace('W', "replay")).value("gpu.overhead_percent"),
            None
        );
    }

    #[test]
    fn of_a_call_of_the_check_its_own_word_counts() {
        let line = r#"{"part": "overhead", "work": "flood", "by": "weir", "added_percent": 0.25}"#;
        assert_eq!(duels(line).value("gpu.overhead_percent"), Some(0.25));
    }
}
