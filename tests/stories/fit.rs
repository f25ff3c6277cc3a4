//! `weir-cluster fit` as an operator asks it: which services go together on which device, and each mistake with what to do. No GPU is
//! needed, and nothing is measured: slowdowns are *predicted*.

use std::path::PathBuf;

use serde_json::Value;
use weir_tests::asked::{assert_refused, said, told};

/// A calibration file of this text.
fn calibration(directory: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("calibration.toml");
    std::fs::write(&path, text).expect("a temporary file");
    path
}

const THREE: [&str; 5] = ["--json", "fit", "BERT-base", "RoBERTa-large", "LLaMA2-7B:training"];

#[test]
fn services_are_divided_over_the_fewest_gpus_of_each_device() {
    let answers = told(&THREE);
    let devices = answers.as_array().expect("a list of devices");
    assert!(devices.len() > 3, "{answers}");
    for answer in devices.iter().filter(|answer| !answer["gpus"].is_null()) {
        let gpus = answer["gpus"].as_array().expect("a list of GPUs");
        let services: usize = gpus.iter().map(|gpu| gpu.as_array().map_or(0, Vec::len)).sum();
        assert_eq!(services, 3, "each once: {answer}");
        let rows = || gpus.iter().flat_map(|gpu| gpu.as_array().into_iter().flatten());
        assert!(rows().all(|row| row["predicted_slowdown"].as_f64().is_some_and(|slow| slow >= 1.0)));
        for gpu in gpus {
            let memory = |row: &Value| row["memory_bytes"].as_u64().unwrap_or(u64::MAX);
            let held: u64 = gpu.as_array().into_iter().flatten().map(memory).sum();
            assert!(held <= answer["memory_bytes"].as_u64().unwrap_or(0), "{answer}");
        }
    }
}

#[test]
fn of_devices_with_a_price_the_cheapest_that_suffices_is_named() {
    let devices = ["--device", "small=8GiB,1", "--device", "large=80GiB,2.5", "--device", "unpriced=80GiB"];
    let answers = told(
        &[&["--json", "fit", "BERT-base", "VGG19", "GPT2-large", "--ceiling", "3"][..], &devices].concat(),
    );
    let of = |at: usize| (&answers[at]["cost_per_hour"], &answers[at]["cheapest"]);
    assert_eq!(of(0), (&3.0.into(), &false.into()), "one GPU each, by memory: {answers}");
    assert_eq!(of(1), (&2.5.into(), &true.into()), "{answers}");
    assert!(answers[2]["cost_per_hour"].is_null() && !answers[2]["gpus"].is_null(), "{answers}");
}

#[test]
fn what_switches_cost_on_a_card_is_in_what_services_cost_each_other_there() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let slowdowns = |switch_us: u32| -> Vec<f64> {
        let file = calibration(&directory, &format!("switch_us = {switch_us}\n"));
        let file = file.to_str().expect("a plain name");
        let answers = told(&[
            "--json",
            "fit",
            "BERT-base",
            "BERT-base",
            "--ceiling",
            "9",
            "--device",
            "A=40GiB",
            "--calibration",
            file,
        ]);
        let rows = answers[0]["gpus"][0].as_array().expect("both on one GPU").clone();
        rows.iter().filter_map(|row| row["predicted_slowdown"].as_f64()).collect()
    };
    let (quick, slow) = (slowdowns(1), slowdowns(2_000));
    assert_eq!((quick.len(), slow.len()), (2, 2));
    assert!(quick.iter().zip(&slow).all(|(quick, slow)| slow > quick), "{quick:?} {slow:?}");
}

/// A server of batches of 8 in 120 ms with the whole GPU, 95 % of which it promises within 200 ms.
const SERVER: &str = r#"
version = 1
name = "server"
kind = "inference"
request = "30%"
limit = "60%"
memory = "2GiB"
[throughput]
unit = "requests/s"
alone = 66.7
at_request = 40.6
[inference]
batch = 8
slo = "p95 < 200ms"
latency_ms = 197.0
latency_alone_ms = 120.0
[copies]
host_to_device_gb_s = 0.0
device_to_host_gb_s = 0.0
[stalls]
compute = 0.42
communication = 0.0
copies = 0.0
neighbour = 0.0
gate = 0.0
host = 0.58
bubble = 0.58
[measured]
device = "d"
simulated = true
date = "2026-11-26"
command = ["c"]
"#;

/// What is said of a device, line by line.
fn lines_of<'a>(said: &'a str, device: &str) -> Vec<&'a str> {
    let own = said.lines().skip_while(|line| !line.starts_with(device));
    let more = own.skip(1).take_while(|line| line.starts_with(' ') || !line.contains(" GiB): "));
    more.filter_map(|line| line.strip_prefix("  ")).collect()
}

