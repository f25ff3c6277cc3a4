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
    one_core_free: Case,
}

/// A latency tenant that wakes beside a filler of short kernels that sees the board, and beside one that sees its grant only.
#[derive(Deserialize)]
struct Case {
    short: Beside,
    bell: Beside,
}

#[derive(Debug, Deserialize)]
struct Beside {
    counted: usize,
    closed_already: usize,
    never_closed: usize,
    absent: usize,
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
    let Case { short, bell } = document.figures.one_core_free;
    assert_eq!(short.never_closed, 0, "{short:?}");
    // A machine whose host takes a processor away for as long as a burst lasts delays the manager as long.
    assert!(bell.never_closed * 50 < bell.counted, "{bell:?}");
    for seen in [&short, &bell] {
        let unseen = seen.absent + seen.closed_already; // nobody was let to close it, or to open it before
        assert!(unseen * 2 < seen.counted, "there was hardly anything to see: {seen:?}");
    }
}
