//! The simulated driver against a real one: the same questions (`player::facts`) to the driver at hand, beside what the simulated one
//! answered when `facts-simulated.json` was written. What differs is listed: to be mended in the simulator, or explained here. On the
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
    let told: Vec<String> = differ
        .iter()
        .map(|(fact, [simulated, here])| format!("{fact}: {here}, simulated {simulated}"))
        .collect();
    let line = format!("{} facts, {} differ; {}", here.len(), differ.len(), told.join("; "));
    let differ: Map<String, Value> = differ
        .into_iter()
        .map(|(fact, [simulated, here])| (fact, json!({"simulated": simulated, "here": here})))
        .collect();
    Ok(Finding {
        holds: setup.simulated.then_some(differ.is_empty()),
        line: line.trim_end_matches("; ").into(),
        figures: json!({"here": here, "differ": differ}),
        ..Finding::default()
    })
}

/// Facts that are not the same, the simulated answer first; what one of them lacks is null.
fn differences(known: &Map<String, Value>, here: &Map<String, Value>) -> Vec<(String, [Value; 2])> {
    let of = |facts: &Map<String, Value>, fact: &str| facts.get(fact).cloned().unwrap_or(Value::Null);
    let mut all: Vec<&String> = known.keys().chain(here.keys()).collect();
    all.sort_unstable();
    all.dedup();
    let rows = all.into_iter().map(|fact| (fact.clone(), [of(known, fact), of(here, fact)]));
    rows.filter(|(_, [known, here])| known != here).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_driver_lacks_or_answers_otherwise_is_a_difference() {
        let facts = |value: Value| value.as_object().unwrap().clone();
        let known = facts(json!({"free twice": 1, "only known": 2, "same": 3}));
        let here = facts(json!({"free twice": 700, "only here": 2, "same": 3}));
        let names: Vec<_> = differences(&known, &here).into_iter().map(|(fact, _)| fact).collect();
        assert_eq!(names, ["free twice", "only here", "only known"]);
    }
}
