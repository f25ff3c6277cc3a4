//! What `weir-cluster` works out in virtual time or from figures in a file: `simulate placement`, `simulate requests` and `sites`, as
//! an operator asks for them. *Simulated*, or planned.

use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_tests::asked::{assert_refused, told};

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,64000,262144,2,P100\n";
const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,2000,4096,1,500\np1,2000,4096,1,1000\n";

/// A node list and a pod list.
fn trace(directory: &Path, nodes: &str, pods: &str) -> [String; 2] {
    [("nodes.csv", nodes), ("pods.csv", pods)].map(|(name, text)| {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("a temporary file");
        path.to_str().expect("a path in UTF-8").to_owned()
    })
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn a_recorded_cluster_is_filled_by_each_policy_in_the_same_way_each_time() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [nodes, pods] = trace(directory.path(), NODES, PODS);
    let csv = directory.path().join("points.csv");
    let csv = csv.to_str().expect("a path in UTF-8");
    let simulate = |seeds| {
        let flags = ["--policy", "weir,random", "--seeds", seeds, "--load", "200", "--csv", csv];
        told(&[&["--json", "simulate", "placement", "--trace", &nodes, &pods][..], &flags].concat())
    };
    let answer = simulate("3");
    assert_eq!(
        (&answer["simulated"], &answer["gpus"], &answer["nodes"]),
        (&true.into(), &4.into(), &2.into())
    );
    for curve in answer["curves"].as_array().expect("a curve for each policy") {
        let last = curve["points"].as_array().and_then(|points| points.last()).expect("points");
        assert!((90.0..=100.0).contains(&number(&last["allocated_percent"])), "{curve}");
    }
    assert_eq!(answer, simulate("3"), "the same seeds");
    let lines = std::fs::read_to_string(csv).expect("what was asked for");
    assert!(lines.lines().filter(|line| line.starts_with("random,")).count() > 1, "{lines}");
}

#[test]
fn a_trace_that_is_cut_off_and_a_policy_that_is_none_are_told_with_their_place() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [nodes, pods] = trace(directory.path(), NODES, &PODS[..PODS.len() - 6]);
    let placement = ["simulate", "placement", "--trace", &nodes, &pods];
    assert_refused(&placement, 78, &["pods.csv:3"]);
    let [nodes, pods] = trace(directory.path(), NODES, PODS);
    let placement = ["simulate", "placement", "--trace", &nodes, &pods, "--policy", "wier"];
    assert_refused(&placement, 2, &["wier", "weir"]);
    assert_refused(&["simulate", "requests", "steady", "--policy", "horizontl"], 2, &["horizontal"]);
}

#[test]
fn a_service_is_scaled_by_each_policy_and_every_request_is_accounted_for() {
    let requests = ["--json", "simulate", "requests", "steady", "--scale", "5", "--seeds", "2"];
    let answer = told(&requests);
    let summaries = answer["summaries"].as_array().expect("one for each policy");
    assert!(summaries.len() > 2, "{answer}");
    let outcomes = answer["outcomes"].as_array().expect("those of each policy");
    assert_eq!(outcomes.len(), summaries.len());
    for seeds in outcomes.iter().map(|seeds| seeds.as_array().expect("one for each seed")) {
        assert_eq!(seeds.len(), 2);
        for service in seeds.iter().flat_map(|seed| seed["services"].as_array().expect("a list of services"))
        {
            let count = |name| number(&service[name]);
            assert!(count("arrived") > 1_000.0, "{service}");
            assert_eq!(count("served") + count("waiting") + count("refused"), count("arrived"), "{service}");
        }
    }
    assert_eq!(answer, told(&requests), "the same seeds");
}

#[test]
fn sites_end_their_rounds_together_and_best_effort_work_goes_where_its_power_is_clean() {
    let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/sites.example.toml");
    let plan = told(&["--json", "sites", example.to_str().expect("a path in UTF-8")]);
    let (even, matched) = (&plan["training"]["even"], &plan["training"]["matched"]);
    assert!(number(&matched["round_s"]) <= number(&even["round_s"]), "{plan}");
    assert!(number(&matched["idle_gpu_s"]) < number(&even["idle_gpu_s"]), "{plan}");
    let (fixed, following) = (&plan["batch"]["fixed"], &plan["batch"]["following"]);
    assert!(number(&following["grams_per_gpu_hour"]) < number(&fixed["grams_per_gpu_hour"]), "{plan}");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let wrong = directory.path().join("sites.toml");
    let text = std::fs::read_to_string(&example).expect("the example");
    std::fs::write(&wrong, text.replace("gpus = 8", "gpsu = 8")).expect("a temporary file");
    assert_refused(
        &["sites", wrong.to_str().expect("a path in UTF-8")],
        78,
        &["sites.toml:5", "gpsu", "gpus"],
    );
}
