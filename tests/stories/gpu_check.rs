//! The kit that measures a real GPU, run on the simulated one, so that it is sound when there is a GPU to measure.

use std::process::Command;

use weir_tests::dist::Dist;

#[test]
fn the_gpu_check_runs_on_the_simulated_gpu_and_its_promises_hold() {
    let (dist, out) = (Dist::find(), tempfile::tempdir().expect("a directory"));
    let mut check = Command::new(dist.bench());
    check.args(["gpu-check", "--simulated", "--quick", "--out"]).arg(out.path()).args(["lookup", "limit"]);
    let check = check.env("WEIR_DIST", dist.root()).output().expect("weir-bench runs");
    let told = String::from_utf8_lossy(&check.stdout);
    assert!(check.status.success(), "{told}{}", String::from_utf8_lossy(&check.stderr));
    for story in ["lookup", "limit"] {
        let line = told.lines().find(|line| line.starts_with(story)).unwrap_or_default();
        assert!(line.contains("holds") && line.contains("[simulated]"), "{story}: {told}");
    }
    let results = std::fs::read_dir(out.path()).expect("results").count();
    assert_eq!(results, 2, "one JSON and one text");
}
