//! The calls of minutes (`gpu-check --first`, `--second`) on the simulated GPU, with a stand-in for PyTorch: that every case is played,
//! and that what fails costs no other case anything.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use weir_tests::dist::python;
use weir_tests::simgpu::SimGpu;

/// Cases at a fiftieth of their length: what they give means nothing here.
const PACE: &str = "0.02";

/// A call with these options.
fn call(which: &str, out: &Path, variables: &[(&str, &str)]) -> Output {
    let gpu = SimGpu::new("");
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/check/first");
    let player = format!("{} -u {}", python().display(), check.join("stand_in.py").display());
    let mut command = Command::new(python());
    command.arg("-u").arg(&check).arg(which).arg("--dist").arg(gpu.dist().root()).arg("--out").arg(out);
    command.args(["--pace", PACE, "--within", "100", "--player", &player]);
    command.envs(gpu.environment()).envs(variables.iter().copied());
    command.stdin(Stdio::null()).output().expect("the call runs")
}

fn answers(out: &Path, which: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(out.join(format!("{which}.jsonl"))).expect("results");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is whole")).collect()
}

fn of<'a>(answers: &'a [Value], part: &str) -> Vec<&'a Value> {
    answers.iter().filter(|answer| answer["part"] == part).collect()
}

/// Whether somebody in a case gave no answer.
fn has_trouble(case: &Value) -> bool {
    case["answers"].as_array().into_iter().flatten().any(|answer| !answer["trouble"].is_null())
}

#[test]
fn the_call_that_decides_plays_every_duel_in_every_way() {
    let out = tempfile::tempdir().expect("a directory");
    let output = call("second", out.path(), &[]);
    let log = std::fs::read_to_string(out.path().join("second-log.txt")).unwrap_or_default();
    assert!(output.status.success(), "{}{log}", String::from_utf8_lossy(&output.stderr));
    let answers = answers(out.path(), "second");
    let duels = of(&answers, "duel");
    assert!(duels.len() == 19 && !duels.iter().any(|case| has_trouble(case)), "{duels:?}");
    assert!(of(&answers, "alone").len() == 8 && of(&answers, "weir").iter().all(|said| said["code"] == 0));
    assert!(!answers.iter().any(|answer| answer["failed"].is_string()), "{answers:?}");
    assert_eq!(std::fs::read_dir(out.path()).expect("results").count(), 2, "results and a log");
}

#[test]
fn who_dies_in_one_duel_is_there_again_for_the_next_one_and_what_cannot_be_built_is_said() {
    let out = tempfile::tempdir().expect("a directory");
    let no_toolkit = [("STAND_IN_DIES_AT", "loader"), ("NVCC", "/nowhere/nvcc")];
    let output = call("first", out.path(), &no_toolkit);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers = answers(out.path(), "first");
    let duels = of(&answers, "duel");
    let with_loader = |case: &Value| case["works"][0] == "loader";
    assert!(duels.iter().all(|case| has_trouble(case) == with_loader(case)), "{duels:?}");
    for part in ["overhead", "charge", "kill", "manager", "memory"] {
        assert!(of(&answers, part).iter().all(|answer| answer["failed"].is_null()), "{part}: {answers:?}");
    }
    let failed: Vec<_> = answers.iter().filter(|answer| answer["failed"].is_string()).collect();
    assert!(failed.len() == 1 && failed[0]["part"] == "probe", "{failed:?}");
    assert_eq!(answers.last().map(|answer| answer["part"].clone()), Some("end".into()));
}
