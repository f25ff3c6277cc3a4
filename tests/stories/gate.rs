//! Fillers give way: `weir-bench gate`, whose figures are the bars, in what must hold on any machine.

use std::process::{Command, Stdio};

use serde::Deserialize;
use weir_tests::dist::Dist;

#[derive(Deserialize)]
struct Document {
    figures: Figures,
}

#[derive(Deserialize)]
struct Figures {
    short: Beside,
}

/// A latency tenant that wakes beside a filler of short kernels.
#[derive(Debug, Deserialize)]
struct Beside {
    counted: usize,
    held_already: usize,
    never_held: usize,
}

#[test]
fn a_filler_is_held_back_in_each_burst_of_a_latency_tenant_and_launches_in_between() {
    let dist = Dist::find();
    let mut command = Command::new(dist.bench());
    command.args(["gate", "--json"]).env("WEIR_DIST", dist.root()).stdin(Stdio::null());
    let output = command.output().expect("weir-bench starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let document: Document =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {said}"));
    let Beside { counted, held_already, never_held } = document.figures.short;
    assert_eq!(never_held, 0, "of {counted} bursts");
    assert!(held_already < counted, "it was held at all {counted} wakes, and never let in");
}