/// Both trainings ask for half of a GPU and are on it for 90 % of the time, so each would run 1.8 times slower beside the other.
#[test]
fn what_does_not_fit_together_says_which_condition_fails_and_by_how_much() {
    let fit = ["fit", "BERT-base", "RoBERTa-large:training", "LLaMA2-7B:training", "--explain"];
    let fit = [&fit[..], &["--device", "large=80GiB", "--device", "small=40GiB"]].concat();
    let said = said(&fit);
    let (all, pair) = ("all 3 together: ", "RoBERTa-large:training and LLaMA2-7B:training: ");
    let requests = "requests sum to 110 %: 100 % can be kept";
    let slow = "RoBERTa-large:training would run 1.80 times slower: the ceiling is 1.5; \
                LLaMA2-7B:training would run 1.80 times slower: the ceiling is 1.5";
    let memory = |gib: u32| format!("{gib} GiB of memory are more than the 40 GiB of the GPU");
    assert_eq!(lines_of(&said, "large"), [format!("{all}{requests}"), format!("{pair}{slow}")], "{said}");
    let expected = [
        format!("{all}{}; {requests}", memory(73)),
        format!("BERT-base:inference and LLaMA2-7B:training: {}", memory(41)),
        format!("{pair}{}; {slow}", memory(68)),
    ];
    assert_eq!(lines_of(&said, "small"), expected, "{said}");

    let answers = told(&[&["--json"][..], &fit].concat());
    let why = &answers[1]["refused"][2]["why"];
    let conditions =
        |why: &Value| why.as_array().map(|all| all.iter().map(|one| one["condition"].clone()).collect());
    assert_eq!(conditions(why), Some(vec!["memory".into(), "slow".into(), "slow".into()]), "{answers}");
    assert_eq!(
        (&why[0]["needed_bytes"], &why[0]["had_bytes"]),
        (&(68_u64 << 30).into(), &(40_u64 << 30).into())
    );
    assert_eq!(answers[1]["reasons"].as_array().map(Vec::len), Some(3), "{answers}");
}

#[test]
fn a_device_says_why_it_is_taken_to_serve_or_not() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("server.toml");
    std::fs::write(&file, SERVER).expect("a temporary file");
    let devices = ["plain=16GiB,1", "slow=16GiB,0.2,0.5", "small=1GiB,0.1", "fast=16GiB,4,8"];
    let devices: Vec<&str> = devices.iter().flat_map(|device| ["--device", device]).collect();
    let fit = ["fit", file.to_str().expect("a plain name"), "--rate", "40"];
    let fit = [&fit[..], &devices].concat();
    let explained = [&fit[..], &["--explain"]].concat();
    let said = said(&explained);
    for (device, why) in [
        (
            "plain",
            "taken: the cheapest that keeps it; together 1: 489.3 ms, 2: 207.7 ms, 3: 152.9 ms: the fewest within 5 % of the least",
        ),
        ("slow", "not taken: no number of GPUs keeps the SLO: 240.0 ms at best, the bound is 200 ms"),
        ("small", "not taken: 2 GiB of memory are more than the 1 GiB of the GPU"),
        ("fast", "not taken: 4.00 an hour are more than the 1.00 of `plain`"),
    ] {
        let line = format!("server (p95 < 200ms) {why}");
        assert!(lines_of(&said, device).contains(&line.as_str()), "{device}: {said}");
    }

    let answers = told(&[&["--json"][..], &explained].concat());
    let of = |at: usize| &answers[at]["explained"][0];
    let considered = of(0)["considered"].as_array().expect("a list of concurrencies");
    let together: Vec<_> = considered.iter().filter_map(|choice| choice["together"].as_u64()).collect();
    assert!(together == [1, 2, 3] && of(0)["not_taken"].is_null(), "{answers}");
    assert_eq!(considered[2]["predicted_ms"], answers[0]["serving"][0]["predicted_ms"], "{answers}");
    let conditions = [1, 2, 3].map(|at| &of(at)["not_taken"]["condition"]);
    assert_eq!(conditions, ["slo", "memory", "cost"], "{answers}");
    let unasked = told(&[&["--json"][..], &fit].concat());
    assert!(unasked[0]["explained"].is_null() && !unasked[0]["serving"].is_null(), "{unasked}");
}

#[test]
fn what_cannot_be_asked_is_refused_and_says_what_can() {
    assert_refused(
        &["fit", "BERT-bse"],
        2,
        &["neither a profile file nor a known model", "did you mean `BERT-base`?"],
    );
    assert_refused(&["fit", "BERT-base", "--device", "A100"], 2, &["names no memory", "A100=40GiB"]);
    for (device, told) in [
        ("A=40GiB,x", "`x` is no price"),
        ("A=40GiB,1,0", "`0` is no speed"),
        ("A=40GiB,1,1,1", "nothing is known"),
    ] {
        assert_refused(&["fit", "BERT-base", "--device", device], 2, &[told, "T4=16GiB,0.35,0.4"]);
    }
    assert_refused(&["fit", "BERT-base", "--rate", "5"], 2, &["has an SLO", "weir-cluster profile"]);
    let many = [&["fit"][..], &["BERT-base"; 13]].concat();
    assert_refused(&many, 2, &["13 services are too many", "fewer"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |text: &str| calibration(&directory, text).to_str().expect("a plain name").to_owned();
    let with = |text: &str, message: &str| {
        assert_refused(
            &["fit", "BERT-base", "--calibration", &file(text)],
            2,
            &[message, "weir doctor --measure"],
        );
    };
    with("switch_us = 0\n", "from 1 to 1,000,000 us");
    with("sms = 108\n", "tells of no switch");
    with("switch_us =\n", "cannot be used");
    assert_refused(
        &["fit", "BERT-base", "--calibration", "/nowhere.toml"],
        2,
        &["/nowhere.toml", "weir doctor --measure"],
    );
}
