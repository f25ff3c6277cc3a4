//! Policies are switched while programs run, and what each makes of a tenant is told by name wherever one looks.

use std::time::Duration;

use serde_json::Value;
use weir_nodemgr::web::metrics;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

const TRAIN: Budget<'_> = Budget { name: "train", request: "50%", limit: "100%", memory: "2GiB" };
const BATCH: Budget<'_> = Budget { name: "batch", request: "10%", limit: "100%", memory: "2GiB" };

/// How long a share is measured.
const WINDOW: Duration = Duration::from_millis(500);

/// Names of all policies, in the order in which they are listed.
fn known(node: &Node<'_>) -> Vec<String> {
    let policies: Value = serde_json::from_slice(&node.weir(&["policy"])).expect("policies are JSON");
    let known = policies["known"].as_array().expect("a list");
    known.iter().map(|policy| policy["name"].as_str().expect("a name").to_owned()).collect()
}

/// Asserts that the metrics and `weir ps` say what the policy makes of each tenant.
fn states_are_shown(node: &Node<'_>, policy: &str) {
    let stats = node.stats();
    let page = metrics::page(&stats).expect("it is written into memory");
    for tenant in &stats.tenants {
        let (name, state) = (&tenant.name, &tenant.gpus[0].policy_state);
        assert!(!state.is_empty(), "{policy}, {name}");
        let row = format!("tenant=\"{name}\",policy=\"{policy}\",state=\"{state}\"}} 1.0");
        assert!(
            page.lines().any(|line| line.starts_with("weir_policy_state{") && line.ends_with(&row)),
            "{page}"
        );
    }
    let ps = node.says(&["ps"]);
    for name in [TRAIN.name, BATCH.name] {
        let row = ps.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{ps}"));
        let state =
            row.split_once(&format!(" {policy} ")).and_then(|(_, rest)| rest.split_whitespace().next());
        assert!(state.is_some_and(|state| state.chars().all(|c| c.is_ascii_uppercase() || c == '_')), "{ps}");
    }
}

#[test]
fn each_policy_takes_over_while_programs_run_and_its_states_are_told_by_name() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let mut train = Looping::start(Program::under_weir(&gpu, Some(&node), TRAIN, LOOP));
    let flags = ["--class", "filler"];
    let mut batch = Looping::start(Program::under_weir_with(&gpu, Some(&node), BATCH, &flags, LOOP));
    let mut names = known(&node);
    assert_eq!((names.len(), names[0].as_str(), node.stats().gpus[0].policy.as_str()), (5, "weir", "weir"));
    names.rotate_left(1); // so that each is switched to
    for name in &names {
        node.weir(&["policy", "--gpu", "0", name]);
        wait::until("the policy", || (node.stats().gpus[0].policy == *name).then_some(()));
        train.goes_on(100);
        batch.goes_on(100);
        states_are_shown(&node, name);
    }
    let told = |event: &str| {
        let lines = String::from_utf8(node.weir(&["events"])).expect("events are text");
        lines.lines().filter(|line| line.contains(&format!("\"event\":\"{event}\""))).count()
    };
    assert_eq!(told("policy_switched"), names.len());
    wait::until("a state of a tenant", || (told("state_changed") > 0).then_some(()));
    for program in [train, batch] {
        program.finish().well();
    }
}

#[test]
fn a_signal_from_outside_halves_what_a_filler_has_and_gives_it_back() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let carbon = gpu.dir().join("carbon");
    let says = |grams: &str| std::fs::write(&carbon, grams).expect("a file in it");
    says("300 gCO2/kWh\n");
    let priced = "policy = \"weir\"\n[[price]]\nname = \"*\"\ntime_us = 20\n";
    let signal =
        format!("[signals.carbon]\nfrom = \"{}\"\nfull = 200\nnone = 400\nevery_s = 1\n", carbon.display());
    let node = Node::start(&gpu, &(priced.to_owned() + &signal));
    let flags = ["--class", "filler"];
    let batch = Looping::start(Program::under_weir_with(&gpu, Some(&node), BATCH, &flags, LOOP));
    let uses = |what: &str, range: std::ops::Range<f64>| {
        wait::until(what, || range.contains(&gpu.shares([batch.pid], WINDOW)[0]).then_some(()));
    };
    let granted = || node.tenant(BATCH.name).expect("it runs").gpus[0].rate_ppm;
    wait::until("half of the GPU", || (granted() == 500_000).then_some(()));
    uses("half of it at most", 1.0..55.0);
    says("100 gCO2/kWh\n");
    uses("more than half", 60.0..100.1);
    batch.finish().well();
}
