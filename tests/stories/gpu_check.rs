//! The kit that measures a real GPU, run on the simulated one in its short form, so that it is sound when there is a GPU to measure.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use weir_tests::dist::{Dist, python};

/// The check on the simulated GPU, in its short form.
fn check(out: &Path, arguments: &[&str]) -> Output {
    let dist = Dist::find();
    let mut check = Command::new(dist.bench());
    check.args(["gpu-check", "--simulated", "--quick", "--out"]).arg(out).args(arguments);
    check.env("WEIR_DIST", dist.root()).stdin(Stdio::null()).output().expect("weir-bench runs")
}

fn document(out: &Path) -> Value {
    let text = std::fs::read(out.join("gpu-check.json")).expect("a document");
    serde_json::from_slice(&text).expect("it is JSON")
}

/// All stories of a call, none of which may fail; the files that it leaves.
fn call(number: &str, stories: &[&str]) -> Vec<String> {
    let out = tempfile::tempdir().expect("a directory");
    let output = check(out.path(), &["--call", number]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let document = document(out.path());
    // Where this tree is no repository nobody can say which commit it is.
    let commit = document["machine"]["commit"].as_str().unwrap_or_default().to_owned();
    let is_one = |word: &str| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(commit == "unknown" || commit.split(' ').next().is_some_and(is_one), "{commit}");
    let all = document["stories"].as_array().expect("stories");
    let names: Vec<_> = all.iter().map(|story| story["story"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, stories);
    for story in all {
        assert!(story["holds"] == true && !story["figures"].is_null(), "{story}");
        for bar in story["bars"].as_array().expect("bars") {
            let name = bar["name"].as_str().expect("a name");
            assert!(told.contains(&format!("{name}: not yet measured on a GPU")), "{told}");
        }
    }
    let text = std::fs::read_to_string(out.path().join("gpu-check.txt")).expect("a text");
    assert!(stories.iter().all(|story| text.lines().any(|line| line.starts_with(story))), "{text}");
    let mut files: Vec<_> =
        std::fs::read_dir(out.path()).expect("results").flatten().map(|entry| entry.file_name()).collect();
    files.sort();
    files.into_iter().map(|name| name.to_string_lossy().into_owned()).collect()
}

#[test]
fn the_first_call_tells_what_it_costs_and_whether_shares_and_memory_are_kept() {
    let files = call("1", &["lookup", "overhead", "parity", "share", "memory"]);
    assert_eq!(files, ["figures.png", "gpu-check.json", "gpu-check.txt"]);
}

#[test]
fn the_second_call_tells_of_latency_silence_and_what_is_charged() {
    let files = call("2", &["latency", "silence", "liveness", "meter", "bubbles"]);
    assert_eq!(files, ["figures.png", "frontier.png", "gpu-check.json", "gpu-check.txt"]);
}

#[test]
fn the_third_call_tells_what_the_gpu_is_like_and_what_survives() {
    let files = call("3", &["calibration", "facts", "resize", "park", "kill", "illegal", "mps"]);
    assert_eq!(files, ["calibration.toml", "figures.png", "frontier.png", "gpu-check.json", "gpu-check.txt"]);
}

#[test]
fn a_story_that_is_not_done_in_time_is_ended_and_the_others_are_told() {
    let out = tempfile::tempdir().expect("a directory");
    // Share takes longer than that; what was told before stays.
    let first = check(out.path(), &["facts"]);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stdout));
    let second = check(out.path(), &["--within", "6", "share", "resize"]);
    assert_eq!(second.status.code(), Some(1), "{}", String::from_utf8_lossy(&second.stdout));
    let told = document(out.path());
    let line = |n: usize| told["stories"][n]["line"].as_str().unwrap_or_default().to_owned();
    assert!(line(0).contains("0 differ"), "{told}");
    assert!(line(1).contains("it was not done within"), "{told}");
    assert!(line(2).contains("no time was left"), "{told}");
}

#[test]
fn without_results_of_a_gpu_each_figure_says_so() {
    let (dist, results) = (Dist::find(), tempfile::tempdir().expect("a directory"));
    let read = || {
        let mut command = Command::new(dist.bench());
        let output = command
            .args(["gpu", "--json", "--results"])
            .arg(results.path())
            .output()
            .expect("weir-bench runs");
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default())
    };
    let (code, document) = read();
    let bars = document["bars"].as_array().expect("bars").clone();
    assert!(code == Some(3) && document["simulated"] == false && bars.len() >= 2, "{document}");
    assert!(
        bars.iter().all(|bar| bar["holds"].is_null() && bar["why"] == "not yet measured on a GPU"),
        "{document}"
    );
    let there = results.path().join("gpu-card-2026-01-02");
    std::fs::create_dir(&there).expect("a directory");
    let figure = |value: f64, cut: Option<&str>| {
        let bars = serde_json::json!([{"name": "gpu.overhead_percent", "value": value}]);
        let story = serde_json::json!({
            "story": "overhead", "took_s": 1.0, "holds": cut.is_none(), "line": "", "cut": cut, "bars": bars, "figures": {},
        });
        let all = serde_json::json!({"simulated": false, "machine": {}, "commands": [], "stories": [story]});
        std::fs::write(there.join("gpu-check.json"), all.to_string()).expect("a file");
        let (code, document) = read();
        (code, document["bars"][0]["holds"].clone(), document["bars"][1]["holds"].clone())
    };
    assert_eq!(
        figure(0.3, None),
        (Some(3), Value::Bool(true), Value::Null),
        "the others are still to be measured"
    );
    assert_eq!(figure(0.7, None), (Some(1), Value::Bool(false), Value::Null));
    assert_eq!(figure(0.3, Some("too late")), (Some(3), Value::Null, Value::Null), "it was cut off");
}

#[test]
fn the_short_form_of_measuring_the_card_takes_less_than_a_minute_and_says_what_was_predicted() {
    let (dist, directory) = (Dist::find(), tempfile::tempdir().expect("a directory"));
    let file = directory.path().join("card.toml");
    let mut doctor = Command::new(dist.weir());
    doctor.args(["doctor", "--measure", "--short", "--json", "--calibration"]).arg(&file);
    let output = doctor.env("WEIR_DIST", dist.root()).stdin(Stdio::null()).output().expect("weir runs");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{told}");
    assert!(said["took_s"].as_f64().is_some_and(|took| took > 0.0 && took < 60.0), "{said}");
    let rows = said["rows"].as_array().expect("rows");
    let has_source = |row: &Value| row["predicted"].is_null() == row["source"].is_null();
    assert!(rows.iter().all(has_source), "{said}");
    let predicted = rows.iter().filter(|row| !row["predicted"].is_null()).count();
    assert!(predicted >= 25, "{predicted} of {} rows have a prediction: {said}", rows.len());
    assert!(std::fs::read_to_string(file).expect("a calibration file").contains("slice_us"));
}

#[test]
fn what_pytorch_is_to_run_is_python() {
    // There is no PyTorch here: only that the scripts can be read is known until there is a GPU.
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/check");
    let (parse, mut read) = ("import ast, sys; ast.parse(open(sys.argv[1]).read())", 0);
    let folders = [scripts.clone(), scripts.join("first")];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("scripts").flatten());
    for entry in entries {
        if entry.path().extension().is_some_and(|extension| extension == "py") {
            let output =
                Command::new(python()).args(["-c", parse]).arg(entry.path()).output().expect("python runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            read += 1;
        }
    }
    assert_eq!(read, 5 + 12);
}
