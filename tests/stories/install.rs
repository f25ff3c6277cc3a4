//! `scripts/install`: what it lays out is whole, and what it takes away is gone.

use std::path::Path;
use std::process::Command;

use weir_tests::dist::Dist;
use weir_tests::life::Workshop;
use weir_tests::program::Program;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

/// Runs the script for a machine that lies in this directory.
fn install(root: &Path, arguments: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/install");
    let mut command = Command::new(script);
    command.args(arguments).env("DESTDIR", root).env("WEIR_DIST", Dist::find().root());
    let output = command.output().expect("the script starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Files below a directory.
fn files(root: &Path) -> usize {
    let entries = std::fs::read_dir(root).expect("a directory").flatten();
    entries.map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}

#[test]
fn what_is_installed_runs_a_program_within_its_budget_and_is_taken_away_again() {
    let (gpu, workshop) = (SimGpu::new(EVERY_KERNEL_20_US), Workshop::default());
    let root = tempfile::tempdir().expect("a temporary directory");
    install(root.path(), &[]);
    let weir = root.path().join("usr/bin/weir");
    let command = || Program::bare(&gpu, &weir).env("WEIR_NODE_DIR", gpu.no_node());
    let run = command().args(["--json", "run", "--request", "50%", "--memory", "1GiB", "--"]);
    let ended = run.arg(workshop.life("plain")).run().well();
    assert_eq!((&ended.summary()["launches"], &ended.summary()["state"]), (&100.into(), &"enforced".into()));
    // The probe and the proxy lie where `weir` looks for them.
    let doctor = command().args(["--json", "doctor"]).run();
    let doctor: serde_json::Value = serde_json::from_str(&doctor.stdout.concat()).expect("one JSON document");
    let routes = doctor["routes"].as_array().expect("the routes were tried");
    assert!(routes.iter().all(|route| !route["caught_by_proxy"].is_null()), "{doctor}");
    install(root.path(), &["--remove"]);
    assert_eq!(files(root.path()), 0, "nothing is left");
}
