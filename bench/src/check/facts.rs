//! The simulated driver against a real one: the same questions (`player::facts`) to the driver at hand, beside what the simulated one
//! answered when `facts-simulated.json` was written. What differs is listed: to be mended in the simulator, or explained here ([`EXPLAINED`]). On the
//! simulated GPU itself nothing may differ, so that the file stays true.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::finding::Finding;
use super::setup::Setup;
use super::side::{Player, Way, furnish};
use crate::stage::THIS_PROGRAM;

/// What the simulated driver answers.
const SIMULATED: &str = include_str!("../../check/facts-simulated.json");

/// Asks and compares.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let rig = setup.rig()?;
    let mut command = Command::new(THIS_PROGRAM);
    command.args(["check-player", "facts"]);
    furnish(&rig, &mut command, Way::Bare);
    command.stdin(Stdio::null());
    let mut player = Player::of(command, "facts")?;
    let Value::Object(here) = player.answer(Duration::from_secs(5))? else {
        return Err(io::Error::other("no facts"));
    };
    let known: Map<String, Value> = serde_json::from_str(SIMULATED)?;
    let differ = differences(&known, &here);
    let stale = stale(&known, &EXPLAINED);
    let figures =
        json!({"facts": beside(&known, &here), "differ": rows(&differ), "explained_no_more": stale});
    Ok(Finding {
        holds: verdict(setup.simulated, &differ, &stale),
        line: told(here.len(), &differ),
        figures,
        ..Finding::default()
    })
}

/// A fact that a real driver answers otherwise, as it should be: what it answers, and why the simulated one does not.
struct Explained {
    fact: &'static str,
    why: &'static str,
}

/// All differences that are known and meant to stay. One that is not here is to be mended in the simulator, or to be explained here once
/// it was looked at on a card.
const EXPLAINED: [Explained; 1] = [Explained {
    fact: "free memory falls by what is allocated, in steps of 2 MiB",
    why: "a card takes each large allocation in steps, the simulated one all that a process holds",
}];

fn explanation(fact: &str) -> Option<&'static str> {
    EXPLAINED.iter().find(|row| row.fact == fact).map(|row| row.why)
}

/// Explanations of what is no fact: the question was renamed or is no longer asked.
fn stale(known: &Map<String, Value>, explained: &[Explained]) -> Vec<&'static str> {
    explained.iter().map(|row| row.fact).filter(|fact| !known.contains_key(*fact)).collect()
}

/// On the simulated GPU nothing may differ. On a real one all that differs must have been explained; until then there is no verdict, as
/// a difference breaks no promise.
fn verdict(simulated: bool, differ: &[Difference], stale: &[&str]) -> Option<bool> {
    match (simulated, stale.is_empty()) {
        (_, false) => Some(false),
        (true, true) => Some(differ.is_empty()),
        (false, true) => differ.iter().all(|row| row.why.is_some()).then_some(true),
    }
}

/// A fact that is not the same.
struct Difference {
    fact: String,
    simulated: Value,
    here: Value,
    why: Option<&'static str>,
}

fn told(count: usize, differ: &[Difference]) -> String {
    let rows = differ.iter().map(|row| {
        let Difference { fact, simulated, here, why } = row;
        format!("{fact}: {here}, simulated {simulated} ({})", why.unwrap_or("not explained yet"))
    });
    let line = format!("{count} facts, {} differ; {}", differ.len(), rows.collect::<Vec<_>>().join("; "));
    line.trim_end_matches("; ").into()
}

fn rows(differ: &[Difference]) -> Map<String, Value> {
    let row = |row: &Difference| json!({"simulated": row.simulated, "here": row.here, "why": row.why});
    differ.iter().map(|difference| (difference.fact.clone(), row(difference))).collect()
}

/// Every fact by both drivers.
fn beside(known: &Map<String, Value>, here: &Map<String, Value>) -> Map<String, Value> {
    let row = |fact: &String| (fact.clone(), json!({"simulated": known.get(fact), "here": here.get(fact)}));
    all(known, here).into_iter().map(row).collect()
}

/// The names that either has, sorted.
fn all<'a>(known: &'a Map<String, Value>, here: &'a Map<String, Value>) -> Vec<&'a String> {
    let mut all: Vec<&String> = known.keys().chain(here.keys()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Facts that are not the same; what one of them lacks is null.
fn differences(known: &Map<String, Value>, here: &Map<String, Value>) -> Vec<Difference> {
    let of = |facts: &Map<String, Value>, fact: &str| facts.get(fact).cloned().unwrap_or(Value::Null);
    let rows = all(known, here).into_iter().map(|fact| Difference {
        fact: fact.clone(),
        simulated: of(known, fact),
        here: of(here, fact),
        why: explanation(fact),
    });
    rows.filter(|row| row.simulated != row.here).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_driver_lacks_or_answers_otherwise_is_a_difference() {
        let facts = |value: Value| value.as_object().unwrap().clone();
        let known = facts(json!({"free twice": 1, "only known": 2, "same": 3}));
        let here = facts(json!({"free twice": 700, "only here": 2, "same": 3}));
        let differ = differences(&known, &here);
        let names: Vec<_> = differ.iter().map(|row| row.fact.as_str()).collect();
        assert_eq!(names, ["free twice", "only here", "only known"]);
        assert_eq!((verdict(true, &differ, &[]), verdict(false, &differ, &[])), (Some(false), None));
        assert!(told(3, &differ).contains("free twice: 700, simulated 1 (not explained yet)"));
        assert_eq!(beside(&known, &here)["same"], json!({"simulated": 3, "here": 3}));
    }

    #[test]
    fn a_real_driver_holds_once_every_difference_is_explained_and_no_explanation_is_stale() {
        let row = |why| Difference { fact: "a".into(), simulated: json!(1), here: json!(2), why };
        assert_eq!(verdict(false, &[row(Some("the card has more engines"))], &[]), Some(true));
        assert_eq!(verdict(true, &[row(Some("no excuse on the simulated GPU"))], &[]), Some(false));
        let known = serde_json::from_str::<Map<String, Value>>(SIMULATED).unwrap();
        let old = [Explained { fact: "nobody asks this", why: "it was asked once" }];
        assert_eq!(stale(&known, &old), ["nobody asks this"]);
        assert_eq!(verdict(false, &[], &stale(&known, &old)), Some(false));
        assert!(stale(&known, &EXPLAINED).is_empty());
    }
}
